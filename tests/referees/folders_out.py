"""Folders that sluice writes, opened by transformers: no key missing or unexpected, the same loss on the same text (so the
same logits), the same tokens; and folders that transformers wrote, trained by sluice, keep their other files. A chat template that
was named by hand goes with the model, the adapter and the merged model, and writes there what sluice writes.

    folders_out.py BUILD
"""
import filecmp
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
BUILD = Path(sys.argv[1]).resolve()
CONTEXT = 32
TEXT = (Path(__file__).resolve().parents[2] / "README.md").read_text()[:6000]
failures = 0

GPT2 = {"type": "gpt2", "layers": 2, "heads": 2, "width": 32, "context": CONTEXT}
LLAMA = {"type": "llama", "layers": 2, "heads": 4, "kv_heads": 2, "width": 32, "feed_forward": 48, "context": CONTEXT}
MODELS = {
    "gpt2 of characters": {**GPT2, "vocabulary": "characters"},
    "gpt2 of bytes": {**GPT2, "vocabulary": "bytes"},
    "llama of bytes": {**LLAMA, "vocabulary": "bytes"},
    "llama with a head": {**LLAMA, "vocabulary": "characters", "tie_word_embeddings": False},
}


def check(what, good, note=""):
    global failures
    failures += not good
    if not good:
        print(f"FAILED {what}: {note}")


def sluice(folder, *arguments):
    done = subprocess.run([str(BUILD / "sluice"), *map(str, arguments)], cwd=folder, capture_output=True, text=True)
    check(" ".join(map(str, arguments)), done.returncode == 0, done.stderr)
    return done.stdout


def write_config(folder, model, **more):
    config = {"model": model, "data": {"type": "text", "path": "text.txt", "validation": 0.2}, "steps": 4, "seed": 3,
              "train_batch_size": 4, "threads": 1, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, **more}
    (folder / "c.json").write_text(json.dumps(config))


def open_folder(path, what):
    model, info = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, dtype=torch.float32)
    keys = {k: sorted(v) for k, v in info.items() if k in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    check(f"{what}: keys", not any(keys.values()), keys)
    return model.eval()


def held_out_loss(model, ids, train):
    """As sluice evaluates: windows of the held-out part, each of CONTEXT targets, the last one shorter."""
    total, count = 0.0, 0
    with torch.no_grad():
        for start in range(train, len(ids) - 1, CONTEXT):
            row = torch.tensor([ids[start:start + CONTEXT + 1]])
            logits = model(row[:, :-1]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, row[0, 1:], reduction="sum").item()
            count += row.shape[1] - 1
    return total / count


def compare_loss(folder, out, what, ids, tolerance=2e-6):
    ours = json.loads(sluice(folder, "eval", "c.json", "--weights", out, "--json"))["loss"]
    train = len(ids) - math.floor(len(ids) * 0.2)
    theirs = held_out_loss(open_folder(folder / out, what), ids, train)
    check(f"{what}: loss", abs(ours - theirs) < tolerance * max(1, abs(ours)), f"sluice {ours}, transformers {theirs}")
    print(f"  {what}: sluice {ours:.7f}, transformers {theirs:.7f}")


def from_nothing(name, model):
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "text.txt").write_text(TEXT)
        write_config(folder, model, checkpoint={"path": "run"})
        sluice(folder, "train", "c.json", "--quiet", "--set", "save=one/")
        sluice(folder, "train", "c.json", "--quiet", "--set", "checkpoint.path=", "--set", "save=many/", "--set", "save_shard_size=9000")
        sluice(folder, "export", "run", "--quiet", "-o", "exported/", "--shard-size", "20000")
        sluice(folder, "export", "run", "--quiet", "-o", "half/", "--dtype", "bf16")
        tokenizer = AutoTokenizer.from_pretrained(folder / "one")
        ids = tokenizer.encode(TEXT, add_special_tokens=False)
        expected = list(TEXT.encode()) if model["vocabulary"] == "bytes" else [sorted(set(TEXT)).index(c) for c in TEXT]
        check(f"{name}: ids", ids == expected)
        check(f"{name}: text", tokenizer.decode(ids) == TEXT)
        for out in ("one", "many", "exported"):
            compare_loss(folder, out, f"{name}, {out}", ids)
        compare_loss(folder, "half", f"{name}, half", ids)
        check(f"{name}: shards", len(list((folder / "many").glob("model-0*"))) > 1)
        kept = json.loads((folder / "half" / "config.json").read_text())
        check(f"{name}: type", kept["torch_dtype"] == kept["dtype"] == "bfloat16")


