"""Networks of images, sentences and clicks against torchvision, transformers and plain PyTorch, on random weights in fp32.

    networks.py BUILD [NAME...]   every network, or those whose names contain one of the words
    networks.py BUILD --record    writes tests/fixtures/networks for the test that needs no Python

Logits agree within 1e-4 before the first and after the last of ten steps of training, the losses of these within 1e-4, and then
running statistics within 1e-5. What sluice writes, weights alone and folders, opens without a key too many or too few, and has
the same logits there.
"""
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import safetensors.torch
    import torch
    import torchvision
    import transformers
    from torch import nn
    from transformers import (AutoConfig, BertForMaskedLM, BertForSequenceClassification, ViTForImageClassification)
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

transformers.utils.logging.disable_progress_bar()
HERE = Path(__file__).resolve().parent
STEPS, EVALUATED = 10, 1000
SGD = dict(optimizer="SGD", lr=0.01, weight_decay=5e-4)
# A small epsilon would let gradients near zero decide by their sign alone.
ADAMW = dict(optimizer="AdamW", lr=1e-3, weight_decay=0.1)
BERT = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, vocab_size=40,
            max_position_embeddings=20, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            pad_token_id=None)
VIT = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24, image_size=12, patch_size=4,
           num_labels=5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def resnet(depth, stem, side, batch, lr, **more):
    return dict(type="resnet", depth=depth, stem=stem, image=[side, side, 3], outputs=5, batch=batch, **{**SGD, "lr": lr}, **more)


# name: network.json, and what config.json holds beside it
NETWORKS = {
    "resnet18-cifar": (resnet(18, "cifar", 16, 8, 2e-3), None),
    "resnet18": (resnet(18, "imagenet", 64, 8, 1e-3), None),
    "resnet34": (resnet(34, "imagenet", 64, 8, 5e-4), None),
    "resnet50": (resnet(50, "imagenet", 64, 8, 2e-5), None),
    "resnet50-cifar": (resnet(50, "cifar", 16, 8, 1e-4), None),
    "resnet18-odd": (resnet(18, "imagenet", 75, 6, 1e-3, label_smoothing=0.1), None),
    "cnn": (dict(type="cnn", image=[12, 10, 3], filters=[6, 8], kernel=3, padding=1, pool=2, hidden=[14], outputs=5, batch=6,
                 **SGD), None),
    "cnn-wide-kernel": (dict(type="cnn", image=[11, 9, 1], filters=[4, 7, 5], kernel=5, padding=2, pool=1, hidden=[], outputs=4,
                             batch=6, **ADAMW), None),
    "bert": (dict(type="bert", context=14, batch=3, **ADAMW), BERT),
    "bert-relu-full": (dict(type="bert", context=20, batch=3, **ADAMW), {**BERT, "hidden_act": "relu", "layer_norm_eps": 1e-5}),
    "bert-classifier": (dict(type="bert", head="classifier", context=14, outputs=3, batch=4, **ADAMW),
                        {**BERT, "num_labels": 3}),
    "bert-classifier-tanh": (dict(type="bert", head="classifier", context=20, outputs=2, batch=4, **SGD),
                             {**BERT, "hidden_act": "gelu_new", "type_vocab_size": 3}),
    "vit": (dict(type="vit", image=[12, 12, 3], outputs=5, batch=4, **ADAMW), VIT),
    "vit-grey": (dict(type="vit", image=[14, 14, 1], outputs=2, batch=4, **SGD),
                 {**VIT, "image_size": 14, "patch_size": 7, "num_channels": 1, "num_labels": 2, "hidden_act": "gelu_pytorch_tanh"}),
    "recommender": (dict(type="recommender", columns=[5, 4, 11], bottom=[12], top=[10, 6], embedding=8, batch=7, **SGD), None),
    "recommender-categories": (dict(type="recommender", columns=[0, 3, 9], top=[6], embedding=4, batch=7, **ADAMW), None),
}
# Those whose weights are small are kept as fixtures with them; of a residual network both sides make the first ones.
RECORDED = ["resnet18-cifar", "cnn", "bert", "bert-classifier", "bert-classifier-tanh", "vit", "vit-grey", "recommender"]
MADE = ["resnet18-cifar"]


