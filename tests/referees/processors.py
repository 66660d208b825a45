"""preprocessor_config.json against transformers: folders of random ViTs with odd numbers and sizes, on images of every kind.

    processors.py BUILD             the loss of `sluice eval` beside that of AutoImageProcessor and ViTForImageClassification
    processors.py BUILD --record    writes tests/fixtures/processors for the test that needs no Python

Losses agree within 1e-6 of themselves where nothing is resized, and within 1e-5 where something is: transformers gets the images as
fp32 then, because it rounds resized bytes to bytes again and sluice does not. What training saves says the same to transformers.
"""
import gzip
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]
try:
    import numpy as np
    import torch
    import torchvision  # noqa: F401: what AutoImageProcessor resizes with
    import transformers
    from PIL import Image
    from transformers import AutoImageProcessor, ViTConfig, ViTForImageClassification
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

transformers.utils.logging.disable_progress_bar()
FIXTURES = HERE.parent / "fixtures" / "processors"
SIDE, CLASSES = 32, 10
ODD = dict(image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.25, 0.3])
# name: (model, data, preprocessor_config.json, whether images are resized)
CASES = {
    "numbers": ("rgb", "cifar10", dict(image_processor_type="ViTImageProcessor", size=dict(height=32, width=32), **ODD), False),
    "fast": ("rgb", "cifar10", dict(image_processor_type="ViTImageProcessorFast", size=dict(height=32, width=32), crop_size=None,
                                    do_center_crop=None, default_to_square=True, data_format="channels_first", device=None, **ODD), False),
    "one for all": ("rgb", "cifar10", dict(image_processor_type="ViTImageProcessor", size=32, image_mean=0.3, image_std=0.4), False),
    "old": ("rgb", "cifar10", dict(feature_extractor_type="ViTFeatureExtractor", do_normalize=True, do_resize=True, resample=2, size=32, **ODD), False),
    "bytes": ("rgb", "cifar10", dict(image_processor_type="ViTImageProcessor", size=32, do_rescale=False, image_mean=[100.0, 120.0, 140.0],
                                     image_std=[50.0, 60.0, 70.0]), False),
    "factor": ("rgb", "cifar10", dict(image_processor_type="ViTImageProcessor", size=32, rescale_factor=1 / 127.5, image_mean=[1.0, 1.1, 0.9],
                                      image_std=[1.0, 0.9, 1.2]), False),
    "plain": ("rgb", "cifar10", dict(image_processor_type="ViTImageProcessor", size=32, do_normalize=False), False),
    "usual": ("rgb", "cifar10", dict(image_processor_type="ViTImageProcessor", size=32), False),
    "no resize": ("rgb", "cifar10", dict(image_processor_type="ViTImageProcessor", do_resize=False, **ODD), False),
    "digits": ("grey", "idx", dict(image_processor_type="ViTImageProcessor", size=dict(height=28, width=28), image_mean=[0.2], image_std=[0.35]), False),
    "cut": ("rgb", "cifar10", dict(image_processor_type="DeiTImageProcessor", size=dict(height=40, width=40), crop_size=dict(height=32, width=32), **ODD), True),
    "stretch": ("rgb", "images", dict(image_processor_type="ViTImageProcessor", size=dict(height=32, width=32), **ODD), True),
    "stretch, bicubic": ("rgb", "images", dict(image_processor_type="ViTImageProcessor", size=32, resample=3, **ODD), True),
    "shorter side": ("rgb", "images", dict(image_processor_type="BitImageProcessor", size=dict(shortest_edge=36), crop_size=32, **ODD), True),
    "shorter side, bilinear": ("rgb", "images", dict(image_processor_type="CLIPImageProcessor", size=32, crop_size=dict(height=32, width=32), resample=2), True),
    "both sides, cut": ("rgb", "images", dict(image_processor_type="DeiTImageProcessor", size=37, crop_size=32), True),
}
SHAPES = [(40, 56), (48, 20), (32, 32), (64, 64), (21, 33), (90, 31), (36, 35), (32, 50), (70, 41), (16, 16)]


