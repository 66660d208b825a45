"""The table of bench/gpu/run: rows of training steps on one GPU, each beside the same step of somebody else.

Contestants run one after the other, each in a process of its own: first sluice's rows, each printed and stored as soon as
it is there, then the peers, then the table once more with both. sluice's figure is the median of the steps from the fourth
on, a peer's what its program prints. A row that fails says why, the next one runs, and the exit status is 1. What another
call has measured within an hour into the same file of results is not measured again to stand beside a row. Floating-point
operations are counted as 6 x parameters x tokens + 6 x layers x width x context x tokens: products of the model, causal
attention by half, nothing for recomputation; not for ResNets, whose tokens are images.
"""
import argparse
import calendar
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
Row = collections.namedtuple("Row", "name config settings peer limit steps", defaults=(10,))
FIRST = 4  # step that counts: updates of the first ones have no step before them to wait for
RECOMPUTE = "activation_checkpointing.mode=recompute"
UNCLIPPED = ["gradient_clipping=0", "bf16.check_grad_overflow=false"]  # as the peer: updates begin during backward
FSDP = ("fsdp", "llama-3b", "8", "2048", "ckpt")
ROWS = [
    Row("gpt2-124m", "gpt2-124m", [], ("gpu", "gpt2-124m", "64", "1024"), 60, 20),
    Row("llama-1b", "llama-1b", [], ("gpu", "llama-1b", "8", "2048"), 60, 12),
    Row("llama-3b", "llama-3b", [], ("gpu", "llama-3b", "8", "2048"), 90),
    Row("llama-3b-recompute", "llama-3b", [RECOMPUTE], ("gpu", "llama-3b", "8", "2048", "ckpt"), 90),
    Row("llama-3b-30gib", "llama-3b", ["memory.device=30GiB", "gradient_clipping=1e9"], FSDP, 120),
    Row("llama-3b-30gib-clips", "llama-3b", ["memory.device=30GiB", "gradient_clipping=1e-3"], FSDP, 120),
    Row("llama-3b-30gib-unclipped", "llama-3b", ["memory.device=30GiB"] + UNCLIPPED, FSDP, 120),
    Row("llama-3b-recompute-x4", "llama-3b", [RECOMPUTE, "gradient_accumulation_steps=4"], None, 120, 8),
    Row("llama-3b-30gib-x4", "llama-3b", [RECOMPUTE, "gradient_accumulation_steps=4", "memory.device=30GiB",
        "gradient_clipping=1e9"], "llama-3b-recompute-x4", 120, 8),
    Row("llama-8b-48gib", "llama-8b", ["memory.device=48GiB", "memory.host=112GiB", "gradient_clipping=1e9"], None, 180),
    Row("llama-8b-48gib-clips", "llama-8b", ["memory.device=48GiB", "memory.host=112GiB", "gradient_clipping=1e-3"],
        None, 180),
    Row("llama-8b-48gib-unclipped", "llama-8b", ["memory.device=48GiB", "memory.host=112GiB"] + UNCLIPPED, None, 180),
    Row("largest-24gib", "largest", ["gradient_clipping=1e9"], None, 300),
    Row("bert-base", "bert-base", [], None, 60, 16),
    Row("bert-large", "bert-large", [], None, 60, 16),
    Row("resnet50", "resnet50", [], None, 60, 16),
    Row("resnet152", "resnet152", [], None, 60, 16),
]
CHANGES = "largest-changes"  # not a row: bench_largest, whose lines are printed as they are
PEER_LIMIT, CHANGES_LIMIT = 240, 400
RECENT = 3600  # seconds

COLUMNS = [("row", "name", "{}"), ("tok/s", "tokens_per_second", "{:.0f}"), ("TFLOP/s", "tflops", "{:.0f}"),
           ("device GiB", "device_gib", "{:.1f}"), ("host GiB", "host_gib", "{:.1f}"),
           ("predicted s", "predicted", "{:.4g}"), ("measured s", "measured", "{:.4g}"), ("ratio", "ratio", "{:.2f}"),
           ("beside", "peer", "{}"), ("its tok/s", "peer_tokens_per_second", "{:.0f}"),
           ("ours / its", "of_peer", "{:.2f}")]
WIDTHS = [22, 8, 7, 10, 8, 11, 10, 5, 22, 9, 10]


class Failed(Exception):
    pass


class Stopped(Failed):
    """It took too long."""


