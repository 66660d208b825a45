"""The table of bench/gpu/run: rows of training steps on one GPU, each beside the same step of somebody else.

Contestants run one after the other, each in a process of its own. sluice's figure is the median of steps 4 to 8 (of
2 to 4 for models whose steps are long), a peer's what its program prints. A row that fails says why, the next one runs,
and the exit status is 1. Floating-point operations are counted as 6 x parameters x tokens + 6 x layers x width x
context x tokens: products of the model, causal attention by half, nothing for recomputation.
"""
import argparse
import collections
import ctypes
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 2.0**30

# name; configuration and settings; the peer: arguments of its program, or the name of a row; limit in seconds
Row = collections.namedtuple("Row", "name config settings peer limit steps first", defaults=(8, 4))
RECOMPUTE = "activation_checkpointing.mode=recompute"
FSDP = ("fsdp", "llama-3b", "8", "2048", "ckpt")
ROWS = [
    Row("gpt2-124m", "gpt2-124m", [], ("gpu", "gpt2-124m", "64", "1024"), 180),
    Row("llama-1b", "llama-1b", [], ("gpu", "llama-1b", "8", "2048"), 180),
    Row("llama-3b", "llama-3b", [], ("gpu", "llama-3b", "8", "2048"), 180),
    Row("llama-3b-recompute", "llama-3b", [RECOMPUTE], ("gpu", "llama-3b", "8", "2048", "ckpt"), 180),
    Row("llama-3b-30gib", "llama-3b", ["memory.device=30GiB", "gradient_clipping=1e9"], FSDP, 240),
    Row("llama-3b-30gib-clips", "llama-3b", ["memory.device=30GiB", "gradient_clipping=1e-3"], FSDP, 240),
    Row("llama-3b-recompute-x4", "llama-3b", [RECOMPUTE, "gradient_accumulation_steps=4"], None, 240),
    Row("llama-3b-30gib-x4", "llama-3b", [RECOMPUTE, "gradient_accumulation_steps=4", "memory.device=30GiB"],
        "llama-3b-recompute-x4", 300),
    Row("llama-8b-48gib", "llama-8b", ["memory.device=48GiB", "memory.host=112GiB"], None, 420),
    Row("largest-24gib", "largest", [], None, 480, 4, 2),
]
CHANGES = "largest-changes"  # not a row: bench_largest, whose lines are printed as they are
PEER_LIMIT, CHANGES_LIMIT = 480, 590

COLUMNS = [("row", "name", "{}"), ("tok/s", "tokens_per_second", "{:.0f}"), ("TFLOP/s", "tflops", "{:.0f}"),
           ("device GiB", "device_gib", "{:.1f}"), ("host GiB", "host_gib", "{:.1f}"),
           ("predicted s", "predicted", "{:.4g}"), ("measured s", "measured", "{:.4g}"), ("ratio", "ratio", "{:.2f}"),
           ("beside", "peer", "{}"), ("its tok/s", "peer_tokens_per_second", "{:.0f}"),
           ("ours / its", "of_peer", "{:.2f}")]
WIDTHS = [22, 8, 7, 10, 8, 11, 10, 5, 22, 9, 10]


class Failed(Exception):
    pass


class Meter:
    """Memory in use on the first GPU, by all processes; None where nobody can say."""

    def __init__(self):
        self.library = None
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            self.device = ctypes.c_void_p()
            if self.library.nvmlInit_v2() != 0 or \
                    self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)) != 0:
                self.library = None
        except (OSError, AttributeError):
            self.library = None

    def used(self):
        memory = (ctypes.c_ulonglong * 3)()  # total, free, used
        if self.library is None or self.library.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(memory)) != 0:
            return None
        return memory[2]