# ---- numbers that both sides make, as tests/support/network_run.h ----

def fnv1a(text):
    state = 2166136261
    for byte in text.encode():
        state = ((state ^ byte) * 16777619) & 0xFFFFFFFF
    return state


def sequence(state, count):
    """The upper 24 bits of the next `count` states."""
    powers = np.multiply.accumulate(np.full(count, 1664525, np.uint32), dtype=np.uint32)
    sums = np.concatenate(([np.uint32(1)], 1 + np.add.accumulate(powers[:-1], dtype=np.uint32)))
    return (powers * np.uint32(state) + np.uint32(1013904223) * sums.astype(np.uint32)) >> np.uint32(8)


def drawn(name, step, shape):
    return sequence((fnv1a(name) + step * 2654435761) & 0xFFFFFFFF, int(np.prod(shape))).reshape(shape).astype(np.int64)


def numbers(name, step, shape):
    return torch.tensor(2 * (drawn(name, step, shape) / 8388608.0 - 1.0) + 0.3).float()


def first_values(name, shape):
    values = sequence(fnv1a(name), int(np.prod(shape))).reshape(shape) / 8388608.0 - 1.0
    if len(shape) > 1:
        return torch.tensor(np.sqrt(6.0 / np.prod(shape[1:])) * values).float()
    centre = 0.0 if not name.endswith(".weight") else 0.2 if "bn2" in name else 1.0
    return torch.tensor(centre + 0.1 * values).float()


# ---- the same networks in PyTorch; each takes a step's number and gives logits and targets of the loss ----

class Plain(nn.Module):
    """A cnn: convolutions with ReLU and pooling, then linears."""

    def __init__(self, s):
        super().__init__()
        height, width, channels = s["image"]
        self.pool, self.convolutions, self.linears = s["pool"], len(s["filters"]), len(s["hidden"]) + 1
        for i, out in enumerate(s["filters"]):
            self.add_module(f"conv{i + 1}", nn.Conv2d(channels, out, s["kernel"], padding=s["padding"]))
            channels, height, width = out, height // self.pool, width // self.pool
        features = channels * height * width
        for i, out in enumerate([*s["hidden"], s["outputs"]]):
            self.add_module(f"fc{i + 1}", nn.Linear(features, out))
            features = out

    def forward(self, x):
        for i in range(self.convolutions):
            x = nn.functional.max_pool2d(torch.relu(self.get_submodule(f"conv{i + 1}")(x)), self.pool)
        x = x.flatten(1)
        for i in range(self.linears):
            x = self.get_submodule(f"fc{i + 1}")(torch.relu(x) if i > 0 else x)
        return x


def perceptron(widths, last_relu):
    layers = []
    for i in range(len(widths) - 1):
        layers += [nn.Linear(widths[i], widths[i + 1]), nn.ReLU()]
    return nn.Sequential(*(layers if last_relu else layers[:-1]))


