#!/usr/bin/env python3
"""python_overhead.py BUILD [RUNS]: what 1,000 steps cost from Python, beside the program.

Both train the same configuration, alternately, RUNS times (5), in processes of their own and on one thread; Python with a callback
for every step. Once with a model so small that hardly anything but the overhead is left, once with one whose steps take some
15 ms. Printed: the least CPU seconds and wall seconds of the whole processes, and how much more Python's are. The CPU seconds are
the ones to trust on a machine that others use."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONFIG: dict[str, Any] = {
    "model": {"type": "gpt2", "layers": 2, "heads": 4, "width": 128, "context": 64, "vocabulary": "bytes"},
    "data": {"type": "text", "path": "input.txt"},
    "steps": 1000,
    "seed": 1,
    "threads": 1,
    "train_batch_size": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
}
TINY = {**CONFIG, "model": {**CONFIG["model"], "layers": 1, "heads": 1, "width": 16, "context": 16}, "train_batch_size": 1}
CODE = """
import sluice
seen = []
run = sluice.train("run.json", on_step=lambda s: seen.append(s.loss))
assert len(seen) == 1000
print(run.weights_sha256)
"""


def timed(command: list[str], folder: str, environment: dict[str, str]) -> tuple[float, float, str]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, done.stdout


def compare(name: str, config: dict[str, Any], build: Path, runs: int) -> None:
    environment = {**os.environ, "SLUICE_LIBRARY": str(build / "libsluice.so"), "PYTHONPATH": str(ROOT / "python")}
    commands = {
        "program": [str(build / "sluice"), "train", "run.json", "--json"],
        "python": [sys.executable, "-c", CODE],
    }
    least: dict[str, list[float]] = {}
    hashes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "run.json").write_text(json.dumps(config))
        text = "".join(p.read_text() for p in sorted((ROOT / "src" / "ir").glob("*.c")))
        Path(folder, "input.txt").write_text(text)
        for _ in range(runs):
            for who, command in commands.items():
                cpu, wall, out = timed(command, folder, environment)
                hashes[who] = json.loads(out.splitlines()[-1])["weights_sha256"] if who == "program" else out.strip()
                seen = least.setdefault(who, [cpu, wall])
                least[who] = [min(seen[0], cpu), min(seen[1], wall)]
    print(f"{name:10}{'CPU s':>10}{'wall s':>10}")
    for who, (cpu, wall) in least.items():
        print(f"  {who:8}{cpu:10.3f}{wall:10.3f}")
    (cpu, wall), (cpu0, wall0) = least["python"], least["program"]
    print(f"  {'more':8}{cpu - cpu0:+10.3f}{wall - wall0:+10.3f}")
    print(f"  {'':8}{100 * (cpu / cpu0 - 1):+9.2f}%{100 * (wall / wall0 - 1):+9.2f}%")
    print(f"  the same weights: {hashes['python'] == hashes['program']}", flush=True)


def main() -> None:
    build = Path(sys.argv[1]).resolve()
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    compare("tiny", TINY, build, runs)
    compare("small", CONFIG, build, runs)


if __name__ == "__main__":
    main()
