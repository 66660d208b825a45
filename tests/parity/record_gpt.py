"""Records the training losses of a small GPT in PyTorch, as the reference for tests/train/parity_test.c.

Everything the run needs is a formula over integers that the C test repeats (see README.md beside this file): no weight file and no
random generator of either side takes part. Run it from any folder; it overwrites gpt_losses.json beside itself:

    python record_gpt.py
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, BATCH, STEPS = 2, 4, 64, 32, 65, 4, 50
LR, BETAS, EPSILON, WEIGHT_DECAY, CLIP, NORM_EPSILON = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0, 1e-5


def lcg(state):
    return (state * 1664525 + 1013904223) & 0xFFFFFFFF


def fnv1a(text):
    """The start of a parameter's stream, so that its values depend on its name alone."""
    state = 2166136261
    for byte in text.encode():
        state = ((state ^ byte) * 16777619) & 0xFFFFFFFF
    return state


def parameter_shapes():
    shapes = {"wte.weight": (VOCABULARY, WIDTH), "wpe.weight": (CONTEXT, WIDTH)}
    for n in range(LAYERS):
        block = f"h.{n}."
        for norm in ("ln_1", "ln_2"):
            shapes[f"{block}{norm}.weight"] = shapes[f"{block}{norm}.bias"] = (WIDTH,)
        projections = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
        for name, (rows, columns) in projections.items():
            shapes[f"{block}{name}.weight"] = (rows * WIDTH, columns * WIDTH)
            shapes[f"{block}{name}.bias"] = (columns * WIDTH,)
    shapes["ln_f.weight"] = shapes["ln_f.bias"] = (WIDTH,)
    return shapes


def first_values(name, shape):
    """Uniform in +-0.05 in doubles, plus 1 for the weights of norms, rounded once to float."""
    count = math.prod(shape)
    centre = 1.0 if ("ln_" in name or "norm" in name) and name.endswith(".weight") else 0.0
    state, values = fnv1a(name), []
    for _ in range(count):
        state = lcg(state)
        values.append(centre + ((state >> 8) / 16777216.0 - 0.5) * 0.1)
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(shape)


def batch_tokens(step):
    """Rows of CONTEXT + 1 tokens: the next one is 5 times the last plus 3, and now and then one more, modulo the vocabulary."""
    state, rows = lcg(step), []
    for _ in range(BATCH):
        state = lcg(state)
        row = [(state >> 8) % VOCABULARY]
        for _ in range(CONTEXT):
            state = lcg(state)
            row.append((row[-1] * 5 + 3 + ((state >> 8) % 4 == 0)) % VOCABULARY)
        rows.append(row)
    return torch.tensor(rows)


def block(x, p, name):
    batch, time, width = x.shape
    h = F.layer_norm(x, (width,), p[f"{name}.ln_1.weight"], p[f"{name}.ln_1.bias"], NORM_EPSILON)
    h = h @ p[f"{name}.attn.c_attn.weight"] + p[f"{name}.attn.c_attn.bias"]
    q, k, v = (part.view(batch, time, HEADS, width // HEADS).transpose(1, 2) for part in h.split(width, dim=2))
    scores = (q @ k.transpose(2, 3)) / math.sqrt(width // HEADS)
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    h = (scores.masked_fill(future, float("-inf")).softmax(dim=3) @ v).transpose(1, 2).reshape(batch, time, width)
    x = x + h @ p[f"{name}.attn.c_proj.weight"] + p[f"{name}.attn.c_proj.bias"]
    h = F.layer_norm(x, (width,), p[f"{name}.ln_2.weight"], p[f"{name}.ln_2.bias"], NORM_EPSILON)
    h = F.gelu(h @ p[f"{name}.mlp.c_fc.weight"] + p[f"{name}.mlp.c_fc.bias"], approximate="tanh")
    return x + h @ p[f"{name}.mlp.c_proj.weight"] + p[f"{name}.mlp.c_proj.bias"]


def loss_of(p, tokens):
    x = F.embedding(tokens[:, :-1], p["wte.weight"]) + p["wpe.weight"]
    for n in range(LAYERS):
        x = block(x, p, f"h.{n}")
    x = F.layer_norm(x, (WIDTH,), p["ln_f.weight"], p["ln_f.bias"], NORM_EPSILON)
    return F.cross_entropy((x @ p["wte.weight"].T).flatten(0, 1), tokens[:, 1:].flatten())


def main():
    torch.manual_seed(0)
    p = {name: first_values(name, shape).requires_grad_() for name, shape in parameter_shapes().items()}
    optimizer = torch.optim.AdamW(p.values(), lr=LR, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY)
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        loss = loss_of(p, batch_tokens(step))
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(p.values(), CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    record = {
        "model": {"layers": LAYERS, "heads": HEADS, "width": WIDTH, "context": CONTEXT, "vocabulary": VOCABULARY, "batch": BATCH},
        "optimizer": {"lr": LR, "betas": BETAS, "epsilon": EPSILON, "weight_decay": WEIGHT_DECAY, "clip": CLIP},
        "parameters": sum(v.numel() for v in p.values()),
        "torch": torch.__version__,
        "losses": losses,
        "gradient_norms": norms,
    }
    path = pathlib.Path(__file__).with_name("gpt_losses.json")
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{path.name}: {STEPS} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