class Clicks(nn.Module):
    """A recommender in DLRM's shape, with its names."""

    def __init__(self, s):
        super().__init__()
        numeric, tables, rows = s["columns"]
        width, vectors = s["embedding"], tables + (numeric > 0)
        if numeric > 0:
            self.bot_l = perceptron([numeric, *s["bottom"], width], True)
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.top_l = perceptron([width * (numeric > 0) + vectors * (vectors - 1) // 2, *s["top"], 1], False)

    def forward(self, x, *categories):
        first = [self.bot_l(x)] if x is not None else []
        together = torch.stack(first + [table(ids) for table, ids in zip(self.emb_l, categories)], 1)
        lower = torch.tril_indices(together.shape[1], together.shape[1], -1)
        return self.top_l(torch.cat(first + [(together @ together.transpose(1, 2))[:, lower[0], lower[1]]], 1))


def build(name, **more):
    s, config = NETWORKS[name]
    torch.manual_seed(sum(name.encode()))
    if s["type"] == "resnet":
        model = getattr(torchvision.models, f"resnet{s['depth']}")(num_classes=s["outputs"])
        if s["stem"] == "cifar":
            model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
        return model
    if config is None:
        return (Plain if s["type"] == "cnn" else Clicks)(s)
    return network_class(s)(AutoConfig.for_model(s["type"], **{**config, **more}))


def network_class(s):
    if s["type"] == "vit":
        return ViTForImageClassification
    return BertForSequenceClassification if "head" in s else BertForMaskedLM


def forward(model, s, step):
    rows = s["batch"]
    if "image" in s:
        x = numbers("x", step, (rows, *s["image"])).permute(0, 3, 1, 2).contiguous()
        target = torch.tensor(drawn("target", step, (rows,)) % s["outputs"])
        y = model(x)
    elif s["type"] == "recommender":
        numeric, tables, buckets = s["columns"]
        x = numbers("x", step, (rows, numeric)) if numeric > 0 else None
        target = torch.tensor(drawn("target", step, (rows, 1)) % 2).float()
        y = model(x, *(torch.tensor(drawn(f"category.{i}", step, (rows, 1)) % buckets) for i in range(tables)))
    else:
        shape, vocabulary = (rows, s["context"]), model.config.vocab_size
        inputs = dict(input_ids=torch.tensor(drawn("tokens", step, shape) % vocabulary))
        if "head" in s:
            lengths = s["context"] - torch.arange(rows) * 3 % (s["context"] // 2)
            inputs["attention_mask"] = (torch.arange(s["context"]) < lengths[:, None]).long()
            inputs["token_type_ids"] = (torch.arange(s["context"]) >= (s["context"] // 3 + torch.arange(rows))[:, None]).long()
            target = torch.tensor(drawn("target", step, (rows,)) % s["outputs"])
        else:
            hidden = drawn("targets", step, shape)
            target = torch.tensor(np.where(hidden % 3 == 0, hidden // 3 % vocabulary, -1))
        y = model(**inputs)
    return y if isinstance(y, torch.Tensor) else y.logits, target


def loss_of(s, logits, target):
    if s["type"] == "recommender":
        return nn.functional.binary_cross_entropy_with_logits(logits, target)
    return nn.functional.cross_entropy(logits.reshape(target.numel(), -1), target.reshape(-1), ignore_index=-1,
                                       label_smoothing=s.get("label_smoothing", 0.0))


def evaluate(model, s):
    with torch.no_grad():
        return forward(model.eval(), s, EVALUATED)[0].clone().reshape(-1)


def train(model, s):
    arguments = dict(lr=s["lr"], weight_decay=s["weight_decay"])
    if s["optimizer"] == "SGD":
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, **arguments)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), eps=1e-4, **arguments)
    model.train()
    losses = []
    for step in range(1, STEPS + 1):
        loss = loss_of(s, *forward(model, s, step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# ---- folders ----

def make_folder(name, folder, made=False, **more):
    """network.json and weights: random running statistics too, and biases and norms that are no zeros and ones. Residual branches
    are small: in a deep network of full ones, errors of rounding grow with every step, and PyTorch in fp32 leaves PyTorch in fp64."""
    s, config = NETWORKS[name]
    model = build(name, **more)
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / "network.json").write_text(json.dumps(dict(s, made=made)) + "\n")
    if made:
        return
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if s["type"] == "resnet" and key.endswith("bn3.weight" if s["depth"] >= 50 else "bn2.weight"):
                parameter *= 0.2
            if parameter.dim() == 1 or config is not None:
                parameter += torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.05)
        for key, buffer in model.named_buffers():
            if key.endswith("running_mean"):
                buffer += torch.randn_like(buffer) * 0.3
            if key.endswith("running_var"):
                buffer += torch.rand_like(buffer) - 0.3
    if config is not None:
        model.to(torch.bfloat16).save_pretrained(folder)
        (Path(folder) / "model.safetensors").chmod(0o644)
    else:
        safetensors.torch.save_file(model.state_dict(), f"{folder}/model.safetensors")


def open_folder(name, folder):
    s, config = NETWORKS[name]
    if config is not None:
        return network_class(s).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model = build(name)
    if (Path(folder) / "model.safetensors").exists():
        model.load_state_dict(safetensors.torch.load_file(f"{folder}/model.safetensors"))
        return model
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(first_values(key, tuple(parameter.shape)))
    return model


def sluice(build, folder, out):
    done = subprocess.run([f"{build}/run_network", str(folder), str(STEPS), str(out)], capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode().strip() or f"status {done.returncode}")
    count = (len(done.stdout) - 8 * STEPS) // 8
    logits = [torch.frombuffer(bytearray(done.stdout[at:at + 4 * count]), dtype=torch.float32) for at in (0, 4 * count + 8 * STEPS)]
    return logits[0], struct.unpack(f"<{STEPS}d", done.stdout[4 * count:4 * count + 8 * STEPS]), logits[1]


# ---- comparisons ----

def apart(a, b):
    return (a.reshape(-1) - b.reshape(-1)).abs().max().item()


def open_transformers(s, folder):
    model, report = network_class(s).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    return model, [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]


def open_written(name, folder, weights):
    """What sluice wrote, as its owner opens it, and the keys that are missing or unexpected."""
    s, config = NETWORKS[name]
    if config is not None:
        shutil.copy(weights, f"{folder}/model.safetensors")
        return open_transformers(s, folder)
    model = build(name)
    report = model.load_state_dict(safetensors.torch.load_file(weights), strict=False)
    return model, [*report.missing_keys, *report.unexpected_keys]


def compare(build, name, folder):
    s, _ = NETWORKS[name]
    make_folder(name, folder)
    model = open_folder(name, folder)
    before = evaluate(model, s)
    losses = train(model, s)
    after = evaluate(model, s)
    ours_before, our_losses, ours_after = sluice(build, folder, folder)
    first, first_keys = open_written(name, folder, f"{folder}/first.safetensors")
    kept = apart(evaluate(first, s), before)
    last, last_keys = open_written(name, folder, f"{folder}/last.safetensors")
    found = dict(last.named_buffers())
    running = [(((found[k] - b).abs() / (1 + b.abs())).max().item()) for k, b in model.named_buffers() if b.is_floating_point()]
    counts = [(found[k] - b).abs().max().item() for k, b in model.named_buffers() if k.endswith("num_batches_tracked")]
    off = max(abs(a - b) for a, b in zip(our_losses, losses))
    figures = dict(logits=apart(ours_before, before), after=apart(ours_after, after), losses=off, kept=kept,
                   written=apart(evaluate(last, s), ours_after), statistics=10 * max(running, default=0))
    keys = len(first_keys) + len(last_keys)
    good = max(figures.values()) < 1e-4 and keys == 0 and not any(counts)
    print(f"{name:24} logits {figures['logits']:.1e}, after {STEPS} steps {figures['after']:.1e} of {before.abs().max().item():5.2f}  "
          f"losses {off:.1e}, {losses[0]:.3f} to {losses[-1]:.3f}  statistics {max(running, default=0):.1e}  "
          f"written {figures['written']:.1e}, {keys} wrong keys   {'agree' if good else 'DIFFER'}", flush=True)
    return good


# ---- what `sluice train` saves ----

TOKENIZER = HERE.parent / "fixtures" / "tokenizers" / "bert-uncased.json"
PICTURES = ["data.type=random_images", "data.samples=8"]
SCRATCH = ["model.layers=2", "model.heads=4", "model.width=16"]
TOKENS = ["data.type=random_tokens", "data.samples=8", "model.context=14"]
# name: (network that the folder to begin with is of, settings, network.json where it is another)
WRITTEN = {
    "resnet18-cifar, a file": (None, [*PICTURES, "model.type=resnet", "model.depth=18", "model.stem=cifar", "data.image_size=16",
                                      "data.outputs=5"], "resnet18-cifar"),
    "vit from scratch": (None, [*PICTURES, *SCRATCH, "model.type=vit", "model.patch=4", "data.image_size=12", "data.outputs=5"], "vit"),
    "vit from its folder": ("vit", [*PICTURES, "data.image_size=12", "data.outputs=5"], "vit"),
    "vit with another head": ("vit", [*PICTURES, "data.image_size=12", "data.outputs=2", "new_parameters=[\"classifier.*\"]"],
                              dict(NETWORKS["vit"][0], outputs=2)),
    "bert from scratch": (None, [*TOKENS, *SCRATCH, "model.type=bert", "model.vocabulary=40"], "bert"),
    "bert from its folder": ("bert", TOKENS, "bert"),
    "bert with a classifier": ("bert", ["data.type=glue", "model.head=classifier", "model.context=14"],
                               dict(NETWORKS["bert-classifier"][0], outputs=2)),
}


def write_sentences(folder):
    rows = [f"{i % 2}\tthe {i} of one day\tin {i * i} ways" for i in range(8)]
    Path(f"{folder}/train.tsv").write_text("label\tsentence1\tsentence2\n" + "\n".join(rows) + "\n")


def written(build, name, folder):
    base, settings, network = WRITTEN[name]
    s = NETWORKS[network][0] if isinstance(network, str) else network
    out = f"{folder}/out/" if s["type"] != "resnet" else f"{folder}/out/model.safetensors"
    config = dict(optimizer=dict(type="AdamW"), train_batch_size=4, steps=2, threads=1, save=out)
    Path(f"{folder}/config.json").write_text(json.dumps(config))
    if base is not None:
        vocabulary = dict(vocab_size=1366) if "head" in s else {}
        make_folder(base, f"{folder}/in", **vocabulary)
        (Path(folder) / "in" / "network.json").unlink()
        settings = [*settings, f"model.path={folder}/in"]
    if "head" in s:
        write_sentences(folder)
        shutil.copy(TOKENIZER, f"{folder}/in/tokenizer.json")
        settings = [*settings, f"data.path={folder}/train.tsv"]
    if s["type"] == "resnet":
        Path(f"{folder}/out").mkdir()
    command = [f"{build}/sluice", "train", f"{folder}/config.json", "--quiet"]
    done = subprocess.run(command + [a for setting in settings for a in ("--set", setting)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    Path(f"{folder}/out/network.json").write_text(json.dumps(s))
    model, keys = open_written(network, None, out) if s["type"] == "resnet" else open_transformers(s, out)
    off = apart(sluice(build, f"{folder}/out", folder)[0], evaluate(model, s))
    good = off < 1e-4 and not keys
    print(f"{name:24} written by sluice train: {len(keys)} wrong keys, logits {off:.1e}   {'agree' if good else 'DIFFER'}", flush=True)
    return good


def record(name):
    s, _ = NETWORKS[name]
    folder = HERE.parent / "fixtures" / "networks" / name
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(name, folder, name in MADE)
    model = open_folder(name, folder)
    before = evaluate(model, s)
    losses = train(model, s)
    after = evaluate(model, s)
    statistics = {key: [float(f"{v:.7g}") for v in b.tolist()] for key, b in model.named_buffers()
                  if key.startswith(("bn1.", "layer2.0.downsample.", "layer4.1.bn2.")) and b.dim() > 0}
    expected = dict(logits=[round(v, 6) for v in before[:200].tolist()], losses=losses,
                    logits_after=[round(v, 6) for v in after[:200].tolist()], statistics=statistics)
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def main():
    build_folder, words = sys.argv[1], sys.argv[2:]
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # with two its own sums move the statistics of ResNet-50 by 1.3e-5
    if "--record" in words:
        for name in RECORDED:
            record(name)
        return 0
    checks = [(compare, name) for name in NETWORKS] + [(written, name) for name in WRITTEN]
    checks = [(check, name) for check, name in checks if not words or any(word in name for word in words)]
    failed = 0
    for check, name in checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                good = check(build_folder, name, folder)
            except Exception as error:  # one that fails must not hide the others
                print(f"{name:24} {type(error).__name__}: {error}", flush=True)
                good = False
        failed += not good
    print(f"torchvision {torchvision.__version__}, transformers {transformers.__version__}: {len(checks) - failed} of {len(checks)} agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
