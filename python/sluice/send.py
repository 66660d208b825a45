"""send.py: takes the TensorBoard files of a run to Weights & Biases or to Comet.

    python -m sluice.send wandb logs/a
    python -m sluice.send comet logs/a --offline

Needs the service's own package, which sends; with --offline it writes what `wandb sync` or `comet upload` send later."""

from __future__ import annotations

import argparse
import importlib
import json
import struct
import sys
from pathlib import Path
from typing import Any, Iterator, Union

Value = Union[int, float, bytes]

# Fields of TensorBoard's messages, as src/format/tfevents.c writes them.
EVENT_STEP, EVENT_SUMMARY, SUMMARY_VALUE = 2, 5, 1
VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR, TENSOR_STRING = 1, 2, 8, 8
CONFIGURATION = "configuration/text_summary"
BY_SAMPLES = "Train/Samples/"  # DeepSpeed's names for losses that are there by step, too


class Missing(Exception):
    """What was named is not there; the message says it for people."""


# ---- TensorBoard's files ----


def records(data: bytes) -> Iterator[bytes]:
    """Each stands between its length with a checksum and a checksum of its own. One that was cut off by a kill is left out."""
    at = 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + 12 + length + 4 > len(data):
            return
        yield data[at + 12 : at + 12 + length]
        at += length + 16


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def message(data: bytes) -> Iterator[tuple[int, Value]]:
    """Numbers and values of the fields of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value: Value
            value, at = varint(data, at)
        elif wire == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            form, size = ("<d", 8) if wire == 1 else ("<f", 4)
            value, at = struct.unpack_from(form, data, at)[0], at + size
        yield key >> 3, value


def inner(data: Any, number: int) -> Iterator[Any]:
    return (value for n, value in message(data) if n == number)


class Run:
    """What the files of a folder say: numbers by step, and the configuration. Steps that a restart repeated are the later ones."""

    def __init__(self, folder: Path) -> None:
        self.steps: dict[int, dict[str, float]] = {}
        self.configuration: dict[str, Any] = {}
        files = sorted(folder.glob("events.out.tfevents.*"))
        if not files:
            raise Missing(f"{folder}: there is no TensorBoard file, events.out.tfevents.*; name tensorboard.output_path/job_name")
        for path in files:
            for record in records(path.read_bytes()):
                self.add(record)

    def add(self, record: bytes) -> None:
        step = next(inner(record, EVENT_STEP), 0)
        for summary in inner(record, EVENT_SUMMARY):
            for value in inner(summary, SUMMARY_VALUE):
                tag = next(inner(value, VALUE_TAG), b"").decode()
                for number in inner(value, VALUE_SIMPLE):
                    if not tag.startswith(BY_SAMPLES):
                        self.steps.setdefault(step, {})[tag] = number
                for tensor in inner(value, VALUE_TENSOR):
                    if tag == CONFIGURATION:
                        self.configuration = json.loads(next(inner(tensor, TENSOR_STRING)))


# ---- the services ----


def package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Missing(f"Python has no {name} here: pip install {name}") from None


def to_wandb(run: Run, name: str, folder: Path, given: argparse.Namespace) -> None:
    made = package("wandb").init(
        project=given.project, name=name, config=run.configuration, mode="offline" if given.offline else "online"
    )
    for step in sorted(run.steps):
        made.log(run.steps[step], step=step)
    made.finish()


def to_comet(run: Run, name: str, folder: Path, given: argparse.Namespace) -> None:
    comet = package("comet_ml")
    kind = comet.OfflineExperiment if given.offline else comet.Experiment
    made = kind(project_name=given.project, log_code=False, log_env_details=False, log_git_metadata=False)
    made.set_name(name)
    made.log_parameters(run.configuration)
    for step in sorted(run.steps):
        made.log_metrics(run.steps[step], step=step)
    made.log_tensorboard_folder(str(folder))
    made.end()


SERVICES = {"wandb": to_wandb, "comet": to_comet}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sluice.send", description="TensorBoard's files of a run to a service.")
    parser.add_argument("service", choices=sorted(SERVICES))
    parser.add_argument("folder", type=Path, help="tensorboard.output_path/job_name of the run")
    parser.add_argument("--project", default="sluice", help="of the service; default: sluice")
    parser.add_argument("--name", help="of the run there; default: the folder's")
    parser.add_argument("--offline", action="store_true", help="write it to be sent later, by wandb sync or comet upload")
    given = parser.parse_args(arguments)
    try:
        run = Run(given.folder)
        SERVICES[given.service](run, given.name or given.folder.resolve().name, given.folder, given)
    except Missing as e:
        print(f"sluice: {e}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
