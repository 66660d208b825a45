"""events.py: what a run tells as it goes. Fields have the names that `sluice train --json` writes (docs/formats.md)."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field, fields
from typing import Any, Mapping, Union

from . import _header as header
from .engine import Memory


@dataclass(frozen=True)
class PlanEvent:
    """Before the first step: what the run will need and how fast it should be."""

    ranks: int
    stage: int
    parameters: int
    peak_bytes: Memory
    overhead_bytes: int
    step_seconds: float
    tokens_per_second: float
    mfu: float
    state_bytes: Mapping[str, int]  # parameters, gradients, optimizer
    moved_bytes: Mapping[str, int]  # in a step: to_device, to_host, disk_read, disk_write
    comm_bytes: Mapping[str, int]  # in a step, sent by ranks: gather, reduce, norm


@dataclass(frozen=True)
class Resumed:
    step: int


@dataclass(frozen=True)
class Step:
    """A step that is done. Numbers that are not known are NaN."""

    step: int
    steps: int  # all that are planned
    epoch: float
    loss: float
    lr: float
    grad_norm: float
    seconds: float
    samples: int
    tokens: int
    targets: int  # tokens that count in the loss
    skipped: bool
    loss_scale: float
    tokens_per_second: float
    mfu: float
    data_seconds: float


@dataclass(frozen=True)
class ClassScore:
    """How well one class is found."""

    name: str | None
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True)
class Evaluation:
    """Loss and metrics on the validation data; those of docs/evaluate.md that the model has."""

    step: int
    loss: float
    accuracy: float
    metrics: Mapping[str, float]
    best: bool = False
    perplexity: float = math.nan  # from here on: of sluice.evaluate alone
    bits_per_byte: float = math.nan
    tokens: int = 0
    samples: int = 0
    weights: str = ""  # the file or folder that was evaluated
    classes: tuple[ClassScore, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()  # [target][predicted]


@dataclass(frozen=True)
class Saved:
    step: int
    path: str


@dataclass(frozen=True)
class Epoch:
    step: int
    epoch: float
    loss: float
    seconds: float


@dataclass(frozen=True)
class Phase:
    """Something other than a step takes its time: "plan", "reserve", "fill", "read", "verify" or "hash"."""

    phase: str
    done: int
    total: int
    seconds: float
    over: bool


@dataclass(frozen=True)
class Sample:
    """The first sample of a fine-tuning run: its tokens, which of them count in the loss, and its text in parts."""

    tokens: tuple[int, ...]
    loss: tuple[int, ...]
    parts: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class EarlyStop:
    step: int
    metric: str
    best: float
    best_step: int
    evaluations: int


@dataclass(frozen=True)
class End:
    """The run is over."""

    steps: int
    peak_bytes: Memory
    tokens_per_second: float
    mfu: float
    data_seconds: float
    weights_sha256: str = ""
    state_sha256: str = ""
    moved_bytes: Mapping[str, int] = field(default_factory=dict)
    comm_bytes: Mapping[str, int] = field(default_factory=dict)


Event = Union[PlanEvent, Resumed, Step, Evaluation, Saved, Epoch, Phase, Sample, EarlyStop, End]


# ---- from the struct of the header ----


def _text(value: bytes | None) -> str:
    return value.decode("utf-8", "replace") if value else ""


def _memory(m: header.sluice_memory) -> Memory:
    return Memory(m.device, m.host, m.disk)


def _moved(e: header.sluice_event) -> dict[str, int]:
    return {
        "to_device": e.moved_to_device,
        "to_host": e.moved_to_host,
        "disk_read": e.moved_disk_read,
        "disk_write": e.moved_disk_write,
    }


def _sent(e: header.sluice_event) -> dict[str, int]:
    return {"gather": e.comm_gather, "reduce": e.comm_reduce, "norm": e.comm_norm}


def _plan(e: header.sluice_event) -> PlanEvent:
    state = {"parameters": e.state_parameters, "gradients": e.state_gradients, "optimizer": e.state_optimizer}
    return PlanEvent(
        e.ranks, e.stage, e.parameters, _memory(e.peak), e.overhead_bytes, e.step_seconds, e.tokens_per_second, e.mfu,
        state, _moved(e), _sent(e),
    )  # fmt: skip


def _step(e: header.sluice_event) -> Step:
    return Step(
        e.step, e.steps, e.epoch, e.loss, e.lr, e.gradient_norm, e.seconds, e.samples, e.tokens, e.targets, e.skipped,
        e.loss_scale, e.tokens_per_second, e.mfu, e.data_seconds,
    )  # fmt: skip


def _evaluation(e: header.sluice_event) -> Evaluation:
    metrics = {_text(e.metrics[i].name): e.metrics[i].value for i in range(e.metric_count)}
    if not e.path:
        return Evaluation(e.step, e.loss, e.accuracy, metrics, e.best)
    n = e.class_count
    scores = (e.classes[i] for i in range(n))
    classes = tuple(
        ClassScore(_text(c.name) if c.name else None, c.precision, c.recall, c.f1, c.support) for c in scores
    )
    confusion = tuple(tuple(e.confusion[i * n : i * n + n]) for i in range(n)) if e.confusion else ()
    return Evaluation(
        e.step, e.loss, e.accuracy, metrics, e.best, e.perplexity, e.bits_per_byte, e.tokens, e.samples, _text(e.path),
        classes, confusion,
    )  # fmt: skip


def _sample(e: header.sluice_event) -> Sample:
    s = e.sample.contents
    parts = tuple((_text(s.texts[i]), bool(s.part_loss[i])) for i in range(s.part_count))
    return Sample(tuple(s.ids[: s.count]), tuple(s.loss[: s.count]), parts)


def _early_stop(e: header.sluice_event) -> EarlyStop:
    known = e.metric_count > 0
    name, best = (_text(e.metrics[0].name), e.metrics[0].value) if known else ("", math.nan)
    return EarlyStop(e.step, name, best, e.best_step, e.evaluations)


def _end(e: header.sluice_event) -> End:
    return End(
        e.steps, _memory(e.peak), e.tokens_per_second, e.mfu, e.data_seconds, _text(e.weights_sha256),
        _text(e.state_sha256), _moved(e), _sent(e),
    )  # fmt: skip


_K = header.sluice_event_kind
_READERS: dict[int, Any] = {
    _K.SLUICE_EVENT_PLAN: _plan,
    _K.SLUICE_EVENT_RESUMED: lambda e: Resumed(e.step),
    _K.SLUICE_EVENT_STEP: _step,
    _K.SLUICE_EVENT_EVAL: _evaluation,
    _K.SLUICE_EVENT_SAVED: lambda e: Saved(e.step, _text(e.path)),
    _K.SLUICE_EVENT_EPOCH: lambda e: Epoch(e.step, e.epoch, e.loss, e.seconds),
    _K.SLUICE_EVENT_END: _end,
    _K.SLUICE_EVENT_PHASE: lambda e: Phase(_text(e.phase), e.done, e.total, e.seconds, e.over),
    _K.SLUICE_EVENT_SAMPLE: _sample,
    _K.SLUICE_EVENT_EARLY_STOP: _early_stop,
}


def read_event(event: header.sluice_event) -> Event | None:
    """The event as it is valid after the call; None: of a kind that a newer library has."""
    reader = _READERS.get(event.kind)
    made: Event | None = reader(event) if reader is not None else None
    return made


# ---- from a line of `sluice train --json` ----

_NAMES: dict[str, Any] = {
    "plan": PlanEvent, "resumed": Resumed, "step": Step, "eval": Evaluation, "saved": Saved, "epoch": Epoch,
    "phase": Phase, "early_stop": EarlyStop, "end": End,
}  # fmt: skip


def read_json(line: Mapping[str, Any], steps: int) -> Event | None:
    """The same of an object that the program wrote. `steps`: all that are planned, which its lines do not repeat."""
    name = line.get("event", "")
    if name == "sample":
        parts = tuple((p["text"], p["loss"]) for p in line["parts"])
        return Sample(tuple(line["tokens"]), tuple(line["loss"]), parts)
    kind = _NAMES.get(name)
    if kind is None:
        return None
    known = {f.name: f.type for f in fields(kind)}
    given = {k: v for k, v in line.items() if k in known}
    for key, value in given.items():
        if value is None:
            given[key] = math.nan
        elif key == "peak_bytes":
            given[key] = Memory(value["device"], value["host"], value["disk"])
        elif key == "metrics":
            given[key] = {k: math.nan if v is None else v for k, v in value.items()}
    if kind is Step:
        given["steps"] = steps
    made: Event = kind(**given)
    return made


EVENT_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(header.sluice_event))
