"""Every family that sluice reads, in every way of training it, against transformers and PEFT.

    matrix.py BUILD [WORD...]   every row, or those whose names contain one of the words
    matrix.py BUILD --record    writes tests/fixtures/matrix for the test that needs no Python

The families are those that the program itself names. Folders are what `save_pretrained` writes by default: the model in fp32, its
tokenizer or image processor with all their defaults. A row is a family, a way of training it (all of it; `--lora`; an adapter that PEFT
made; a part drawn at random frozen) and a precision. Its columns:

    eval       `sluice eval` of what training begins with
    train      losses of five steps of AdamW
    2 ranks    a run on two ranks at stage 3 ends with the weights of one rank, in bits
    written    what training wrote, opened by transformers or PEFT: no key missing, unexpected or of another shape, the loss of
               the reference after its own training; what was frozen has its bits
    generate   greedy text of what was written

fp32: losses within 1e-5 of themselves, the same text. bf16: the reference computes in fp32, so losses are within 0.5 % of themselves,
those of classifiers, which are the differences of a few logits, within 4 %; and each token of the text is, in fp32, within 5 % of the
spread of the logits from the likeliest. A classifier writes no text; a way of training that does not go with its family is refused.
"""
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import families  # these three end with 77 where packages are missing
import adapters
import networks

try:
    import numpy as np
    import peft
    import safetensors.torch
    import torch
    import transformers
    from PIL import Image
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import AutoImageProcessor, AutoTokenizer, PreTrainedTokenizerFast, ViTImageProcessor
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

HERE, BUILD = Path(__file__).resolve().parent, Path(sys.argv[1]).resolve()
STEPS, SAMPLES, DRAWS = 5, 8, 2
ADAMW = dict(lr=3e-3, betas=[0.9, 0.95], eps=1e-4, weight_decay=0.1)
FP32, LIKELIEST = 1e-5, {"fp32": 0.0, "bf16": 5e-2}
PROMPT, TOKENS = "cold one", 12
WORDS = "one two three four five six seven eight nine ten red green blue cold warm".split()


class Refused(Exception):
    """sluice ended with 2: it says that a way of training does not go with a model."""


