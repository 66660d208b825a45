#!/usr/bin/env python3
"""The run of examples/recommender.json in PyTorch, with dense tables, for a comparison: recommender-torch.py CLICKS SEED [FIRST].

Reads the same files by the same rules (docs/data.md), builds the same network, and takes steps of the same size, rate and number in an order of
its own. First values are those of the safetensors file FIRST, which a run of one step leaves, whose rate is 0, or of the same distributions. Prints
the AUC over test.csv after the last step.
"""
import csv
import math
import sys
import time

import numpy
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

NUMBERS = ("hour", "age", "price", "visits")
CATEGORIES = ("user", "item", "site", "device", "weekday")
BUCKETS, WIDTH, BOTTOM, TOP = 5000, 16, (32,), (64, 32)
EPOCHS, BATCH, RATE, WARMUP, DECAY = 4, 512, 2e-3, 0.05, 0.05


def bucket(text):
    h = 0xcbf29ce484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001b3 % 2 ** 64
    return (h ^ h >> 32) % BUCKETS


def read(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = numpy.array([[float(r[n] or "nan") for n in NUMBERS] for r in rows])
    known = {}
    categories = [[known.setdefault(r[n], bucket(r[n])) for n in CATEGORIES] for r in rows]
    return numbers, torch.tensor(categories), torch.tensor([float(r["label"]) for r in rows])


class Recommender(torch.nn.Module):
    def __init__(self):
        super().__init__()
        vectors = len(CATEGORIES) + 1
        self.bottom = self.layers((len(NUMBERS), *BOTTOM, WIDTH))
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(BUCKETS, WIDTH) for _ in CATEGORIES)
        self.top = self.layers((WIDTH + vectors * (vectors - 1) // 2, *TOP, 1))
        self.pairs = torch.tril_indices(vectors, vectors, -1)
        for table in self.tables:
            torch.nn.init.uniform_(table.weight, -BUCKETS ** -0.5, BUCKETS ** -0.5)

    @staticmethod
    def layers(widths):
        made = [torch.nn.Linear(a, b) for a, b in zip(widths, widths[1:])]
        for layer in made:
            torch.nn.init.normal_(layer.weight, 0, (2 / (layer.in_features + layer.out_features)) ** 0.5)
            torch.nn.init.normal_(layer.bias, 0, layer.out_features ** -0.5)
        return torch.nn.ModuleList(made)

    def forward(self, x, categories):
        for layer in self.bottom:
            x = torch.relu(layer(x))
        vectors = torch.stack([x] + [table(categories[:, i]) for i, table in enumerate(self.tables)], 1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        y = torch.cat([x, products], 1)
        for i, layer in enumerate(self.top):
            y = layer(torch.relu(y) if i > 0 else y)
        return y[:, 0]


def take_first_values(model, path):
    """Names of DLRM's modules, as sluice writes them: layers are numbered with their activations."""
    tensors = load_file(path)
    own = {f"emb_l.{i}.weight": table.weight for i, table in enumerate(model.tables)}
    for name, layers in (("bot_l", model.bottom), ("top_l", model.top)):
        for i, layer in enumerate(layers):
            own |= {f"{name}.{2 * i}.weight": layer.weight, f"{name}.{2 * i}.bias": layer.bias}
    assert own.keys() == tensors.keys(), own.keys() ^ tensors.keys()
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])


def rate_at(steps):
    """DeepSpeed's WarmupDecayLR: the first two steps have the rate of its step 0."""
    warmup = math.ceil(WARMUP * steps)

    def factor(step):
        done = max(0, step - 1)
        return done / warmup if done < warmup else (steps - done) / (steps - warmup)
    return factor


def main():
    folder, seed = sys.argv[1], int(sys.argv[2])
    (x, categories, labels), (test_x, test_categories, test_labels) = (read(f"{folder}/{n}.csv") for n in ("train", "test"))
    mean, deviation = numpy.nanmean(x, 0), numpy.nanstd(x, 0)
    x, test_x = (torch.tensor(numpy.nan_to_num((v - mean) / deviation), dtype=torch.float32) for v in (x, test_x))
    torch.manual_seed(seed)
    model = Recommender()
    if len(sys.argv) > 3:
        take_first_values(model, sys.argv[3])
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    steps = math.ceil(EPOCHS * len(labels) / BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_at(steps))
    order = torch.cat([torch.randperm(len(labels)) for _ in range(EPOCHS + 1)])
    start = time.time()
    for step in range(steps):
        rows = order[step * BATCH:(step + 1) * BATCH]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x[rows], categories[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    seconds = time.time() - start
    with torch.no_grad():
        scores = model(test_x, test_categories)
    test_loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, test_labels)
    print(f"seed {seed}: AUC {roc_auc_score(test_labels, scores):.4f} loss {test_loss:.4f}, {steps} steps in {seconds:.0f} s")


if __name__ == "__main__":
    main()