class Clock:
    """What is left of the time that --within gives; without it, any amount."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds if seconds else None

    def limit(self, wanted):
        if self.end is None:
            return wanted
        left = self.end - time.monotonic()
        if left < 10:
            raise Failed("not begun: the time given is over")
        return min(wanted, left)


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
            raise Stopped(f"stopped after {limit:.0f} s")
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
    """None for networks of images, whose convolutions are not counted by their parameters."""
    if config["model"]["type"] == "resnet":
        return None
    layers, width, context = (setting_of(config, settings, "model." + key) for key in ("layers", "width", "context"))
    attention = 12 if config["model"]["type"] == "bert" else 6  # all keys, or those before
    return 6 * parameters * tokens + attention * layers * width * context * tokens


def promised(plan, steps):
    """What the plan says that such a step takes: it has a figure for steps whose updates run on speculation, and one for steps
    that wait for the norm because they are clipped."""
    speculation = plan.get("speculation") or {}
    waits = speculation.get("layers", 0) > 0 and steps[-1].get("speculated", 0) == 0
    return plan["step_seconds"] + (speculation["gain_seconds"] if waits else 0)


class Events:
    """The events of `sluice train --json`, and what the GPU held in the middle of it."""

    def __init__(self, meter, sample_at):
        self.meter, self.sample_at, self.used, self.by_kind = meter, sample_at, None, {}

    def add(self, line):
        event = json.loads(line)
        self.by_kind.setdefault(event["event"], []).append(event)
        if event["event"] == "step" and event["step"] == self.sample_at:
            self.used = self.meter.used()


def command_of(arguments, row):
    command = [os.path.join(arguments.build, "sluice"), "train", os.path.join(HERE, row.config + ".json"), "--json"]
    for setting in ["hashes=false", f"steps={row.steps}"] + row.settings + arguments.set:
        command += ["--set", setting]
    return command + (["--machine", arguments.machine] if arguments.machine else [])


def measure(arguments, row, meter, limit):
    with open(os.path.join(HERE, row.config + ".json")) as f:
        config = json.load(f)
    command, events, before, host = command_of(arguments, row), Events(meter, FIRST - 1), meter.used(), None
    try:
        host = run(command, limit, events.add)
    except Stopped as stopped:
        if len(events.by_kind.get("step", [])) <= FIRST:
            raise
        print(f"{row.name}: {stopped}; the steps until then count", flush=True)
    plan, steps = events.by_kind["plan"][0], [e for e in events.by_kind["step"] if e["step"] >= FIRST]
    seconds, tokens = statistics.median(e["seconds"] for e in steps), steps[0].get("tokens") or steps[0]["samples"]
    expected = promised(plan, events.by_kind["step"])
    arena = plan["peak_bytes"]["device"]
    seen = events.used is not None and before is not None
    device = events.used - before if seen else arena
    flops = model_flops(config, row.settings + arguments.set, plan["parameters"], tokens)
    return {"name": row.name, "command": " ".join(command), "parameters": plan["parameters"], "tokens": tokens,
            "tokens_per_second": tokens / seconds, "device_arena_gib": arena / GIB, "device_gib": device / GIB,
            "device_measured": seen, "host_arena_gib": plan["peak_bytes"]["host"] / GIB,
            "host_gib": host / GIB if host else None, "predicted": expected, "measured": seconds,
            "ratio": expected / seconds, "losses": [e["loss"] for e in events.by_kind["step"]],
            "seconds": [e["seconds"] for e in events.by_kind["step"]], "tflops": flops / seconds / 1e12 if flops else None}


def number_before(unit, text):
    found = re.search(r"([\d.]+) " + unit, text)
    return float(found.group(1)) if found else None


def ask_peer(peer, limit):
    script, lines = os.environ.get("SLUICE_PEERS"), []
    if not script:
        return None
    run([sys.executable, script] + list(peer), limit, lines.append)
    speed = [line for line in lines if number_before("tok/s", line)]
    if not speed:
        raise Failed("the peer's program printed no tok/s")
    memory = {word: re.search(word + r" ([\d.]+) GiB", speed[-1]) for word in ("peak", "host")}
    return {"tokens_per_second": number_before("tok/s", speed[-1]), "said": speed[-1],
            **{word + "_gib": float(found.group(1)) for word, found in memory.items() if found}}


def lines_of(path):
    """The lines of a file of results; a last one that was cut short is left out."""
    try:
        with open(path) as f:
            lines = f.read().splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            pass
    return rows


def is_recent(row):
    return time.time() - calendar.timegm(time.strptime(row["time"], "%Y-%m-%dT%H:%M:%SZ")) < RECENT


class Table:
    def __init__(self, arguments):
        self.arguments, self.meter, self.clock = arguments, Meter(), Clock(arguments.within)
        self.rows, self.earlier, self.peers, self.failed = {}, {}, {}, False
        for row in lines_of(arguments.results):
            if not is_recent(row):
                continue
            self.earlier[row["name"]] = row
            if row.get("peer_arguments"):
                self.peers[tuple(row["peer_arguments"])] = {"tokens_per_second": row["peer_tokens_per_second"],
                                                            "said": row["peer_said"]}

    def store(self, result):
        with open(self.arguments.results, "a") as f:
            f.write(json.dumps(dict(result, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))) + "\n")

    def add(self, row):
        try:
            result = measure(self.arguments, row, self.meter, self.clock.limit(row.limit))
        except (Failed, OSError) as failure:
            print(f"{row.name}: {failure}", flush=True)
            self.failed = True
            return
        except (KeyError, TypeError, ValueError) as failure:
            print(f"{row.name}: its events were not understood: {failure!r}", flush=True)
            self.failed = True
            return
        self.rows[row.name] = result
        self.print_row(result)
        self.store(result)

    def ask(self, peer):
        """What the peer's program said, the first time it was asked; None: nothing."""
        if peer in self.peers:
            return self.peers[peer]
        self.peers[peer] = None
        try:
            self.peers[peer] = ask_peer(peer, self.clock.limit(PEER_LIMIT))
        except (Failed, OSError) as failure:
            print(f"PyTorch {' '.join(peer)}: {failure}", flush=True)
        if self.peers[peer]:
            print(self.peers[peer]["said"], flush=True)
        return self.peers[peer]

    def stand_beside(self, row):
        """Adds the peer of a row that was measured; True where there is one."""
        result = self.rows.get(row.name)
        if result is None or row.peer is None:
            return False
        if isinstance(row.peer, str):
            peer, found = row.peer, self.rows.get(row.peer) or self.earlier.get(row.peer)
        else:
            peer, found = f"PyTorch {row.peer[0]}{', ckpt' if 'ckpt' in row.peer else ''}", self.ask(row.peer)
        if not found:
            return False
        speed = found["tokens_per_second"]
        result.update(peer=peer, peer_tokens_per_second=speed, of_peer=result["tokens_per_second"] / speed)
        if not isinstance(row.peer, str):
            result.update(peer_said=found["said"], peer_arguments=list(row.peer))
        self.store(result)
        return True

    def print_row(self, result):
        cells = [form.format(result[key]) if result.get(key) is not None else "-" for _, key, form in COLUMNS]
        print("| " + " | ".join(c.ljust(w) for c, w in zip(cells, WIDTHS)) + " |", flush=True)

    def print_all(self, results):
        print("| " + " | ".join(c[0].ljust(w) for c, w in zip(COLUMNS, WIDTHS)) + " |")
        print("|" + "|".join("-" * (w + 2) for w in WIDTHS) + "|", flush=True)
        for row in ROWS:
            if row.name in results:
                self.print_row(results[row.name])

    def add_changes(self):
        """Whether each tensor of the largest model changes in each step: it fails where one does not."""
        command = [os.path.join(self.arguments.build, "bench_largest"), os.path.join(HERE, "largest.json")]
        for setting in self.arguments.set:
            command += ["--set", setting]
        if self.arguments.machine:
            command += ["--machine", self.arguments.machine]
        lines, failure = [], None
        print(f"\n{CHANGES}:", flush=True)

        def keep(line):
            lines.append(line)
            print("  " + line, flush=True)
        try:
            run(command, self.clock.limit(CHANGES_LIMIT), keep)
        except FileNotFoundError:
            failure = f"{command[0]} is not there: cmake --build {self.arguments.build} --target bench"
        except (Failed, OSError) as raised:
            failure = str(raised)
        if failure:
            print(f"  {failure}", flush=True)
            self.failed = True
        self.store({"name": CHANGES, "command": " ".join(command), "lines": lines, "failure": failure})


def read_arguments():
    names = [row.name for row in ROWS] + [CHANGES]
    parser = argparse.ArgumentParser(prog="bench/gpu/run")
    parser.add_argument("build")
    parser.add_argument("--machine")
    parser.add_argument("--recalled", action="store_true")  # bench/gpu/run has made no file then
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--results")
    parser.add_argument("--within", type=float)
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
    if arguments.source:
        table.print_all({row["name"]: row for row in lines_of(arguments.source)})
        return
    table.print_all({})
    for row in ROWS:
        if row.name in arguments.rows:
            table.add(row)
    if CHANGES in arguments.rows:
        table.add_changes()
    if any([table.stand_beside(row) for row in ROWS]):
        print(flush=True)
        table.print_all(table.rows)
    sys.exit(1 if table.failed else 0)


main()
