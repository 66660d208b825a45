"""_settings.py: what engines and optimizers can be told, as types.

Written by python/generate.py from include/sluice.h: change these, not this file."""

from __future__ import annotations

from typing import Dict, Literal, TypedDict

# What each enum of the header is called in Python.
WORDS: Dict[str, Dict[str, int]] = {
    "sluice_log_level": {"warning": 0, "note": 1, "detail": 2},
    "sluice_dtype": {"f32": 0, "i32": 1, "bf16": 2, "f16": 3},
    "sluice_init_kind": {"zero": 0, "one": 1, "normal": 2, "uniform": 3},
    "sluice_rotary_scaling": {"default": 0, "linear": 1, "dynamic": 2, "llama3": 3, "yarn": 4},
    "sluice_optimizer_kind": {"sgd": 0, "adagrad": 1, "adam": 2, "adamw": 3, "lamb": 4, "lars": 5, "lion": 6, "rmsprop": 7},
    "sluice_place": {"auto": 0, "device": 1, "host": 2, "disk": 3},
    "sluice_activations": {"auto": 0, "keep": 1, "recompute": 2, "offload": 3, "selective": 4},
    "sluice_partition": {"layer": 0, "block": 1, "owner": 2, "weighted": 3},
    "sluice_states": {"f32": 0, "bf16": 1, "compact": 2},
    "sluice_device": {"cpu": 0, "cuda": 1, "auto": 2},
    "sluice_run_state": {"running": 0, "finished": 1, "stopped": 2, "failed": 3, "dead": 4, "unknown": 5},
}
# Field of a struct: its enum.
ENUM_FIELDS: Dict[str, Dict[str, str]] = {
    "sluice_init": {"kind": "sluice_init_kind"},
    "sluice_rotary_options": {"scaling": "sluice_rotary_scaling"},
    "sluice_optimizer": {"kind": "sluice_optimizer_kind"},
    "sluice_options": {"parameters": "sluice_place", "optimizer_state": "sluice_place", "activations": "sluice_activations", "partition": "sluice_partition", "precision": "sluice_dtype", "wire": "sluice_dtype", "states": "sluice_states", "device": "sluice_device", "offload_place": "sluice_place"},
    "sluice_event": {"kind": "sluice_event_kind"},
    "sluice_run_status": {"state": "sluice_run_state"},
}

DType = Literal["f32", "i32", "bf16", "f16"]
Device = Literal["cpu", "cuda", "auto"]
InitKind = Literal["zero", "one", "normal", "uniform"]


class LossScale(TypedDict, total=False):
    """Loss scaling of fp16, as DeepSpeed's."""

    # > 0: this scale, never changed; 0: dynamic
    fixed: float
    # dynamic: begins at 2^power; 16
    initial_power: int
    # steps without overflow after which it doubles; 1000
    window: int
    # overflows before it is halved; 2
    hysteresis: int
    # every step without overflow restores the hysteresis; false: doubling does
    consecutive: bool
    # 1. An overflow at the minimum is ERR_NUMBERS
    minimum: float


class OptimizerSettings(TypedDict, total=False):
    """What is left out has the default of PyTorch and DeepSpeed."""

    # beta2 is RMSprop's alpha
    lr: float
    weight_decay: float
    beta1: float
    beta2: float
    epsilon: float
    # SGD, LARS; momentum also RMSprop
    momentum: float
    dampening: float
    nesterov: bool
    amsgrad: bool
    # RMSprop: divides by the deviation of the gradient from its mean
    centered: bool
    # Adam, AdamW, LAMB: no bias correction of the moments
    uncorrected: bool
    # LARS coefficient, 0.001
    trust: float
    # LAMB bounds, 0.01 and 10
    min_trust: float
    max_trust: float


class EngineSettings(TypedDict, total=False):
    """What is left out has the library's default."""

    # global norm; 0: none
    gradient_clipping: float
    # M, micro-batches of this rank in a step (gradient accumulation); at least 1
    accumulation_steps: int
    seed: int
    # 0: all CPUs this process may use
    threads: int
    # budgets; 0: what the machine and its cgroup allow; more does not fit
    device_bytes: int
    host_bytes: int
    parameters: Literal["auto", "device", "host", "disk"]
    optimizer_state: Literal["auto", "device", "host", "disk"]
    activations: Literal["auto", "keep", "recompute", "offload", "selective"]
    # with RECOMPUTE: the kept layer inputs go to the host; SELECTIVE: what is kept
    offload_checkpoints: bool
    # groups of layers that move together; 0: auto
    levels: int
    # levels fetched ahead of use; -1: auto
    prefetch_layers: int
    # plan an evaluation pass too (evaluate, predict)
    evaluation: bool
    # compute nothing: for planning and tests
    null_backend: bool
    # poison the arenas and put guard pages behind them
    guard: bool
    # ZeRO stage, 0 to 3; -1: the fastest that fits
    stage: int
    partition: Literal["layer", "block", "owner", "weighted"]
    # BLOCK: elements, rounded up to a multiple of 1,024; 0: 262,144
    partition_block: int
    # share of the state on the host when optimizer_state is HOST; 1: all
    state_ratio: float
    # stage 3: keep gathered parameters from forward to backward
    keep_gathered: bool
    # F32, BF16 or F16: parameters in use, activations, gradients
    precision: Literal["f32", "i32", "bf16", "f16"]
    # type in which gradients are exchanged and kept; I32: as `precision`
    wire: Literal["f32", "i32", "bf16", "f16"]
    states: Literal["f32", "bf16", "compact"]
    # BF16: a step whose gradient is not finite while its losses are is skipped, as under DeepSpeed; false: it is
    # ERR_NUMBERS, as in fp32.
    check_overflow: bool
    device: Literal["cpu", "cuda", "auto"]
    # CUDA, F32: GEMMs may round their operands to tf32
    tf32: bool
    # Updates may run during backward where none needs the whole gradient: no clipping, no check_overflow, not
    # F16. Same bits. Set the learning rate before backward then; after ERR_NUMBERS, weights and state are not
    # those before the step. Where they need it, those on the host may run on speculation instead: each during
    # backward, into a second copy of its weights and state, and once more where the step turned out to be clipped
    # or skipped.
    early_updates: bool
    # groups of layers that are recomputed together, each from one kept input; 0: auto
    checkpoints: int
    # The disk, for what neither the device nor the host holds (docs/disk.md): folders for swap files, on
    # different disks where they are several, separated by ':'; NULL or "": there is no such tier. Borrowed during
    # creation.
    disk_path: str
    # budget; 0: what is free in these folders less 5 %, this rank's share of it
    disk_bytes: int
    # where activations that leave the device go: HOST, DISK, or AUTO
    offload_place: Literal["auto", "device", "host", "disk"]
    # elements of an update through the disk at a time; 0: by the size of the model; for tests
    disk_chunk: int
    # The update of a step runs beside the next one, whose forward and backward do not see it yet; not for sparse
    # tables. Other mathematics (docs/delayed.md). What is saved, hashed and read by name has every update;
    # evaluation sees what the next step will. early_updates is of no account then.
    delayed_updates: bool
    # delayed_updates: so many steps come first whose update the next step sees; 40
    delay_warmup: int


# Names of optimizers, for Optimizer(kind).
OPTIMIZERS = ["sgd", "adagrad", "adam", "adamw", "lamb", "lars", "lion", "rmsprop"]
