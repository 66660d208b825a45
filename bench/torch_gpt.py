"""A training step of a GPT in PyTorch, taking turns with sluice's, in fp32 and in bf16.

    python torch_gpt.py BENCH_TRAIN_STEP GPT.JSON [--rounds 5] [--steps 3] [--skip NAME]...

Same model (pre-norm blocks, tanh GELU, tied head, biases), same batch, AdamW (fused where this PyTorch has it for the
CPU), all cores this process may use. PyTorch runs eagerly and compiled, in fp32 and under bf16 autocast; the better one
of a precision counts. The first round warms up; the figures are medians over the others. A contestant that crashes
(PyTorch's bf16 on some virtual machines: ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 helps) runs in a process of its own and is
left out.
"""
import argparse
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

CHARACTERS = 65


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
    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__()
        self.vocabulary = vocabulary
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, self.vocabulary), targets.view(-1))


class Torch:
    """One way to run the step in PyTorch; round() returns the seconds a step takes."""

    def __init__(self, config, steps, compiled, bf16):
        torch.manual_seed(1)
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        model, params = config["model"], config["optimizer"]["params"]
        vocabulary = int(model["vocabulary"]) if model["vocabulary"].isdigit() else CHARACTERS
        self.model = GPT(model["layers"], model["heads"], model["width"], model["context"], vocabulary)
        arguments = dict(lr=params["lr"], betas=tuple(params["betas"]), weight_decay=params["weight_decay"])
        try:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True, **arguments)
        except RuntimeError:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), **arguments)
        self.forward = torch.compile(self.model) if compiled else self.model
        self.shape = (config["train_batch_size"], model["context"] + 1)
        self.bf16, self.steps, self.clip = bf16, steps, config["gradient_clipping"]

    def step(self):
        text = torch.randint(CHARACTERS, self.shape)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.forward(text[:, :-1].contiguous(), text[:, 1:].contiguous())
        loss.backward()
        if self.clip > 0:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return loss.item()

    def round(self):
        start = time.perf_counter()
        for _ in range(self.steps):
            self.step()
        return (time.perf_counter() - start) / self.steps


class Served:
    """A process that answers each line with the seconds a step of its next round took; it starts the first by itself."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started = False

    def round(self):
        if self.started:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        self.started = True
        return float(self.process.stdout.readline())

    def close(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass
        self.process.wait()


def serve(config, steps, compiled, bf16):
    contestant = Torch(config, steps, compiled, bf16)
    while True:
        print(contestant.round(), flush=True)
        if not sys.stdin.readline():
            return


def contestants(arguments):
    """Name -> (precision, command)."""
    sluice = [arguments.program, arguments.config, "--serve", "--steps", str(arguments.steps)]
    peer = [sys.executable, __file__, arguments.program, arguments.config, "--steps", str(arguments.steps), "--serve"]
    return {
        "sluice fp32": ("fp32", sluice),
        "sluice bf16": ("bf16", sluice + ["--set", "bf16.enabled=true"]),
        "PyTorch fp32 eager": ("fp32", peer + ["eager"]),
        "PyTorch fp32 compiled": ("fp32", peer + ["compiled"]),
        "PyTorch bf16 eager": ("bf16", peer + ["eager-bf16"]),
        "PyTorch bf16 compiled": ("bf16", peer + ["compiled-bf16"]),
    }


def measure(ways, rounds):
    running = {name: Served(command) for name, (_, command) in ways.items()}
    seconds = {name: [] for name in ways}
    for round_number in range(rounds + 1):
        for name in list(running):
            try:
                taken = running[name].round()
            except (ValueError, OSError):  # torch.compile needs a C++ compiler, which a machine may lack
                print(f"{name}: left out: it ended with status {running.pop(name).process.wait()}")
                del seconds[name]
                continue
            if round_number > 0:
                seconds[name].append(taken)
    for contestant in running.values():
        contestant.close()
    return seconds


def report(config, ways, seconds, rounds):
    tokens = config["train_batch_size"] * config["model"]["context"]
    threads = len(os.sched_getaffinity(0))
    print(f"{tokens} tokens a step, AdamW, {threads} threads, PyTorch {torch.__version__.split('+')[0]}; "
          f"median of {rounds} rounds that take turns")
    print(f"{'':22} {'ms a step':>10} {'least':>8} {'most':>8} {'tokens/s':>9}")
    median = {name: statistics.median(s) for name, s in seconds.items()}
    for name, s in seconds.items():
        print(f"{name:22} {1e3 * median[name]:10.1f} {1e3 * min(s):8.1f} {1e3 * max(s):8.1f} {tokens / median[name]:9.0f}")
    best = {}
    for precision in ("fp32", "bf16"):
        peers = [name for name in median if name.startswith("PyTorch") and ways[name][0] == precision]
        if peers:
            best[precision] = min(peers, key=median.get)
    for own in ("fp32", "bf16"):
        for peer in best:
            if f"sluice {own}" in median:
                ratio = median[best[peer]] / median[f"sluice {own}"]
                print(f"sluice {own} is {ratio:.2f} times as fast as {best[peer]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("config")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--serve", choices=["eager", "compiled", "eager-bf16", "compiled-bf16"])
    arguments = parser.parse_args()
    with open(arguments.config) as f:
        config = json.load(f)
    if arguments.serve:
        serve(config, arguments.steps, "compiled" in arguments.serve, "bf16" in arguments.serve)
        return
    ways = {name: way for name, way in contestants(arguments).items() if name not in arguments.skip}
    report(config, ways, measure(ways, arguments.rounds), arguments.rounds)


if __name__ == "__main__":
    main()
