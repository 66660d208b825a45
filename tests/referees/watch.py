"""Logs of a run against the programs that read them: event files by TensorBoard's own EventAccumulator, tables and journals by pandas.

A run is trained in two parts, the second resumed, with a checkpoint in between that lies before the end of the first.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != HERE]
try:
    import pandas
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(f"SKIP: {missing}")
    sys.exit(77)

build = Path(sys.argv[1])
CONFIG = {
    "model": {"type": "mlp", "features": 8, "hidden": [16]}, "data": {"type": "regression", "samples": 100, "validation": 0.2},
    "steps": 30, "train_batch_size": 4, "threads": 1, "optimizer": {"type": "AdamW"}, "evaluate": {"every": 5},
    "checkpoint": {"path": "run", "every": 10}, "bf16": {"enabled": True},
    "tensorboard": {"enabled": True, "output_path": "tb", "job_name": "job"},
    "csv_monitor": {"enabled": True, "output_path": "csv", "job_name": "job"},
}
failures = []


def check(what, fine):
    print(("ok    " if fine else "WRONG ") + what)
    if not fine:
        failures.append(what)


def train(folder, *arguments):
    command = [str(build / "sluice"), "train", "c.json", "--json", "--log", "all.csv", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    (folder / "c.json").write_text(json.dumps(CONFIG))
    events = train(folder, "--set", "steps=20") + train(folder, "--resume")
    steps = [e for e in events if e["event"] == "step"]
    evals = [e for e in events if e["event"] == "eval"]

    tb = EventAccumulator(str(folder / "tb" / "job"), size_guidance={"scalars": 0, "tensors": 0})
    tb.Reload()
    for tag, key in [("loss/train", "loss"), ("lr", "lr"), ("grad_norm", "grad_norm")]:
        got = [(s.step, s.value) for s in tb.Scalars(tag)]
        want = [(e["step"], e[key]) for e in steps]
        check(f"tensorboard: {tag} of {len(want)} steps", [g[0] for g in got] == [w[0] for w in want]
              and all(abs(g[1] - w[1]) <= 1e-6 * abs(w[1]) for g, w in zip(got, want)))
    got = [(s.step, s.value) for s in tb.Scalars("Train/Samples/train_loss")]
    check("tensorboard: Train/Samples/train_loss by samples", [g[0] for g in got] == [4 * e["step"] for e in steps])
    check("tensorboard: loss/validation", [s.step for s in tb.Scalars("loss/validation")] == [e["step"] for e in evals])
    check("tensorboard: metrics/rmse", len(tb.Scalars("metrics/rmse")) == len(evals))
    check("tensorboard: memory and rates", all(t in tb.Tags()["scalars"] for t in ("memory/device_GiB", "memory/resident_GiB", "rate/samples_per_s")))
    for tag in ("plan/text_summary", "configuration/text_summary"):
        check(f"tensorboard: text {tag}", tag in tb.Tags()["tensors"] and len(tb.Tensors(tag)[0].tensor_proto.string_val[0]) > 100)
    check("tensorboard: text is of the text plugin", "plan/text_summary" in tb.PluginTagToContent("text"))

    table = pandas.read_csv(folder / "all.csv", parse_dates=["time"])
    check("pandas: a row a step", list(table["step"]) == [e["step"] for e in steps])
    check("pandas: losses", all(abs(a - e["loss"]) <= 1e-8 * abs(e["loss"]) for a, e in zip(table["loss"], steps)))
    check("pandas: times and types", str(table["time"].dtype).startswith("datetime64") and table["skipped"].dtype == bool)
    judged = table.dropna(subset=["validation_loss"])
    check("pandas: evaluations in the rows of their steps", list(judged["step"]) == [e["step"] for e in evals if e["step"] > 0])
    check("pandas: one id", table["run"].nunique() == 1)
    small = pandas.read_csv(folder / "csv" / "job" / "Train_Samples_train_loss.csv")
    check("pandas: csv_monitor", list(small.columns) == ["step", "train_loss"] and list(small["step"]) == [4 * e["step"] for e in steps])
    journal = pandas.read_json(folder / "run" / "log.jsonl", lines=True)
    check("pandas: the journal", (journal["event"] == "step").sum() == len(steps) and journal["run"].nunique() == 1
          and (journal["event"] == "run").sum() == 2 and journal["time"].notna().all())

sys.exit(1 if failures else 0)
