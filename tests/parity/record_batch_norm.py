"""Records what PyTorch computes for 10 training steps of a small network with batch norm, for tests/train/batch_norm_parity_test.c.

    python record_batch_norm.py batch_norm.json            (needs torch; nothing of sluice)

README.md says how first weights and inputs are made.
"""

import json
import sys

import torch

FEATURES, WIDTH, CLASSES, ROWS, STEPS, MICRO = 6, 12, 3, 8, 10, 2


def lcg(state):
    return (state * 1664525 + 1013904223) % 2**32


def first_values(name, count):
    state = 2166136261
    for byte in name.encode():
        state = ((state ^ byte) * 16777619) % 2**32
    centre = 1.0 if "norm" in name and name.endswith(".weight") else 0.0
    values = []
    for _ in range(count):
        state = lcg(state)
        values.append(centre + ((state >> 8) / 16777216.0 - 0.5) * 0.1)
    return torch.tensor(values, dtype=torch.float64).to(torch.float32)


def batch(number):
    state = lcg(number)
    x, target = [], []
    for _ in range(ROWS):
        for _ in range(FEATURES):
            state = lcg(state)
            x.append(((state >> 8) / 16777216.0 - 0.5) * 4.0 + 1.0)
        state = lcg(state)
        target.append((state >> 8) % CLASSES)
    x = torch.tensor(x, dtype=torch.float64).to(torch.float32).reshape(ROWS, FEATURES)
    return x, torch.tensor(target)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(FEATURES, WIDTH)
        self.norm1 = torch.nn.BatchNorm1d(WIDTH)
        self.fc2 = torch.nn.Linear(WIDTH, WIDTH)
        self.norm2 = torch.nn.BatchNorm1d(WIDTH, eps=1e-3, momentum=0.3)
        self.fc3 = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = torch.relu(self.norm1(self.fc1(x)))
        return self.fc3(torch.relu(self.norm2(self.fc2(h)) + h))


network = Network()
with torch.no_grad():
    for name, p in network.named_parameters():
        p.copy_(first_values(name, p.numel()).reshape(p.shape))
optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
losses = []
for step in range(STEPS):
    optimizer.zero_grad()
    total = 0.0
    for micro in range(MICRO):
        x, target = batch(1 + step * MICRO + micro)
        loss = torch.nn.functional.cross_entropy(network(x), target)
        (loss / MICRO).backward()
        total += loss.item() / MICRO
    optimizer.step()
    losses.append(total)
network.eval()
x, target = batch(1000)
with torch.no_grad():
    evaluated = torch.nn.functional.cross_entropy(network(x), target).item()
buffers = {name: [float(v) for v in b.reshape(-1)] for name, b in network.named_buffers()}
record = {"torch": torch.__version__, "losses": losses, "evaluated": evaluated, "buffers": buffers}
with open(sys.argv[1], "w") as f:
    json.dump(record, f, indent=1)
    f.write("\n")
