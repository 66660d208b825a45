"""Pixels of image folders against Pillow and torchvision: decoding of every kind of PNG and JPEG, resizing, cropping, normalisation.

Pillow reads the files and makes them colours or grey; torchvision resizes and crops them as fp32 with antialiasing.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]
try:
    import numpy as np
    import torch
    from PIL import Image
    from torchvision.transforms.v2 import functional as F
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

build = Path(sys.argv[1])
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def noise(width, height):
    rng = np.random.default_rng(width * 1000 + height)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 100 * np.sin((x * (c + 1) + y * 2) / 9.0) for c in range(3)]
    return Image.fromarray(np.clip(np.stack(waves, -1) + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8))


def write(folder):
    """Every kind of file in several sizes; returns them in the order in which sluice lists them."""
    (folder / "class").mkdir(parents=True)
    for width, height in [(96, 48), (48, 80), (20, 20), (192, 128)]:
        colours = noise(width, height)
        kinds = {"rgb.png": colours, "grey.png": colours.convert("L"), "palette.png": colours.quantize(19), "alpha.png": colours.convert("RGBA"),
                 "bit.png": colours.convert("1"), "q95.jpg": colours, "grey.jpg": colours.convert("L"), "cmyk.jpg": colours.convert("CMYK"),
                 "progressive.jpg": colours}
        for name, image in kinds.items():
            options = {"quality": 90, "progressive": "progressive" in name} if name.endswith("jpg") else {}
            image.save(folder / "class" / f"{width}x{height}-{name}", **options)
    return sorted(folder.rglob("*.*"), key=lambda p: str(p).encode())


def expected(path, side, crop, channels):
    """The middle, resized; None where the whole image cannot be resized to whole numbers, which the part of an image need not be."""
    image = Image.open(path).convert("RGB" if channels == 3 else "L")
    x = torch.from_numpy(np.atleast_3d(np.asarray(image)).copy()).permute(2, 0, 1).float()
    height, width = x.shape[1:]
    square, large = min(height, width), side * 8 // 7 if crop == "resized" else side
    if large * height % square or large * width % square or (large * height // square - side) % 2 or (large * width // square - side) % 2:
        return None
    x = F.resize(x, [large * height // square, large * width // square], antialias=True)
    return F.center_crop(x, [side, side])


def normalised(x, channels):
    mean, std = (MEAN, STD) if channels == 3 else ([0.449], [0.226])
    return F.normalize(x / 255, mean, std).permute(1, 2, 0)


worst, compared = 0.0, 0
with tempfile.TemporaryDirectory() as place:
    folder = Path(place) / "images"
    files = write(folder)
    for side, crop, channels in [(24, "none", 3), (16, "none", 1), (64, "none", 3), (28, "resized", 3)]:
        out = subprocess.run([build / "show_pictures", folder, str(side), crop, str(channels)], check=True, capture_output=True).stdout
        ours = torch.from_numpy(np.frombuffer(out, np.float32).copy()).reshape(len(files), side, side, channels)
        for path, got in zip(files, ours):
            theirs = expected(path, side, crop, channels)
            if theirs is None:
                continue
            step, allowed = 1 / 255 / 0.224, 2e-4
            difference = (got - normalised(theirs, channels)).abs().max().item()
            worst = max(worst, difference / allowed)
            compared += 1
            if difference > allowed:
                print(f"{path.name} as {side} {crop} {channels}: differs by {difference / step:.2f} steps of brightness")
print(f"images: {compared} compared, the largest difference is {worst:.3f} of what is allowed")
sys.exit(worst > 1 or compared < 90)
