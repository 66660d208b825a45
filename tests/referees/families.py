"""Families of decoders against transformers: folders it wrote with random weights, logits and steps of training in fp32.

    families.py BUILD [NAME...]   every family and variant, or those whose names contain one of the words
    families.py BUILD --record    writes tests/fixtures/families for the test that needs no Python

Logits agree within 1e-4, ten losses of AdamW within 1e-4 of themselves. What sluice writes, from such folders and of models from
scratch, opens in transformers without a key too many or too few, and has the same logits there.
"""
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

transformers.utils.logging.disable_progress_bar()
HERE = Path(__file__).resolve().parent
BATCH, CONTEXT, STEPS = 2, 14, 10
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=12,
             vocab_size=32, max_position_embeddings=32, bos_token_id=1, eos_token_id=2,
             pad_token_id=None)  # transformers gives the embedding of a padding token no gradient
GPT2 = dict(n_embd=16, n_layer=2, n_head=4, n_positions=14, vocab_size=32, bos_token_id=1, eos_token_id=2)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, rope_theta=1e4)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8, rope_theta=1e4)
G3_ROPE = {"full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1e6),
           "sliding_attention": dict(rope_type="default", rope_theta=1e4)}
G3_LAYERS = ["sliding_attention", "full_attention"]


def of(family, **more):
    return family, {**(GPT2 if family == "gpt2" else SIZES), **more}


# name: (family, settings), packed
VARIANTS = {
    "gpt2": of("gpt2"),
    "gpt2-untied-inner": of("gpt2", tie_word_embeddings=False, n_inner=24, n_positions=20, activation_function="gelu"),
    "gpt2-unscaled-relu": of("gpt2", scale_attn_weights=False, activation_function="relu"),
    "gpt2-packed": of("gpt2", n_positions=20),
    "llama": of("llama"),
    "llama-tied-gqa1": of("llama", tie_word_embeddings=True, num_key_value_heads=1, rms_norm_eps=1e-5),
    "llama-biases-head8": of("llama", attention_bias=True, mlp_bias=True, head_dim=8),
    "llama-linear": of("llama", rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=5e5)),
    "llama-dynamic": of("llama", max_position_embeddings=8, rope_parameters=dict(rope_type="dynamic", factor=2.0, rope_theta=1e4)),
    "llama-llama3": of("llama", rope_parameters=LLAMA3),
    "llama-yarn": of("llama", rope_parameters=YARN, head_dim=16),
    "llama-yarn-mscale": of("llama", rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=1.3, truncate=False), head_dim=16),
    "llama-yarn-factor": of("llama", rope_parameters=dict(YARN, attention_factor=0.8, beta_fast=16.0, beta_slow=2.0)),
    "llama-gelu": of("llama", hidden_act="gelu_pytorch_tanh"),
    "llama-packed": of("llama", rope_parameters=LLAMA3),
    "mistral": of("mistral", sliding_window=None),
    "mistral-window": of("mistral", sliding_window=5, head_dim=6),
    "mistral-window-packed": of("mistral", sliding_window=3),
    "qwen2": of("qwen2"),
    "qwen2-window-yarn": of("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1, rope_parameters=YARN),
    "qwen2-tied": of("qwen2", tie_word_embeddings=True),
    "qwen3": of("qwen3", head_dim=8),
    "qwen3-biases-tied": of("qwen3", head_dim=12, attention_bias=True, tie_word_embeddings=True),
    "qwen3-packed": of("qwen3", head_dim=8),
    "phi3": of("phi3"),
    "phi3-partial-window": of("phi3", num_attention_heads=2, num_key_value_heads=1, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5),
                              sliding_window=6),
    "gemma": of("gemma", head_dim=8),
    "gemma-untied-mqa": of("gemma", head_dim=8, num_key_value_heads=1, tie_word_embeddings=False, attention_bias=True),
    "gemma2": of("gemma2", head_dim=8, sliding_window=4, query_pre_attn_scalar=12, attn_logit_softcapping=2.0,
                 final_logit_softcapping=3.0),
    "gemma2-uncapped": of("gemma2", head_dim=8, sliding_window=5, attn_logit_softcapping=None, final_logit_softcapping=None),
    "gemma2-packed": of("gemma2", head_dim=8, sliding_window=4, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma3_text": of("gemma3_text", head_dim=8, sliding_window=4, layer_types=G3_LAYERS, rope_parameters=G3_ROPE,
                      query_pre_attn_scalar=10),
    "gemma3_text-capped": of("gemma3_text", head_dim=8, sliding_window=4, layer_types=G3_LAYERS, final_logit_softcapping=3.0),
    "gemma3_text-packed": of("gemma3_text", head_dim=8, sliding_window=3, layer_types=G3_LAYERS),
}
# One of each family and trait is kept as a fixture.
RECORDED = ["gpt2", "gpt2-untied-inner", "gpt2-packed", "llama", "llama-biases-head8", "llama-dynamic", "llama-llama3",
            "llama-yarn-mscale", "mistral-window", "mistral-window-packed", "qwen2", "qwen3-biases-tied", "phi3-partial-window",
            "gemma", "gemma2", "gemma2-packed", "gemma3_text"]


