"""sluice: train networks larger than the memory of the device that computes them.

    sluice.plan("run.json")                      what a run needs, before it runs
    sluice.train("run.json", on_step=print)      a run, as the program does it
    sluice.Graph(), sluice.Engine(...)           networks of your own, step by step

docs/python.md is the guide."""

from __future__ import annotations

from ._library import version
from .arrays import Array
from .engine import (
    LAMB, LARS, SGD, Adagrad, Adam, AdamW, Data, Engine, Hashes, Lion, Memory, Optimizer, RMSprop, World,
)  # fmt: skip
from .errors import (
    Error, FileError, InputError, NoFitError, NoMemoryError, NumbersError, RankError, Stopped, StopTraining, UsageError,
)  # fmt: skip
from .events import (
    ClassScore, EarlyStop, End, Epoch, Evaluation, Event, Phase, PlanEvent, Resumed, Sample, Saved, Step,
)  # fmt: skip
from .files import bag_ends, devices, export, inspect, merge, tokenize, verify
from .graph import Graph, Input, Parameter, Tensor
from .jobs import Config, Plan, Run, Sampling, evaluate, generate, plan, program, train

__version__ = version()

__all__ = [
    "Adagrad", "Adam", "AdamW", "Array", "ClassScore", "Config", "Data", "EarlyStop", "End", "Engine", "Epoch", "Error",
    "Evaluation", "Event", "FileError", "Graph", "Hashes", "Input", "InputError", "LAMB", "LARS", "Lion", "Memory",
    "NoFitError", "NoMemoryError", "NumbersError", "Optimizer", "Parameter", "Phase", "Plan", "PlanEvent", "RMSprop",
    "RankError", "Resumed", "Run", "SGD", "Sample", "Sampling", "Saved", "Step", "StopTraining", "Stopped", "Tensor",
    "UsageError", "World", "__version__", "bag_ends", "devices", "evaluate", "export", "generate", "inspect", "merge",
    "plan", "program", "tokenize", "train", "verify", "version",
]  # fmt: skip
