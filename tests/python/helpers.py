"""helpers.py: what several tests of the package share."""

from __future__ import annotations

import array
import importlib.util
import os
import random
import shutil
import tempfile
import unittest
from pathlib import Path
from typing import Any

import sluice

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("SLUICE_BUILD", ROOT / "build"))


def need(module: str, reason: str) -> None:
    """Skips the test where Python lacks a module."""
    if importlib.util.find_spec(module) is None:
        raise unittest.SkipTest(f"{module}: {reason}")


class InFolder(unittest.TestCase):
    """Runs in a folder of its own."""

    def setUp(self) -> None:
        before, folder = os.getcwd(), tempfile.mkdtemp(prefix="sluice-python-")
        os.chdir(folder)
        self.addCleanup(shutil.rmtree, folder, True)
        self.addCleanup(os.chdir, before)


def floats(*shape: int, seed: int = 1) -> sluice.Array:
    made = sluice.Array(shape)
    source = random.Random(seed)
    made.buffer[:] = array.array("f", (source.gauss(0, 1) for _ in range(len(made.buffer))))
    return made


def ints(*shape: int, below: int = 3, seed: int = 1) -> sluice.Array:
    made = sluice.Array(shape, "i32")
    source = random.Random(seed)
    made.buffer[:] = array.array("i", (source.randrange(below) for _ in range(len(made.buffer))))
    return made


def small_graph(rows: int = 8) -> sluice.Graph:
    g = sluice.Graph()
    x = g.input("x", (rows, 6))
    label = g.input("label", (rows,), "i32")
    y = x.linear(16, "fc1").relu().linear(3, "fc2")
    g.output = y
    g.loss = y.cross_entropy(label)
    return g


def small_batch(rows: int = 8, seed: int = 1) -> dict[str, Any]:
    return {"x": floats(rows, 6, seed=seed), "label": ints(rows, seed=seed)}


def text_config(steps: int = 12, **more: Any) -> dict[str, Any]:
    """A small language model on a text that is written here; checkpoints every 4 steps."""
    source = random.Random(5)
    words = ["sluice", "gate", "water", "flows", "slowly", "under", "the", "bridge"]
    Path("input.txt").write_text(" ".join(source.choice(words) for _ in range(3000)))
    return {
        "model": {"type": "gpt2", "layers": 2, "heads": 2, "width": 32, "context": 32, "vocabulary": "bytes"},
        "data": {"type": "text", "path": "input.txt", "validation": 0.1},
        "steps": steps,
        "seed": 7,
        "train_batch_size": 4,
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "checkpoint": {"path": "checkpoints", "every": 4},
        **more,
    }