def end_group(process):
    """Ends a program and whatever it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def last_words(errors):
    errors.seek(0)
    lines = [line for line in errors.read().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing was said"


def run(command, limit, on_line):
    """Runs a program to its end, or to the limit; returns the most bytes of memory it held."""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        timer = threading.Timer(limit, end_group, [process])
        timer.start()
        start = time.monotonic()
        try:
            for line in process.stdout:
                on_line(line.rstrip("\n"))
        except BaseException:
            end_group(process)
            raise
        finally:
            _, status, usage = os.wait4(process.pid, 0)
            timer.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode == -signal.SIGKILL and time.monotonic() - start >= limit:
            raise Failed(f"stopped after {limit} s")
        if process.returncode != 0:
            raise Failed(f"exit status {process.returncode}: {last_words(errors)}")
        return usage.ru_maxrss * 1024


def setting_of(config, settings, key):
    """What a key is after the settings; they win over the file."""
    value = config
    for part in key.split("."):
        value = value[part]
    for setting in settings:
        name, _, text = setting.partition("=")
        if name == key:
            value = text
    return float(value)


def model_flops(config, settings, parameters, tokens):
    layers, width, context = (setting_of(config, settings, "model." + key) for key in ("layers", "width", "context"))
    return 6 * parameters * tokens + 6 * layers * width * context * tokens


class Events:
    """The events of `sluice train --json`, and what the GPU held in the middle of it."""

    def __init__(self, meter, sample_at):
        self.meter, self.sample_at, self.used, self.by_kind = meter, sample_at, None, {}

    def add(self, line):
        event = json.loads(line)
        self.by_kind.setdefault(event["event"], []).append(event)
        if event["event"] == "step" and event["step"] == self.sample_at:
            self.used = self.meter.used()


def measure(arguments, row, meter):
    path = os.path.join(HERE, row.config + ".json")
    with open(path) as f:
        config = json.load(f)
    settings = row.settings + arguments.set
    command = [os.path.join(arguments.build, "sluice"), "train", path, "--json"]
    for setting in ["debug.hash=false", f"steps={row.steps}"] + settings:
        command += ["--set", setting]
    if arguments.machine:
        command += ["--machine", arguments.machine]
    events, before = Events(meter, row.first - 1), meter.used()
    host = run(command, row.limit, events.add)
    plan, steps = events.by_kind["plan"][0], [e for e in events.by_kind["step"] if e["step"] >= row.first]
    seconds, tokens = statistics.median(e["seconds"] for e in steps), steps[0]["tokens"]
    arena = plan["peak_bytes"]["device"]
    seen = events.used is not None and before is not None
    device = events.used - before if seen else arena
    return {"name": row.name, "command": " ".join(command), "parameters": plan["parameters"], "tokens": tokens,
            "tokens_per_second": tokens / seconds, "device_arena_gib": arena / GIB, "device_gib": device / GIB,
            "device_measured": seen, "host_arena_gib": plan["peak_bytes"]["host"] / GIB,
            "host_gib": host / GIB, "predicted": plan["step_seconds"], "measured": seconds,
            "ratio": plan["step_seconds"] / seconds, "losses": [e["loss"] for e in events.by_kind["step"]],
            "tflops": model_flops(config, settings, plan["parameters"], tokens) / seconds / 1e12}


def number_before(unit, text):
    found = re.search(r"([\d.]+) " + unit, text)
    return float(found.group(1)) if found else None


def ask_peer(peer):
    script, lines = os.environ.get("SLUICE_PEERS"), []
    if not script:
        return None
    run([sys.executable, script] + list(peer), PEER_LIMIT, lines.append)
    speed = [line for line in lines if number_before("tok/s", line)]
    if not speed:
        raise Failed("the peer's program printed no tok/s")
    memory = {word: re.search(word + r" ([\d.]+) GiB", speed[-1]) for word in ("peak", "host")}
    return {"tokens_per_second": number_before("tok/s", speed[-1]), "said": speed[-1],
            **{word + "_gib": float(found.group(1)) for word, found in memory.items() if found}}


class Table:
    def __init__(self, arguments):
        self.arguments, self.meter, self.rows, self.peers, self.failed = arguments, Meter(), {}, {}, False

    def note(self, text):
        print(text, flush=True)

    def peer_of(self, row):
        """The peer's name and its tokens a second; None where there is none, or it failed."""
        if row.peer is None:
            return None, None
        if isinstance(row.peer, str):
            other = self.rows.get(row.peer)
            return (row.peer, other["tokens_per_second"]) if other else (None, None)
        if row.peer not in self.peers:
            try:
                self.peers[row.peer] = ask_peer(row.peer)
            except (Failed, OSError) as failure:
                self.peers[row.peer] = None
                self.note(f"PyTorch {' '.join(row.peer)}: {failure}")
        peer = self.peers[row.peer]
        if peer is None:
            return None, None
        return f"PyTorch {row.peer[0]}{', ckpt' if 'ckpt' in row.peer else ''}", peer["tokens_per_second"]

    def add(self, row):
        try:
            result = measure(self.arguments, row, self.meter)
        except (Failed, OSError, KeyError, ValueError) as failure:
            self.note(f"{row.name}: {failure}")
            self.failed = True
            return
        self.rows[row.name] = result
        name, speed = self.peer_of(row)
        if speed:
            result.update(peer=name, peer_tokens_per_second=speed, of_peer=result["tokens_per_second"] / speed,
                          peer_said=(self.peers.get(row.peer) or {}).get("said"))
        self.print_row(result)
        with open(self.arguments.results, "a") as f:
            f.write(json.dumps(dict(result, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))) + "\n")

    def print_row(self, result):
        cells = [form.format(result[key]) if result.get(key) is not None else "-" for _, key, form in COLUMNS]
        print("| " + " | ".join(c.ljust(w) for c, w in zip(cells, WIDTHS)) + " |", flush=True)

    def print_head(self):
        print("| " + " | ".join(c[0].ljust(w) for c, w in zip(COLUMNS, WIDTHS)) + " |")
        print("|" + "|".join("-" * (w + 2) for w in WIDTHS) + "|", flush=True)