def sluice(root, *arguments):
    """What a command prints as JSON, run in the folder in which all paths are short."""
    done = subprocess.run([str(BUILD / "sluice"), *map(str, arguments)], cwd=root, capture_output=True, text=True)
    said = done.stderr.strip().splitlines()
    if done.returncode == 2:
        raise Refused(said[-1] if said else "")
    if done.returncode != 0:
        raise RuntimeError(f"{arguments[0]} ended with {done.returncode}: {said[-1] if said else ''}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def known_families():
    """As the program lists them to who names another."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text('{"model_type": "none of them"}')
        said = subprocess.run([str(BUILD / "sluice"), "plan", "--model", folder], capture_output=True, text=True).stderr
    return re.search(r"built in are ([a-z0-9_, ]+)", said).group(1).strip().split(", ")


# ---- models with their data; all samples are in every step, so that their order does not matter ----

class Decoder:
    """Texts of one length, two of which are packed into a row."""
    letters, rows, generates, bf16 = 12, SAMPLES // 2, True, 5e-3
    kind = transformers.AutoModelForCausalLM

    def __init__(self, family, root):
        settings = [settings for of, settings in families.VARIANTS.values() if of == family]
        if not settings:
            raise RuntimeError("families.py has no settings for it")
        tokenizer = self.make_tokenizer()
        ids = dict(bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id)
        sizes = dict(vocab_size=len(tokenizer), **({"n_positions": 32} if family == "gpt2" else {}))
        save(families.make_model(family, {**settings[0], **sizes, **ids}, 1), tokenizer, root)
        self.samples = {part: self.write(root / f"{part}.jsonl", part, tokenizer) for part in ("train", "held")}
        self.config = dict(model=dict(context=2 * self.letters + 3), data=dict(
            type="jsonl", path="train.jsonl", validation_path="held.jsonl"))
        self.lora = dict(target_modules="all-linear", task_type="CAUSAL_LM", fan_in_fan_out=family == "gpt2")

    @staticmethod
    def make_tokenizer():
        """A token for each printable character of ASCII, so that any tokens are a text."""
        letters = ["</s>", *map(chr, range(33, 127)), "Ġ"]
        tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")

    def write(self, path, part, tokenizer):
        draw = random.Random(part)
        texts = ["".join(draw.choices("abcdefgh ", k=self.letters)) for _ in range(SAMPLES)]
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return torch.tensor([tokenizer.encode(text) + [tokenizer.eos_token_id] for text in texts])

    def loss(self, model, part):
        ids = self.samples[part]
        logits = model(input_ids=ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    def greedy(self, root, model):
        """How transformers goes on."""
        tokenizer = AutoTokenizer.from_pretrained(root / "base")
        start = torch.tensor([tokenizer.encode(PROMPT)])
        with torch.no_grad():
            ids = model.generate(start, do_sample=False, max_new_tokens=TOKENS, pad_token_id=0)[0, start.shape[1]:]
        return tokenizer.decode(ids, skip_special_tokens=True)

    def check_text(self, root, model, arguments):
        """0 where the text is that of transformers, or how much less likely a token is than the likeliest, in spreads of the logits."""
        (root / "prompts.txt").write_text(PROMPT + "\n")
        command = ["generate", "c.json", "--quiet", "--prompts", "prompts.txt", "--tokens", TOKENS, "--temperature", 0]
        text = sluice(root, *command, *arguments)[0]["text"]
        if text == self.greedy(root, model):
            return 0.0
        tokenizer = AutoTokenizer.from_pretrained(root / "base")
        first, ids = len(tokenizer.encode(PROMPT)), torch.tensor([tokenizer.encode(PROMPT + text)])
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0, first - 1:-1]
        chosen = logits.gather(1, ids[0, first:, None])[:, 0]
        return max(((logits.max(1).values - chosen) / logits.std(1)).max().item(), 1e-9)


class Sentences:
    """Pairs of sentences in two classes, for a bert."""
    rows, generates, bf16 = SAMPLES, False, 4e-2
    kind = transformers.AutoModelForSequenceClassification

    def __init__(self, family, root):
        tokenizer = self.make_tokenizer()
        sizes = dict(networks.BERT, num_labels=2, vocab_size=len(tokenizer), pad_token_id=None)
        save(families.make_model(family, sizes, 1, self.kind), tokenizer, root)
        self.samples = {part: self.write(root / f"{part}.tsv", part, tokenizer) for part in ("train", "held")}
        self.config = dict(model=dict(head="classifier", context=20), data=dict(
            type="glue", path="train.tsv", validation_path="held.tsv"))
        self.lora = dict(target_modules=["query", "key", "value", "dense"], task_type="SEQ_CLS")

    @staticmethod
    def make_tokenizer():
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(special + WORDS)}, unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        tokenizer.decoder = decoders.WordPiece()
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]",
                                       cls_token="[CLS]", mask_token="[MASK]")

    def write(self, path, part, tokenizer):
        draw = random.Random(part)
        pairs = [[" ".join(draw.choices(WORDS, k=draw.randint(2, 6))) for _ in range(2)] for _ in range(SAMPLES)]
        rows = [f"{i % 2}\t{one}\t{two}" for i, (one, two) in enumerate(pairs)]
        path.write_text("\n".join(["label\tsentence1\tsentence2", *rows]) + "\n")
        return tokenizer([one for one, _ in pairs], [two for _, two in pairs], padding=True, return_tensors="pt",
                         return_token_type_ids=True)

    def loss(self, model, part):
        return torch.nn.functional.cross_entropy(model(**self.samples[part]).logits, torch.arange(SAMPLES) % 2)


class Pictures:
    """Images in two classes, for a vit."""
    rows, generates, bf16 = SAMPLES, False, 4e-2
    kind = transformers.AutoModelForImageClassification

    def __init__(self, family, root):
        side = networks.VIT["image_size"]
        processor = ViTImageProcessor(size=dict(height=side, width=side))
        save(families.make_model(family, {**networks.VIT, "num_labels": 2}, 1, self.kind), processor, root)
        processor = AutoImageProcessor.from_pretrained(root / "base")
        self.samples = {part: self.write(root / part, part, side, processor) for part in ("train", "held")}
        self.config = dict(data=dict(type="images", path="train", validation_path="held", image_size=side,
                                     mean=list(processor.image_mean), std=list(processor.image_std)))
        self.lora = dict(target_modules="all-linear")

    @staticmethod
    def write(folder, part, side, processor):
        draw, images = np.random.default_rng(len(part)), []
        for i in range(SAMPLES):
            images.append(Image.fromarray(draw.integers(0, 256, (side, side, 3), dtype=np.uint8)))
            place = folder / f"class{i % 2}"
            place.mkdir(parents=True, exist_ok=True)
            images[-1].save(place / f"{i}.png")
        return processor(images, return_tensors="pt")

    def loss(self, model, part):
        return torch.nn.functional.cross_entropy(model(**self.samples[part]).logits, torch.arange(SAMPLES) % 2)


KINDS = {"bert": Sentences, "vit": Pictures}  # any other family is one of decoders


def save(model, beside, root):
    """As save_pretrained writes by default."""
    model.save_pretrained(root / "base")
    beside.save_pretrained(root / "base")


def load(data, folder):
    return data.kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


# ---- ways of training: settings of sluice, the same model in PyTorch, and the tensors of the folder that stay as they are ----

LORA, ADAPTER = ["--lora", "--set", "lora.rank=4", "--set", "lora.alpha=6"], ["--adapter", "adapter"]


def all_of_it(data, root):
    return [], load(data, root / "base"), []


def sluices_adapter(data, root):
    """The first values are sluice's own, of a run that learns nothing. Parts of a fused matrix share one A there."""
    still = ["--set", "optimizer.params.lr=0", "--set", "optimizer.params.weight_decay=0", "--set", "steps=1"]
    sluice(root, "train", "c.json", "--json", *LORA, *still, "--out", "first")
    model, shared = peft.PeftModel.from_pretrained(load(data, root / "base"), root / "first", is_trainable=True), {}
    for name, module in model.named_modules():
        if hasattr(module, "lora_A"):
            values = module.lora_A["default"].weight
            key = (name.rsplit(".", 1)[0], values.detach().numpy().tobytes())
            module.lora_A["default"].weight = shared.setdefault(key, values)
    return LORA, model, []


def pefts_adapter(data, root):
    torch.manual_seed(5)
    model = peft.get_peft_model(load(data, root / "base"), peft.LoraConfig(r=4, lora_alpha=6, **data.lora))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter += torch.randn_like(parameter) * 0.2
    model.save_pretrained(root / "adapter")
    model = peft.PeftModel.from_pretrained(load(data, root / "base"), root / "adapter", is_trainable=True)
    return ADAPTER, model, []


def names_in_file(root):
    """For each name of a parameter in sluice those of its tensors in the folder: a fused matrix is several beside each other there."""
    with tempfile.TemporaryDirectory() as run:
        sluice(root, "train", "c.json", "--json", "--set", "steps=1", "--set", f"checkpoint.path={run}/run")
        manifest = json.loads(Path(f"{run}/run/step-1/manifest.json").read_text())
    ours = [tensor["name"] for tensor in manifest["tensors"] if tensor["kind"] == "weight"]
    left = list(safetensors.torch.load_file(root / "base" / "model.safetensors"))
    found = {name: [file for file in left if file == name or file.endswith("." + name)] for name in ours}
    left = [file for file in left if not any(file in files for files in found.values())]
    for name in (name for name, files in found.items() if not files):
        parent, _, leaf = name.rsplit(".", 2)
        found[name] = [file for file in left if (file.rsplit(".", 2)[0], file.rsplit(".", 2)[2]) == (parent, leaf)]
        left = [file for file in left if file not in found[name]]
    if left or not all(found.values()):
        raise RuntimeError(f"tensors without a parameter: {left}, parameters without a tensor: {[name for name in ours if not found[name]]}")
    return found


def part_frozen(draw):
    def way(data, root):
        names = names_in_file(root)
        dice = random.Random(f"{draw}: {', '.join(names)}")
        frozen = [name for name in names if dice.random() < 0.5]
        files = [file for name in frozen for file in names[name]]
        model, stored = load(data, root / "base"), safetensors.torch.load_file(root / "base" / "model.safetensors")
        wanted = {stored[file].numpy().tobytes() for file in files}  # names in a model and in its file may differ; values are random
        still = [parameter for parameter in model.parameters() if parameter.detach().numpy().tobytes() in wanted]
        if not 0 < len(still) == len(files) or len(frozen) == len(names):
            raise RuntimeError(f"{len(files)} tensors are frozen here, {len(still)} there; {len(frozen)} of {len(names)} parameters")
        for parameter in still:
            parameter.requires_grad_(False)
        return ["--set", f"freeze={json.dumps(frozen)}"], model, files
    return way


WAYS = {"full": all_of_it, "lora": sluices_adapter, "adapter": pefts_adapter,
        **{f"frozen {draw}": part_frozen(draw) for draw in range(1, DRAWS + 1)}}


# ---- a row ----

def train_reference(data, model):
    """In the mode of evaluation: nothing here has dropout or statistics."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer, losses = torch.optim.AdamW(trained, **ADAMW), []
    model.eval()
    for _ in range(STEPS):
        loss = data.loss(model, "train")
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def held_loss(data, model):
    with torch.no_grad():
        return data.loss(model.eval(), "held").item()


def apart(ours, theirs):
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))


def reopen(data, root, out):
    """What sluice wrote, as its owner opens it, and how many keys are wrong."""
    if (out / "adapter_config.json").exists():
        names = set(peft.utils.load_peft_weights(out, device="cpu"))
        model = peft.PeftModel.from_pretrained(load(data, root / "base"), out)
        return model, len(names ^ set(peft.get_peft_model_state_dict(model)))
    model, report = data.kind.from_pretrained(out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    return model, sum(len(report[key]) for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def rounded(tensor):
    """To bf16 as the weights of a run are: to nearest, halves away from zero."""
    return (((tensor.view(torch.int32) + 0x8000) >> 16) << 16).view(torch.float32)


def frozen_bits(root, out, files, precision):
    """How many frozen tensors are not what they were: in bf16, what a run in bf16 keeps of them."""
    if not files:
        return 0
    before, after = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (root / "base", out))
    kept = (lambda tensor: rounded(tensor.float())) if precision == "bf16" else (lambda tensor: tensor)
    return sum(not torch.equal(after[file].float(), kept(before[file])) for file in files)


def loss_of_eval(root, settings):
    return [event["loss"] for event in sluice(root, "eval", "c.json", "--json", *settings) if "loss" in event][-1]


class Family:
    """A family's folder and data, made when first asked for, and the reference of the newest way of training."""

    def __init__(self, name, root):
        self.name, self.root, self.data, self.way = name, root, None, None

    def prepare(self, way):
        root = self.root
        if self.data is None:
            self.data = data = KINDS.get(self.name, Decoder)(self.name, root)
            config = dict(train_batch_size=data.rows, train_micro_batch_size_per_gpu=data.rows // 2, steps=STEPS, threads=1, seed=3,
                          gradient_clipping=1.0, optimizer=dict(type="AdamW", params=ADAMW), **data.config)
            config["model"] = dict(config.get("model", {}), path="base")
            (root / "c.json").write_text(json.dumps(config) + "\n")
        if self.way != way:
            self.settings, model, self.frozen = WAYS[way](self.data, root)
            self.before = held_loss(self.data, model)
            self.losses = train_reference(self.data, model)
            self.after, self.model, self.way = held_loss(self.data, model), model, way

    def row(self, way, precision):
        """The columns, and those that are farther apart than they may be."""
        self.prepare(way)
        root, data, columns, wrong = self.root, self.data, [], []
        allowed = data.bf16 if precision == "bf16" else FP32
        settings = ["--set", f"bf16.enabled={'true' if precision == 'bf16' else 'false'}"]

        def column(what, good, said):
            columns.append(f"{what} {said}")
            wrong.extend([] if good else [what])

        begin = {"lora": ["--adapter", "first"], "adapter": self.settings}.get(way, [])
        off = apart([loss_of_eval(root, settings + begin)], [self.before])
        column("eval", off <= allowed, f"{off:.0e}")
        train = ["train", "c.json", "--json", *settings, *self.settings]
        one = sluice(root, *train, "--out", "trained")
        two = sluice(root, *train, "--out", "trained 2", "--ranks", 2, "--set", "zero_optimization.stage=3")
        off = apart([event["loss"] for event in one if event["event"] == "step"], self.losses)
        column("train", off <= allowed, f"{off:.0e}")
        same = one[-1]["weights_sha256"] == two[-1]["weights_sha256"]
        column("2 ranks", same, "same bits" if same else "OTHER BITS")
        opened, keys = reopen(data, root, root / "trained")
        off = apart([held_loss(data, opened)], [self.after])
        moved = frozen_bits(root, root / "trained", self.frozen, precision)
        column("written", off <= allowed and keys == 0 and moved == 0,
               f"{off:.0e}, {keys} keys wrong" + (f", {moved} of {len(self.frozen)} frozen moved" if self.frozen else ""))
        if data.generates:
            off = data.check_text(root, opened, settings + written(way))
            column("generate", off <= LIKELIEST[precision], "the same text" if off == 0 else f"{off:.0e} off")
        return columns, wrong

    def is_without(self, way, said):
        """Whether a way of training is one that this family does not have."""
        return self.data is not None and not self.data.generates and way in ("lora", "adapter") and "only language models" in said

    def verdict(self, way, precision):
        """(what is said, whether that is good)."""
        try:
            columns, wrong = self.row(way, precision)
            return "  ".join(columns) + "   " + ("DIFFER: " + ", ".join(wrong) if wrong else "agree"), not wrong
        except Refused as said:
            good = self.is_without(way, str(said))
            return f"{said}   {'refused' if good else 'DIFFER'}", good
        except Exception as error:  # one that fails must not hide the others
            return f"{type(error).__name__}: {error}   DIFFER", False


def written(way):
    """Settings that read what training wrote."""
    return ["--adapter", "trained"] if way in ("lora", "adapter") else ["--set", "model.path=trained"]


# ---- fixtures ----

def expected(family, way):
    """What transformers has for a way of training; what sluice says where it does not go with the family."""
    try:
        family.prepare(way)
        sluice(family.root, "plan", "c.json", *family.settings, "--quiet", "--json")
    except Refused as said:
        if not family.is_without(way, str(said)):
            raise
        return dict(way=way, settings=LORA if way == "lora" else ADAPTER, refused="only language models can have adapters")
    text = family.data.greedy(family.root, family.model) if family.data.generates else None
    return dict(way=way, settings=family.settings, written=written(way), before=family.before, losses=family.losses, after=family.after, text=text)


def record(name):
    """A folder as transformers writes it, with data, an adapter of PEFT's and what they compute; no path of this machine in it."""
    root = HERE.parent / "fixtures" / "matrix" / name
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    family = Family(name, root)
    ways = [expected(family, way) for way in WAYS]
    about = dict(prompt=PROMPT, tokens=TOKENS, fp32=FP32, bf16=family.data.bf16, ways=ways)
    (root / "expected.json").write_text(json.dumps(about, indent=1) + "\n")
    config = json.loads((root / "adapter" / "adapter_config.json").read_text())
    config.update(base_model_name_or_path="base", target_modules=sorted(config["target_modules"]))  # PEFT's order differs from run to run
    (root / "adapter" / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (root / "adapter" / "README.md").unlink()
    shutil.rmtree(root / "first", ignore_errors=True)
    for file in root.rglob("*.safetensors"):
        file.chmod(0o644)


def main():
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    words, good = sys.argv[2:], []
    if "--record" in words:
        for name in known_families():
            record(name)
        return 0
    for name in known_families():
        with tempfile.TemporaryDirectory() as root:
            family = Family(name, Path(root))
            for way, precision in ((way, precision) for way in WAYS for precision in ("fp32", "bf16")):
                title = f"{name} {way} {precision}"
                if words and not any(word in title for word in words):
                    continue
                said, agrees = family.verdict(way, precision)
                print(f"{title:26} {said}", flush=True)
                good.append(agrees)
    print(f"transformers {transformers.__version__}, PEFT {peft.__version__}: {sum(good)} of {len(good)} rows agree")
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
