"""Records the training losses of a small Llama in PyTorch, as the reference for tests/train/llama_parity_test.c.

The formulas for first weights and tokens are those of record_gpt.py. Parameters have sluice's names: the projections of query, key and
value are one matrix, those of gate and value of the feed-forward part another. Run it from any folder; it overwrites llama_losses.json
beside itself:

    python record_llama.py
"""

import json
import pathlib

import torch
import torch.nn.functional as F

from record_gpt import batch_tokens, first_values

LAYERS, HEADS, KV_HEADS, WIDTH, FEED_FORWARD, CONTEXT, VOCABULARY, BATCH, STEPS = 2, 4, 2, 64, 96, 32, 65, 4, 20
LR, BETAS, EPSILON, WEIGHT_DECAY, CLIP, NORM_EPSILON, THETA = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0, 1e-5, 500000.0
HEAD = WIDTH // HEADS


def parameter_shapes(tied):
    shapes = {"model.embed_tokens.weight": (VOCABULARY, WIDTH)}
    for n in range(LAYERS):
        block = f"model.layers.{n}."
        shapes[block + "input_layernorm.weight"] = shapes[block + "post_attention_layernorm.weight"] = (WIDTH,)
        shapes[block + "self_attn.qkv_proj.weight"] = ((HEADS + 2 * KV_HEADS) * HEAD, WIDTH)
        shapes[block + "self_attn.o_proj.weight"] = (WIDTH, WIDTH)
        shapes[block + "mlp.gate_up_proj.weight"] = (2 * FEED_FORWARD, WIDTH)
        shapes[block + "mlp.down_proj.weight"] = (WIDTH, FEED_FORWARD)
    shapes["model.norm.weight"] = (WIDTH,)
    if not tied:
        shapes["lm_head.weight"] = (VOCABULARY, WIDTH)
    return shapes


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + NORM_EPSILON) * weight


def rotate(x):
    """[batch, heads, time, HEAD]; elements half a head apart turn together."""
    steps = torch.arange(x.shape[2], dtype=torch.float32)[:, None]
    angle = steps * THETA ** (-torch.arange(0, HEAD, 2, dtype=torch.float32) / HEAD)
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()), dim=-1)


def attend(x, p, name):
    batch, time, _ = x.shape
    parts = (x @ p[f"{name}.self_attn.qkv_proj.weight"].T).split((HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD), dim=2)
    q, k, v = (part.view(batch, time, -1, HEAD).transpose(1, 2) for part in parts)
    q, k = rotate(q), rotate(k)
    k, v = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (k, v))
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(2, 3) / HEAD**0.5).masked_fill(future, float("-inf"))
    h = (scores.softmax(dim=3) @ v).transpose(1, 2).reshape(batch, time, WIDTH)
    return h @ p[f"{name}.self_attn.o_proj.weight"].T


def block(x, p, name):
    x = x + attend(rms_norm(x, p[f"{name}.input_layernorm.weight"]), p, name)
    h = rms_norm(x, p[f"{name}.post_attention_layernorm.weight"]) @ p[f"{name}.mlp.gate_up_proj.weight"].T
    gate, value = h.split(FEED_FORWARD, dim=2)
    return x + (F.silu(gate) * value) @ p[f"{name}.mlp.down_proj.weight"].T


def loss_of(p, tokens):
    table = p["model.embed_tokens.weight"]
    x = F.embedding(tokens[:, :-1], table)
    for n in range(LAYERS):
        x = block(x, p, f"model.layers.{n}")
    x = rms_norm(x, p["model.norm.weight"])
    return F.cross_entropy((x @ p.get("lm_head.weight", table).T).flatten(0, 1), tokens[:, 1:].flatten())


def train(tied):
    p = {name: first_values(name, shape).requires_grad_() for name, shape in parameter_shapes(tied).items()}
    optimizer = torch.optim.AdamW(p.values(), lr=LR, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY)
    losses, norms = [], []
    for step in range(1, STEPS + 1):
        loss = loss_of(p, batch_tokens(step))
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(p.values(), CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    print(f"{'tied' if tied else 'untied'}: {STEPS} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}")
    return {"parameters": sum(v.numel() for v in p.values()), "losses": losses, "gradient_norms": norms}


def main():
    record = {
        "model": {"layers": LAYERS, "heads": HEADS, "kv_heads": KV_HEADS, "width": WIDTH, "feed_forward": FEED_FORWARD,
                  "context": CONTEXT, "vocabulary": VOCABULARY, "batch": BATCH, "rope_theta": THETA},
        "optimizer": {"lr": LR, "betas": BETAS, "epsilon": EPSILON, "weight_decay": WEIGHT_DECAY, "clip": CLIP},
        "torch": torch.__version__,
        "tied": train(True),
        "untied": train(False),
    }
    pathlib.Path(__file__).with_name("llama_losses.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