def print_changes(arguments):
    """Whether each tensor of the largest model changes in each step: false where it does not, or nobody could say."""
    command = [os.path.join(arguments.build, "bench_largest"), os.path.join(HERE, "largest.json")]
    for setting in arguments.set:
        command += ["--set", setting]
    if arguments.machine:
        command += ["--machine", arguments.machine]
    print(f"\n{CHANGES}:", flush=True)
    try:
        run(command, CHANGES_LIMIT, lambda line: print("  " + line, flush=True))
        return True
    except FileNotFoundError:
        print(f"  {command[0]} is not there: cmake --build {arguments.build} --target bench")
    except (Failed, OSError) as failure:
        print(f"  {failure}")
    return False


def read_arguments():
    names = [row.name for row in ROWS] + [CHANGES]
    parser = argparse.ArgumentParser(prog="bench/gpu/run")
    parser.add_argument("build")
    parser.add_argument("--machine")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--results")
    parser.add_argument("--from", dest="source")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(names))
    arguments = parser.parse_intermixed_args()
    for name in arguments.rows:
        if name not in names:
            parser.error(f"there is no row {name}; there are {', '.join(names)}")
    arguments.rows = arguments.rows or names
    arguments.results = arguments.results or os.path.join(arguments.build, "bench", "gpu.jsonl")
    return arguments


def main():
    arguments = read_arguments()
    if arguments.list:
        print("\n".join([row.name for row in ROWS] + [CHANGES]))
        return
    table = Table(arguments)
    table.print_head()
    if arguments.source:
        with open(arguments.source) as f:
            newest = {row["name"]: row for row in map(json.loads, f)}
        for row in ROWS:
            if row.name in newest:
                table.print_row(newest[row.name])
        return
    for row in ROWS:
        if row.name in arguments.rows:
            table.add(row)
    changed = print_changes(arguments) if CHANGES in arguments.rows else True
    sys.exit(1 if table.failed or not changed else 0)


main()