def from_folder(name, config, model, shard):
    """A folder of transformers, trained on by sluice: what is beside the weights stays."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        torch.manual_seed(1)
        (folder / "text.txt").write_text("".join(c for c in TEXT if ord(c) < 128))
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder / "in", max_shard_size=shard)
        Tokenizer(BPE({chr(i): i for i in range(128)}, [])).save(str(folder / "in" / "tokenizer.json"))
        others = {"tokenizer_config.json": '{"tokenizer_class": "PreTrainedTokenizerFast"}', "chat_template.jinja": "{{ x }}\n",
                  "special_tokens_map.json": "{}", "tokenizer.model": "\0\1binary", "LICENSE": "yes\n"}
        for other, text in others.items():
            (folder / "in" / other).write_text(text)
        changed = json.loads((folder / "in" / "config.json").read_text()) | {"my_own_key": [1, 2]}
        (folder / "in" / "config.json").write_text(json.dumps(changed))
        write_config(folder, model, load="in")
        sluice(folder, "train", "c.json", "--quiet", "--set", "save=same/", "--set", "optimizer.params.lr=0",
               "--set", "optimizer.params.weight_decay=0", "--set", "save_shard_size=20000")
        theirs = open_folder(folder / "in", name).state_dict()
        ours = open_folder(folder / "same", name).state_dict()
        check(f"{name}: weights", theirs.keys() == ours.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours))
        for other in [*others, "tokenizer.json", "generation_config.json"]:
            check(f"{name}: {other}", filecmp.cmp(folder / "in" / other, folder / "same" / other, shallow=False))
        kept = json.loads((folder / "same" / "config.json").read_text())
        check(f"{name}: own key", kept.get("my_own_key") == [1, 2])
        sluice(folder, "train", "c.json", "--quiet", "--set", "save=out/")
        ids = [ord(c) for c in (folder / "text.txt").read_text()]
        compare_loss(folder, "out", name, ids)


def through_path(family):
    """Every family's names and layout: what comes in by model.path goes out the same, whole and in shards, fp32 and bf16."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
             "intermediate_size": 48, "max_position_embeddings": CONTEXT, "pad_token_id": 0, "vocab_size": 64, "bos_token_id": 1,
             "eos_token_id": 2, "attention_dropout": 0.0}
    for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            torch.manual_seed(2)
            config = transformers.AutoConfig.for_model(family, **sizes)
            model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
            model.save_pretrained(folder / "in", max_shard_size="20KB")
            write_config(folder, {"path": "in", "context": 8}, data={"type": "random_tokens", "samples": 8}, steps=1)
            still = ["--quiet", "--set", "optimizer.params.lr=0", "--set", "optimizer.params.weight_decay=0", "--set", f"save_dtype={name}"]
            sluice(folder, "train", "c.json", *still, "--set", "save=whole/")
            sluice(folder, "train", "c.json", *still, "--set", "save=shards/", "--set", "save_shard_size=20000", "--set", "checkpoint.path=run")
            sluice(folder, "export", "run", "--quiet", "-o", "exported/", "--dtype", name)
            theirs = open_folder(folder / "in", family).state_dict()
            for out in ("whole", "shards", "exported"):
                ours = open_folder(folder / out, f"{family}, {name}, {out}").state_dict()
                check(f"{family}, {name}, {out}: weights", theirs.keys() == ours.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours))
    print(f"  {family}: weights as they were, fp32 and bf16, whole, in shards and exported")