def picture(height, width, channels, seed):
    """Waves and noise: neither flat nor without any order."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 90 * np.sin((x * (c + 1) + y * (seed % 3 + 1)) / 7.0 + seed) for c in range(channels)]
    return np.clip(np.stack(waves, -1) + rng.normal(0, 9, (height, width, channels)), 0, 255).astype(np.uint8)


def make_models(folder):
    for name, channels, side, patch in (("rgb", 3, SIDE, 8), ("grey", 1, 28, 7)):
        torch.manual_seed(7)
        config = ViTConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, image_size=side, patch_size=patch,
                           num_channels=channels, num_labels=CLASSES, initializer_range=0.4, hidden_dropout_prob=0.0,
                           attention_probs_dropout_prob=0.0)
        ViTForImageClassification(config).save_pretrained(folder / name)


def make_images(folder):
    """Returns the images and classes of each kind of data."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"cifar10": [(picture(32, 32, 3, i), i) for i in range(CLASSES)], "idx": [(picture(28, 28, 1, i), i) for i in range(CLASSES)]}
    with open(folder / "cifar.bin", "wb") as out:
        for pixels, label in kinds["cifar10"]:
            out.write(bytes([label]) + pixels.transpose(2, 0, 1).tobytes())
    with gzip.GzipFile(folder / "digits-idx3-ubyte.gz", "wb", mtime=0) as out:
        out.write(struct.pack(">4i", 0x803, CLASSES, 28, 28) + b"".join(p.tobytes() for p, _ in kinds["idx"]))
    with gzip.GzipFile(folder / "digits-idx1-ubyte.gz", "wb", mtime=0) as out:
        out.write(struct.pack(">2i", 0x801, CLASSES) + bytes(label for _, label in kinds["idx"]))
    kinds["images"] = []
    for label, (height, width) in enumerate(SHAPES):
        pixels = picture(height, width, 3, 100 + label)
        (folder / "pictures" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / "pictures" / str(label) / "a.png", optimize=True)
        kinds["images"].append((pixels, label))
    return kinds


def settings(kind, images):
    if kind == "cifar10":
        return dict(type=kind, path=str(images / "cifar.bin"), validation_path=str(images / "cifar.bin"))
    if kind == "idx":
        pixels, labels = str(images / "digits-idx3-ubyte.gz"), str(images / "digits-idx1-ubyte.gz")
        return dict(type=kind, path=pixels, labels_path=labels, validation_path=pixels, validation_labels_path=labels)
    return dict(type=kind, path=str(images / "pictures"), validation_path=str(images / "pictures"))


def prepare(folder, model, processor):
    shutil.copytree(model, folder, dirs_exist_ok=True)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")


def theirs(folder, samples):
    processor, model = AutoImageProcessor.from_pretrained(folder), ViTForImageClassification.from_pretrained(folder).eval()
    # as fp32: bytes would be rounded to bytes after resizing
    pixels = [processor(images=torch.from_numpy(p.astype(np.float32)).permute(2, 0, 1), input_data_format="channels_first",
                        return_tensors="pt")["pixel_values"] for p, _ in samples]
    labels = torch.tensor([label for _, label in samples])
    with torch.no_grad():
        return model(pixel_values=torch.cat(pixels), labels=labels).loss.item()


def run_sluice(build, place, name, folder, data, arguments):
    config = dict(model=dict(path=str(folder)), data=data, steps=1, train_batch_size=5, seed=1, threads=1,
                  optimizer=dict(type="SGD", params=dict(lr=0.0)))
    path = place / f"{name}.json"
    path.write_text(json.dumps(config))
    out = subprocess.run([build / "sluice", arguments[0], path, "--json", "--quiet", *arguments[1:]], capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"{name}: sluice {arguments[0]}: {out.stderr}")
    return [json.loads(line) for line in out.stdout.splitlines()]


def ours(build, place, name, folder, data, *more):
    return next(e["loss"] for e in run_sluice(build, place, name, folder, data, ["eval", *more]) if "loss" in e)


def record():
    shutil.rmtree(FIXTURES, ignore_errors=True)
    make_models(FIXTURES)
    kinds = make_images(FIXTURES)
    expected = []
    with tempfile.TemporaryDirectory() as place:
        for name, (model, kind, processor, resizes) in CASES.items():
            folder = Path(place) / name
            prepare(folder, FIXTURES / model, processor)
            expected.append(dict(name=name, model=model, data=kind, resizes=resizes, processor=processor, loss=theirs(folder, kinds[kind])))
    (FIXTURES / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main():
    if "--record" in sys.argv:
        return record()
    build, worst, failed = Path(sys.argv[1]).resolve(), 0.0, 0
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        make_models(place)
        kinds = make_images(place / "data")
        for name, (model, kind, processor, resizes) in CASES.items():
            folder, saved, data = place / name, place / f"{name} saved", settings(kind, place / "data")
            prepare(folder, place / model, processor)
            loss, wanted = ours(build, place, name, folder, data), theirs(folder, kinds[kind])
            difference = abs(loss - wanted) / wanted
            for more in ([], ["--set", "data.mean=[0.1]", "--set", "data.resize=stretch"]):  # what training used is what is saved
                run_sluice(build, place, name, folder, data, ["train", "--set", f"save={saved}/", *more])
                again = theirs(saved, kinds[kind])
                used = ours(build, place, name, folder, data, *more)
                difference = max(difference, abs(used - again) / again, abs(ours(build, place, name, saved, data) - again) / again)
            allowed = 1e-5 if resizes else 1e-6
            print(f"{name:24} loss {wanted:.7f}, differs by {difference:.1e}{'' if difference < allowed else '   TOO MUCH'}")
            failed += difference >= allowed
            worst = max(worst, difference / allowed)
    print(f"processors: {len(CASES)} folders, the largest difference is {worst:.3f} of what is allowed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
