"""Adapters against PEFT: folders that it wrote are trained and merged here, folders that sluice wrote open there.

    adapters.py BUILD [NAME...]   every case, or those whose names contain one of the words

Logits of base and adapter agree within 1e-4, ten losses of AdamW on the adapters within 1e-4 of themselves; the adapter that
is written afterwards opens in PEFT without a key too many or too few and has the logits that PEFT's own training ends with;
base and adapter merged into one folder have the logits of the two.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import families  # ends with 77 where packages are missing

try:
    import peft
    import torch
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

CASES = {  # a variant of families.py, and how PEFT adapts it
    "llama q and v": ("llama", dict(target_modules=["q_proj", "v_proj"])),
    "llama all, rslora": ("llama", dict(target_modules="all-linear", use_rslora=True)),
    "llama up, head whole": ("llama", dict(target_modules=["up_proj", "o_proj"], modules_to_save=["lm_head"])),
    "gpt2 all": ("gpt2", dict(target_modules="all-linear", fan_in_fan_out=True)),
    "gpt2 c_attn": ("gpt2", dict(target_modules=["c_attn", "mlp.c_proj"], fan_in_fan_out=True)),
    "qwen2 all": ("qwen2", dict(target_modules="all-linear")),
    "phi3 fused": ("phi3-partial-window", dict(target_modules=["qkv_proj", "gate_up_proj"])),
    "gemma2 k and down": ("gemma2", dict(target_modules=["k_proj", "down_proj"])),
}


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")


def make_adapter(folder, settings, out):
    torch.manual_seed(5)
    config = peft.LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **settings)
    model = peft.get_peft_model(load(folder), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter += torch.randn_like(parameter) * 0.2
    model.save_pretrained(out)


def forward(model, step):
    vocabulary = model.config.vocab_size
    tokens, targets, _ = families.batch(step, vocabulary, False)
    logits = model(input_ids=tokens, use_cache=False).logits
    return logits, torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), targets.reshape(-1), ignore_index=-100)


def reference(folder, adapter):
    model = peft.PeftModel.from_pretrained(load(folder), adapter, is_trainable=True)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    with torch.no_grad():
        before = forward(model, 1)[0].clone()
    losses = []
    for step in range(1, families.STEPS + 1):
        loss = forward(model, step)[1]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return before, losses, forward(model, 1)[0].clone()


def sluice(build, folder, adapter, out, count):
    command = [f"{build}/run_family", folder, str(families.BATCH), str(families.CONTEXT), str(families.STEPS), "0", adapter, out]
    done = subprocess.run([str(part) for part in command], capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode().strip())
    logits = torch.frombuffer(bytearray(done.stdout[:4 * count]), dtype=torch.float32)
    return logits, struct.unpack(f"<{families.STEPS}d", done.stdout[4 * count:])


def reopened(folder, adapter):
    """Logits of base and adapter in PEFT; a key too many or too few is an error."""
    names = set(peft.utils.load_peft_weights(adapter, device="cpu"))
    model = peft.PeftModel.from_pretrained(load(folder), adapter)
    wanted = set(peft.get_peft_model_state_dict(model))
    if names != wanted:
        raise RuntimeError(f"keys too many {sorted(names - wanted)[:3]}, too few {sorted(wanted - names)[:3]}")
    with torch.no_grad():
        return forward(model.eval(), 1)[0].clone()


def merged(build, folder, adapter, out):
    subprocess.run([f"{build}/sluice", "merge", folder, adapter, "-o", out, "--dtype", "fp32", "--quiet"], check=True)
    with torch.no_grad():
        return forward(load(out).eval(), 1)[0].clone()


def apart(a, b):
    return (a.reshape(-1) - b.reshape(-1)).abs().max().item()


def compare(build, name, root):
    variant, settings = CASES[name]
    folder, adapter, out = root / "base", root / "adapter", root / "out"
    families.make_folder(variant, folder)
    make_adapter(folder, settings, adapter)
    before, losses, after = reference(folder, adapter)
    ours, our_losses = sluice(build, folder, adapter, out, before.numel())
    results = [apart(ours, before), max(abs(a - b) / b for a, b in zip(our_losses, losses)), apart(reopened(folder, out), after),
               apart(merged(build, folder, adapter, root / "merged"), before)]
    good = all(result < 1e-4 for result in results)
    print(f"{name:22} logits {results[0]:.1e}   losses {results[1]:.1e}   reopened {results[2]:.1e}   merged {results[3]:.1e}   "
          f"{'agree' if good else 'DIFFER'}", flush=True)
    return good


def fused(build, root):
    """One adapter for q, k and v: what is written of it is three for PEFT, which compute the same there and here."""
    folder, out, unused = root / "base", root / "fused", root / "unused"
    families.make_folder("llama", folder)
    settings = {"data.type": "random_tokens", "data.samples": "64", "model.context": str(families.CONTEXT), "steps": "20",
                "train_batch_size": "2", "optimizer.type": "AdamW", "optimizer.params.lr": "0.05", "lora.rank": "4",
                "lora.targets": json.dumps(["*"]), "save": f"{out}/", "bf16.enabled": "false"}
    command = [f"{build}/sluice", "train", "--model", str(folder), "--quiet"]
    subprocess.run(command + [part for key, value in settings.items() for part in ("--set", f"{key}={value}")], check=True,
                   capture_output=True)
    theirs = reopened(folder, out)
    result = apart(sluice(build, folder, out, unused, theirs.numel())[0], theirs)
    moved = apart(theirs, forward(load(folder), 1)[0].detach())
    good = result < 1e-4 < moved
    print(f"{'llama, one A for qkv':22} logits {result:.1e}, {moved:.1e} from the base   {'agree' if good else 'DIFFER'}")
    return good


def main():
    build, words = sys.argv[1], sys.argv[2:]
    good = True
    for name in CASES:
        if not words or any(word in name for word in words):
            with tempfile.TemporaryDirectory() as root:
                good = compare(build, name, Path(root)) and good
    with tempfile.TemporaryDirectory() as root:
        good = fused(build, Path(root)) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