def make_model(family, settings, seed, kind=AutoModelForCausalLM):
    """Large random weights, so that every part of the model matters, and no dropout."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **settings)
    for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    model = kind.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) * (0.3 if parameter.dim() > 1 else 0.15)
    return model


def make_folder(name, folder):
    """A folder as transformers writes it, in bf16."""
    make_model(*VARIANTS[name], sum(name.encode())).to(torch.bfloat16).save_pretrained(folder)


def lcg(state):
    return (state * 1664525 + 1013904223) & 0xFFFFFFFF


def batch(step, vocabulary, packed):
    """As tests/support/folder_run.h."""
    tokens, targets, positions = ([[0] * CONTEXT for _ in range(BATCH)] for _ in range(3))
    state = lcg(step)
    for row in range(BATCH):
        begin = 0
        for t in range(CONTEXT + 1):
            first = packed and t % 5 == (row + 1) % 5
            state = lcg(state)
            token = (state >> 8) % vocabulary
            if first:
                begin = t
            if t > 0:
                targets[row][t - 1] = -100 if first else token
            if t < CONTEXT:
                tokens[row][t] = token
                positions[row][t] = t - begin
    return torch.tensor(tokens), torch.tensor(targets), torch.tensor(positions)


def reference(folder, packed):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").train()
    vocabulary = model.config.vocab_size
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)

    def forward(step):
        tokens, targets, positions = batch(step, vocabulary, packed)
        more = dict(position_ids=positions) if packed else {}
        logits = model(input_ids=tokens, use_cache=False, **more).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), targets.reshape(-1), ignore_index=-100)
        return logits, loss

    with torch.no_grad():
        logits = forward(1)[0].detach().clone()
    losses = []
    for step in range(1, STEPS + 1):
        loss = forward(step)[1]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return logits, losses


DROPOUTS = [(0.0, 0.4), (0.3, 0.0), (0.1, 0.3)]  # on the residual stream, behind the embedding
DROPPED, MASKS = 300, 20


def dropped(folder):
    """How far dropout moves losses from those without it: the root of the mean square over batches and many masks, and the deviation of
    that over the masks of a batch each. Its mean is small beside it."""
    found = []
    for stream, embedding in DROPOUTS:
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, resid_pdrop=stream, embd_pdrop=embedding, attn_pdrop=0.0)
        squares = torch.zeros(MASKS, dtype=torch.float64)

        def losses(training, step, repeats):
            tokens, targets, _ = batch(step, model.config.vocab_size, False)
            logits = model.train(training)(input_ids=tokens.repeat(repeats, 1), use_cache=False).logits
            all_losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets.repeat(repeats, 1), reduction="none")
            return all_losses.double().reshape(repeats, -1).mean(1)

        with torch.no_grad():
            for step in range(1, DROPPED + 1):
                squares += (losses(True, step, MASKS) - losses(False, step, 1)) ** 2 / DROPPED
        moved = squares.sqrt()
        found.append(dict(stream=stream, embedding=embedding, steps=DROPPED, moved=moved.mean().item(), deviation=moved.std().item()))
    return found


def sluice(build, folder, packed, count):
    command = [f"{build}/run_family", str(folder), str(BATCH), str(CONTEXT), str(STEPS), str(int(packed))]
    done = subprocess.run(command, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode().strip())
    logits = torch.frombuffer(bytearray(done.stdout[:4 * count]), dtype=torch.float32)
    return logits, struct.unpack(f"<{STEPS}d", done.stdout[4 * count:])


def compare(build, name, folder):
    packed = "packed" in name
    make_folder(name, folder)
    logits, losses = reference(folder, packed)
    ours, our_losses = sluice(build, folder, packed, logits.numel())
    apart = (ours - logits.reshape(-1)).abs().max().item()
    off = max(abs(a - b) / b for a, b in zip(our_losses, losses))
    good = apart < 1e-4 and off < 1e-4
    print(f"{name:24} logits {apart:.1e} of {logits.abs().max().item():6.2f}   losses {off:.1e}, {losses[0]:.3f} to {losses[-1]:.3f}"
          f"   {'agree' if good else 'DIFFER'}", flush=True)
    return good


def train(build, out, *settings):
    """One step of sluice on random tokens, saved as a folder."""
    command = [f"{build}/sluice", "train", "--quiet"]
    for setting in ("data.type=random_tokens", "data.samples=8", "steps=1", f"model.context={CONTEXT}", "threads=1",
                    f"save={out}/") + settings:
        command += ["--set", setting]
    if not any(setting.startswith("model.path=") for setting in settings):
        config = Path(out).parent / "empty.json"
        config.write_text('{"optimizer": {"type": "AdamW"}, "train_batch_size": 2}')
        command.insert(2, str(config))
    else:
        command[2:2] = ["--model", next(setting for setting in settings if setting.startswith("model.path="))[11:]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())


def check_written(build, name, out):
    """transformers opens what sluice wrote, without a key too many or too few, and computes the same."""
    model, report = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    with torch.no_grad():
        logits = model.eval()(input_ids=batch(1, model.config.vocab_size, False)[0], use_cache=False).logits
    ours, _ = sluice(build, out, False, logits.numel())
    apart = (ours - logits.reshape(-1)).abs().max().item()
    keys = [*report["missing_keys"], *report["unexpected_keys"]]
    good = apart < 1e-4 and not keys
    print(f"{name:32} written; keys missing or unexpected: {len(keys)}, logits {apart:.1e}   {'agree' if good else 'DIFFER'}", flush=True)
    return good


def written_from_folder(build, name, folder):
    make_folder(name, f"{folder}/in")
    train(build, f"{folder}/out", f"model.path={folder}/in")
    return check_written(build, name, f"{folder}/out")


def written_from_scratch(build, family, folder):
    sizes = ["model.layers=2", "model.heads=4", "model.width=16", "model.vocabulary=32"]
    if family != "gpt2":
        sizes += ["model.kv_heads=2", "model.head_width=8", "model.feed_forward=12"]
    if family not in ("gpt2", "llama", "gemma"):
        sizes.append("model.sliding_window=5")
    train(build, f"{folder}/out", f"model.type={family}", *sizes)
    return check_written(build, f"{family} from scratch", f"{folder}/out")


def record(name):
    folder = HERE.parent / "fixtures" / "families" / name
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(name, folder)
    logits, losses = reference(folder, "packed" in name)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)
    row = [round(x, 6) for x in logits[-1, -1].tolist()]
    first = [round(x, 6) for x in logits[0, 5].tolist()]
    expected = dict(batch=BATCH, context=CONTEXT, packed="packed" in name, row_0_at_5=first, last_row_at_last=row, losses=losses)
    if name == "gpt2":
        expected["dropout"] = dropped(folder)
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def main():
    build, words = sys.argv[1], sys.argv[2:]
    transformers.logging.set_verbosity_error()
    if "--record" in words:
        for name in RECORDED:
            record(name)
        return 0
    families = dict.fromkeys(family for family, _ in VARIANTS.values())
    checks = [(compare, name) for name in VARIANTS]
    checks += [(written_from_folder, name) for name in RECORDED] + [(written_from_scratch, family) for family in families]
    checks = [(check, name) for check, name in checks if not words or any(word in name for word in words)]
    failed = 0
    for check, name in checks:
        with tempfile.TemporaryDirectory() as folder:
            try:
                good = check(build, name, folder)
            except Exception as error:  # one that fails must not hide the others
                print(f"{name:24} {type(error).__name__}: {error}", flush=True)
                good = False
        failed += not good
    print(f"transformers {transformers.__version__}: {len(checks) - failed} of {len(checks)} agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