TEMPLATES = ["llama2", "llama3", "llama3.1", "chatml", "qwen2", "qwen2.5", "qwen3", "qwen3-instruct", "mistral-v1-old", "mistral-v1",
             "mistral-v3", "mistral-tekken", "gemma", "gemma3", "phi3", "phi3.5", "phi3-old", "zephyr", "alpaca"]
TURNS = [("user", "what is it? "), ("assistant", "<think>\nwell\n</think>\n\n it is water"), ("user", " and this?\n"), ("assistant", "air ")]


def rendered(tokenizer, template, date, prompts):
    """What sluice writes of the conversation."""
    messages = [{"role": role, "content": text} for role, text in (TURNS[:3] if prompts else TURNS)]
    case = {"template": template, "bos": tokenizer.bos_token, "eos": tokenizer.eos_token, "date": date, "prompts": prompts, "messages": messages}
    done = subprocess.run([str(BUILD / "render_chats")], input=json.dumps(case) + "\n", capture_output=True, text=True, check=True)
    return messages, json.loads(done.stdout).get("text")


def check_template(path, template, date=None):
    tokenizer = AutoTokenizer.from_pretrained(path)
    for prompts in (False, True):
        messages, ours = rendered(tokenizer, template, date, prompts)
        theirs = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompts)
        check(f"{path.name}: {template}", ours is not None and theirs == ours, f"sluice {ours!r}, transformers {theirs!r}")


def chat_templates():
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        chat = [{"messages": [{"role": role, "content": text} for role, text in TURNS[:k]]} for k in (2, 4)]
        (folder / "chat.jsonl").write_text("".join(json.dumps(line) + "\n" for line in chat))
        (folder / "text.txt").write_text("it is water and it is air and what is it but water and air")
        tokenizer = Path(__file__).resolve().parents[1] / "fixtures" / "chat_tokenizer" / "tokenizer.json"
        write_config(folder, {**LLAMA, "context": 64}, data={"type": "text", "path": "text.txt", "tokenizer": str(tokenizer)}, save="base/")
        sluice(folder, "train", "c.json", "--quiet", "--set", "model.context=8")  # the text is short
        train = ["train", "--model", "base", "--data", "chat.jsonl", "--quiet", "--set", "steps=1", "--set", "train_batch_size=2", "--set", "model.context=128"]
        for template in TEMPLATES:
            sluice(folder, *train, "--set", f"data.template={template}", "--out", template)
            check_template(folder / template, template)
        dated = ["--set", "data.template=llama3.1", "--set", "data.template_date=03 Mar 2025"]
        sluice(folder, *train, *dated, "--out", "dated")
        check_template(folder / "dated", "llama3.1", "03 Mar 2025")
        for template in ("chatml", "zephyr", "qwen3"):
            sluice(folder, *train, "--lora", "--set", f"data.template={template}", "--out", f"{template}-lora/")
            sluice(folder, "merge", "base", f"{template}-lora", "-o", f"{template}-merged")
            check_template(folder / f"{template}-lora", template)
            check_template(folder / f"{template}-merged", template)
    print(f"  chat templates: {len(TEMPLATES)} saved with models, 3 with adapters and merged models")


for name, model in MODELS.items():
    from_nothing(name, model)
chat_templates()
small = {"vocab_size": 256, "bos_token_id": 1, "eos_token_id": 2, "attention_dropout": 0.0}
gpt2 = GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=CONTEXT, **small)
llama = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                    max_position_embeddings=CONTEXT, rope_theta=500000.0, rms_norm_eps=1e-5, tie_word_embeddings=False, **small)
for shard in ("20KB", "5GB"):
    from_folder(f"gpt2 from transformers, {shard}", gpt2, {**GPT2, "vocabulary": "bytes"}, shard)
    from_folder(f"llama from transformers, {shard}", llama, {**LLAMA, "vocabulary": "bytes", "tie_word_embeddings": False}, shard)
for family in ("mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text"):
    through_path(family)
print(f"transformers {transformers.__version__}: {failures} failures")
sys.exit(failures > 0)
