"""A training step of the GPT of gpt.json in PyTorch, taking turns with sluice's.

    python torch_gpt.py BENCH_TRAIN_STEP GPT.JSON

Same model (pre-norm blocks, tanh GELU, tied head, biases), same batch, fp32, AdamW (fused where this PyTorch has it for
the CPU), all cores. PyTorch runs eagerly and compiled; the better one counts. Every round runs 3 steps of each; the first
round warms up; the figures are medians over the other 5.
"""
import json
import math
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

ROUNDS, STEPS, VOCABULARY = 5, 3, 65


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


class Torch:
    """One way to run the step in PyTorch; round() returns the seconds a step takes."""

    def __init__(self, config, compiled):
        torch.manual_seed(1)
        model, params = config["model"], config["optimizer"]["params"]
        self.model = GPT(model["layers"], model["heads"], model["width"], model["context"])
        arguments = dict(lr=params["lr"], betas=tuple(params["betas"]), weight_decay=params["weight_decay"])
        try:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True, **arguments)
        except RuntimeError:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), **arguments)
        self.forward = torch.compile(self.model) if compiled else self.model
        self.shape = (config["train_batch_size"], model["context"] + 1)

    def step(self):
        text = torch.randint(VOCABULARY, self.shape)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(text[:, :-1].contiguous(), text[:, 1:].contiguous())
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def round(self):
        start = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        return (time.perf_counter() - start) / STEPS


class Sluice:
    """bench_train_step --serve: a line in starts a round, a line out is its result. The first round starts by itself."""

    def __init__(self, program, config):
        self.process = subprocess.Popen([program, config, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started = False

    def round(self):
        if self.started:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        self.started = True
        return float(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def main():
    program, path = sys.argv[1:]
    with open(path) as f:
        config = json.load(f)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    sluice = Sluice(program, path)
    contestants = {"sluice": sluice, "PyTorch eager": Torch(config, False), "PyTorch compiled": Torch(config, True)}
    seconds = {name: [] for name in contestants}
    for round_number in range(ROUNDS + 1):
        for name, contestant in list(contestants.items()):
            try:
                taken = contestant.round()
            except Exception as e:  # torch.compile needs a C++ compiler, which a machine may lack
                if contestant is sluice:
                    raise
                print(f"{name}: left out: {str(e).splitlines()[0][:100]}")
                del contestants[name], seconds[name]
                continue
            if round_number > 0:
                seconds[name].append(taken)
    sluice.close()

    parameters = sum(p.numel() for p in contestants["PyTorch eager"].model.parameters())
    tokens = config["train_batch_size"] * config["model"]["context"]
    print(f"{parameters / 1e6:.2f} M parameters, {tokens} tokens a step, fp32, AdamW, {torch.get_num_threads()} threads, "
          f"PyTorch {torch.__version__.split('+')[0]}; median of {ROUNDS} rounds that take turns")
    print(f"{'':18} {'ms a step':>10} {'least':>8} {'most':>8} {'tokens/s':>9}")
    median = {name: statistics.median(s) for name, s in seconds.items()}
    for name, s in seconds.items():
        print(f"{name:18} {1e3 * median[name]:10.1f} {1e3 * min(s):8.1f} {1e3 * max(s):8.1f} {tokens / median[name]:9.0f}")
    best = min((name for name in median if name != "sluice"), key=median.get)
    print(f"sluice takes {median['sluice'] / median[best]:.3f} of the time of {best}")


main()
