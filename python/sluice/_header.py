"""_header.py: include/sluice.h for ctypes.

Written by python/generate.py from include/sluice.h: change these, not this file."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any

from ._whole import Struct

SLUICE_VERSION_MAJOR = 0
SLUICE_VERSION_MINOR = 2
SLUICE_VERSION_PATCH = 0
SLUICE_MAX_RANK = 6
SLUICE_FOLDER_TEMPERATURE = 1
SLUICE_FOLDER_TOP_K = 2
SLUICE_FOLDER_TOP_P = 4
SLUICE_FOLDER_MIN_P = 8
SLUICE_FOLDER_REPETITION_PENALTY = 16
SLUICE_FOLDER_ALL = 31
SLUICE_NONE = -1


class sluice_status(IntEnum):
    SLUICE_OK = 0
    SLUICE_ERR_FAILED = 1
    SLUICE_ERR_USAGE = 2
    SLUICE_ERR_NO_FIT = 3
    SLUICE_ERR_INPUT = 4
    SLUICE_ERR_RANK = 5
    SLUICE_ERR_IO = 6
    SLUICE_ERR_NUMBERS = 7
    SLUICE_ERR_NO_MEMORY = 8
    SLUICE_ERR_STOPPED = 75


class sluice_log_level(IntEnum):
    SLUICE_LOG_WARNING = 0
    SLUICE_LOG_NOTE = 1
    SLUICE_LOG_DETAIL = 2


class sluice_dtype(IntEnum):
    SLUICE_F32 = 0
    SLUICE_I32 = 1
    SLUICE_BF16 = 2
    SLUICE_F16 = 3
    SLUICE_DTYPE_COUNT = 4


class sluice_init_kind(IntEnum):
    SLUICE_INIT_ZERO = 0
    SLUICE_INIT_ONE = 1
    SLUICE_INIT_NORMAL = 2
    SLUICE_INIT_UNIFORM = 3


class sluice_rotary_scaling(IntEnum):
    SLUICE_ROTARY_DEFAULT = 0
    SLUICE_ROTARY_LINEAR = 1
    SLUICE_ROTARY_DYNAMIC = 2
    SLUICE_ROTARY_LLAMA3 = 3
    SLUICE_ROTARY_YARN = 4


class sluice_optimizer_kind(IntEnum):
    SLUICE_SGD = 0
    SLUICE_ADAGRAD = 1
    SLUICE_ADAM = 2
    SLUICE_ADAMW = 3
    SLUICE_LAMB = 4
    SLUICE_LARS = 5
    SLUICE_LION = 6
    SLUICE_RMSPROP = 7


class sluice_place(IntEnum):
    SLUICE_PLACE_AUTO = 0
    SLUICE_PLACE_DEVICE = 1
    SLUICE_PLACE_HOST = 2
    SLUICE_PLACE_DISK = 3


class sluice_activations(IntEnum):
    SLUICE_ACTIVATIONS_AUTO = 0
    SLUICE_ACTIVATIONS_KEEP = 1
    SLUICE_ACTIVATIONS_RECOMPUTE = 2
    SLUICE_ACTIVATIONS_OFFLOAD = 3
    SLUICE_ACTIVATIONS_SELECTIVE = 4


class sluice_partition(IntEnum):
    SLUICE_PARTITION_LAYER = 0
    SLUICE_PARTITION_BLOCK = 1
    SLUICE_PARTITION_OWNER = 2
    SLUICE_PARTITION_WEIGHTED = 3


class sluice_states(IntEnum):
    SLUICE_STATES_F32 = 0
    SLUICE_STATES_BF16 = 1
    SLUICE_STATES_COMPACT = 2


class sluice_device(IntEnum):
    SLUICE_DEVICE_CPU = 0
    SLUICE_DEVICE_CUDA = 1
    SLUICE_DEVICE_AUTO = 2


class sluice_event_kind(IntEnum):
    SLUICE_EVENT_PLAN = 0
    SLUICE_EVENT_RESUMED = 1
    SLUICE_EVENT_STEP = 2
    SLUICE_EVENT_EVAL = 3
    SLUICE_EVENT_SAVED = 4
    SLUICE_EVENT_EPOCH = 5
    SLUICE_EVENT_END = 6
    SLUICE_EVENT_PHASE = 7
    SLUICE_EVENT_SAMPLE = 8
    SLUICE_EVENT_EARLY_STOP = 9
    SLUICE_EVENT_TUNE = 10


class sluice_run_state(IntEnum):
    SLUICE_RUN_RUNNING = 0
    SLUICE_RUN_FINISHED = 1
    SLUICE_RUN_STOPPED = 2
    SLUICE_RUN_FAILED = 3
    SLUICE_RUN_DEAD = 4
    SLUICE_RUN_UNKNOWN = 5


sluice_log_fn = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
sluice_fill_fn = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_char_p), ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.c_int)


class sluice_init(Struct):
    kind: int
    scale: float


class sluice_conv_options(Struct):
    size: int
    stride_h: int
    stride_w: int
    padding_h: int
    padding_w: int
    dilation_h: int
    dilation_w: int
    groups: int


class sluice_pool_options(Struct):
    size: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    padding_h: int
    padding_w: int
    ceil_mode: bool
    count_include_pad: bool


class sluice_batch_norm_options(Struct):
    size: int
    epsilon: float
    momentum: float
    relu: bool
    residual: int
    all_ranks: bool


class sluice_rotary_options(Struct):
    size: int
    heads: int
    head_width: int
    rotated: int
    base: float
    scaling: int
    factor: float
    context: int
    low: float
    high: float
    attention_factor: float
    mscale: float
    mscale_all_dim: float
    fractional: bool


class sluice_attention_options(Struct):
    size: int
    heads: int
    kv_heads: int
    causal: bool
    window: int
    softcap: float
    scale: float


class sluice_optimizer(Struct):
    size: int
    kind: int
    lr: float
    weight_decay: float
    beta1: float
    beta2: float
    epsilon: float
    momentum: float
    dampening: float
    nesterov: bool
    amsgrad: bool
    centered: bool
    uncorrected: bool
    trust: float
    min_trust: float
    max_trust: float


class sluice_launch_options(Struct):
    size: int
    ranks: int
    timeout_seconds: float
    stop: Any
    save_request: Any


class sluice_loss_scale(Struct):
    fixed: float
    initial_power: int
    window: int
    hysteresis: int
    consecutive: bool
    minimum: float


class sluice_options(Struct):
    size: int
    optimizer: sluice_optimizer
    gradient_clipping: float
    accumulation_steps: int
    seed: int
    threads: int
    device_bytes: int
    host_bytes: int
    parameters: int
    optimizer_state: int
    activations: int
    offload_checkpoints: bool
    levels: int
    prefetch_layers: int
    evaluation: bool
    null_backend: bool
    guard: bool
    small_norm_nodes: bool
    log: Any
    log_user: Any
    world: Any
    stage: int
    partition: int
    partition_weights: Any
    partition_block: int
    state_ratio: float
    keep_gathered: bool
    precision: int
    wire: int
    states: int
    loss_scale: sluice_loss_scale
    check_overflow: bool
    device: int
    tf32: bool
    early_updates: bool
    checkpoints: int
    disk_path: bytes | None
    disk_bytes: int
    offload_place: int
    disk_chunk: int
    delayed_updates: bool
    delay_warmup: int


class sluice_array(Struct):
    name: bytes | None
    data: Any
    bytes: int


class sluice_batch(Struct):
    arrays: Any
    count: int


class sluice_memory(Struct):
    device: int
    host: int
    disk: int


class sluice_setting(Struct):
    key: bytes | None
    type: bytes | None
    fallback: bytes | None
    help: bytes | None
    choices: bytes | None
    chapter: bytes | None
    example: bytes | None
    effect: bytes | None
    automatic: bool
    path: bool


class sluice_sample(Struct):
    count: int
    ids: Any
    loss: Any
    part_count: int
    texts: Any
    part_loss: Any


class sluice_metric(Struct):
    name: bytes | None
    value: float
    shown: bool


class sluice_class_score(Struct):
    name: bytes | None
    precision: float
    recall: float
    f1: float
    support: int


class sluice_candidate(Struct):
    settings: bytes | None
    chosen: bool
    fits: bool
    step_seconds: float
    measured_seconds: float
    peak: sluice_memory
    lacks: int


class sluice_stream_use(Struct):
    name: bytes | None
    busy_seconds: float
    exposed_seconds: float


class sluice_event(Struct):
    kind: int
    ranks: int
    stage: int
    parameters: int
    peak: sluice_memory
    overhead_bytes: int
    state_parameters: int
    state_gradients: int
    state_optimizer: int
    step_seconds: float
    moved_to_device: int
    moved_to_host: int
    moved_disk_read: int
    moved_disk_write: int
    comm_gather: int
    comm_reduce: int
    comm_norm: int
    table_rows: int
    table_bytes: int
    table_sent: int
    weights_sha256: bytes | None
    state_sha256: bytes | None
    speculated: int
    rolled_back: int
    step: int
    steps: int
    epoch: float
    loss: float
    accuracy: float
    lr: float
    gradient_norm: float
    seconds: float
    loss_scale: float
    samples: int
    tokens: int
    skipped: bool
    model_flops: float
    peak_flops: float
    path: bytes | None
    perplexity: float
    bits_per_byte: float
    tokens_per_second: float
    mfu: float
    phase: bytes | None
    done: int
    total: int
    over: bool
    targets: int
    sample: Any
    data_seconds: float
    metrics: Any
    metric_count: int
    best: bool
    judged: bool
    class_count: int
    classes: Any
    confusion: Any
    best_step: int
    evaluations: int
    memory: sluice_memory
    resident_bytes: int
    total_samples: int
    judge: bytes | None
    fits: bool
    needs: sluice_memory
    has: sluice_memory
    limit: bytes | None
    verdict: bytes | None
    candidates: Any
    candidate_count: int
    streams: Any
    stream_count: int
    timed_seconds: float
    speculating_layers: int
    speculation_bytes: int
    speculation_gain: float
    redo_seconds: float
    host_bytes_per_parameter: float
    table_disk_read: int
    table_disk_written: int


class sluice_run_status(Struct):
    state: int
    run: Any
    host: Any
    pid: int
    ranks: int
    started: float
    heard: float
    step: int
    steps: int
    loss: float
    metric: Any
    best: float
    best_step: int
    validation_loss: float
    early: bool
    step_seconds: float
    samples_per_second: float
    tokens_per_second: float
    seconds_left: float
    saved_step: int
    saved_path: Any
    memory: sluice_memory
    resident_bytes: int
    warning: Any
    message: Any
    exit_status: int


class sluice_job_options(Struct):
    size: int
    resume: bool
    weights: bytes | None
    event: Any
    user: Any
    plan_out: Any
    out: Any
    json: bool
    stop: Any
    save_request: Any
    log: Any
    log_user: Any
    prompt: bytes | None
    tokens: int
    temperature: float
    top_k: int
    world: Any
    ranks: int
    machine: bytes | None
    trace: bytes | None
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    stops: Any
    stop_count: int
    prompts: bytes | None
    batch: int
    chat: bool
    system: bytes | None
    template_name: bytes | None
    from_folder: int
    predictions: bytes | None
    best: bool
    report: bytes | None
    log_file: bytes | None
    gpu: bytes | None
    gpus: int
    ram_bytes: int
    host: bytes | None
    tune_steps: int
    tune_keep: int
    time_step: bool
    replies: bytes | None


class sluice_tokenize_options(Struct):
    size: int
    inputs: Any
    input_count: int
    standard_input: Any
    out: bytes | None
    validation: float
    validation_out: bytes | None
    token_bytes: int
    llmc_header: bool
    lines: bool
    eos: bytes | None
    special_in_text: bool
    add_special: bool
    threads: int
    progress: Any
    user: Any
    stop: Any


sluice_init._fields_ = [
    ("kind", ctypes.c_int),
    ("scale", ctypes.c_float),
]

sluice_conv_options._fields_ = [
    ("size", ctypes.c_size_t),
    ("stride_h", ctypes.c_int),
    ("stride_w", ctypes.c_int),
    ("padding_h", ctypes.c_int),
    ("padding_w", ctypes.c_int),
    ("dilation_h", ctypes.c_int),
    ("dilation_w", ctypes.c_int),
    ("groups", ctypes.c_int),
]

sluice_pool_options._fields_ = [
    ("size", ctypes.c_size_t),
    ("kernel_h", ctypes.c_int),
    ("kernel_w", ctypes.c_int),
    ("stride_h", ctypes.c_int),
    ("stride_w", ctypes.c_int),
    ("padding_h", ctypes.c_int),
    ("padding_w", ctypes.c_int),
    ("ceil_mode", ctypes.c_bool),
    ("count_include_pad", ctypes.c_bool),
]

sluice_batch_norm_options._fields_ = [
    ("size", ctypes.c_size_t),
    ("epsilon", ctypes.c_float),
    ("momentum", ctypes.c_float),
    ("relu", ctypes.c_bool),
    ("residual", ctypes.c_int32),
    ("all_ranks", ctypes.c_bool),
]

sluice_rotary_options._fields_ = [
    ("size", ctypes.c_size_t),
    ("heads", ctypes.c_int),
    ("head_width", ctypes.c_int),
    ("rotated", ctypes.c_int),
    ("base", ctypes.c_float),
    ("scaling", ctypes.c_int),
    ("factor", ctypes.c_float),
    ("context", ctypes.c_int),
    ("low", ctypes.c_float),
    ("high", ctypes.c_float),
    ("attention_factor", ctypes.c_float),
    ("mscale", ctypes.c_float),
    ("mscale_all_dim", ctypes.c_float),
    ("fractional", ctypes.c_bool),
]

sluice_attention_options._fields_ = [
    ("size", ctypes.c_size_t),
    ("heads", ctypes.c_int),
    ("kv_heads", ctypes.c_int),
    ("causal", ctypes.c_bool),
    ("window", ctypes.c_int),
    ("softcap", ctypes.c_float),
    ("scale", ctypes.c_float),
]

sluice_optimizer._fields_ = [
    ("size", ctypes.c_size_t),
    ("kind", ctypes.c_int),
    ("lr", ctypes.c_double),
    ("weight_decay", ctypes.c_double),
    ("beta1", ctypes.c_double),
    ("beta2", ctypes.c_double),
    ("epsilon", ctypes.c_double),
    ("momentum", ctypes.c_double),
    ("dampening", ctypes.c_double),
    ("nesterov", ctypes.c_bool),
    ("amsgrad", ctypes.c_bool),
    ("centered", ctypes.c_bool),
    ("uncorrected", ctypes.c_bool),
    ("trust", ctypes.c_double),
    ("min_trust", ctypes.c_double),
    ("max_trust", ctypes.c_double),
]

sluice_launch_options._fields_ = [
    ("size", ctypes.c_size_t),
    ("ranks", ctypes.c_int),
    ("timeout_seconds", ctypes.c_double),
    ("stop", ctypes.POINTER(ctypes.c_int)),
    ("save_request", ctypes.POINTER(ctypes.c_int)),
]

sluice_loss_scale._fields_ = [
    ("fixed", ctypes.c_double),
    ("initial_power", ctypes.c_int),
    ("window", ctypes.c_int),
    ("hysteresis", ctypes.c_int),
    ("consecutive", ctypes.c_bool),
    ("minimum", ctypes.c_double),
]

sluice_options._fields_ = [
    ("size", ctypes.c_size_t),
    ("optimizer", sluice_optimizer),
    ("gradient_clipping", ctypes.c_double),
    ("accumulation_steps", ctypes.c_int),
    ("seed", ctypes.c_uint64),
    ("threads", ctypes.c_int),
    ("device_bytes", ctypes.c_uint64),
    ("host_bytes", ctypes.c_uint64),
    ("parameters", ctypes.c_int),
    ("optimizer_state", ctypes.c_int),
    ("activations", ctypes.c_int),
    ("offload_checkpoints", ctypes.c_bool),
    ("levels", ctypes.c_int),
    ("prefetch_layers", ctypes.c_int),
    ("evaluation", ctypes.c_bool),
    ("null_backend", ctypes.c_bool),
    ("guard", ctypes.c_bool),
    ("small_norm_nodes", ctypes.c_bool),
    ("log", sluice_log_fn),
    ("log_user", ctypes.c_void_p),
    ("world", ctypes.c_void_p),
    ("stage", ctypes.c_int),
    ("partition", ctypes.c_int),
    ("partition_weights", ctypes.POINTER(ctypes.c_double)),
    ("partition_block", ctypes.c_int64),
    ("state_ratio", ctypes.c_double),
    ("keep_gathered", ctypes.c_bool),
    ("precision", ctypes.c_int),
    ("wire", ctypes.c_int),
    ("states", ctypes.c_int),
    ("loss_scale", sluice_loss_scale),
    ("check_overflow", ctypes.c_bool),
    ("device", ctypes.c_int),
    ("tf32", ctypes.c_bool),
    ("early_updates", ctypes.c_bool),
    ("checkpoints", ctypes.c_int),
    ("disk_path", ctypes.c_char_p),
    ("disk_bytes", ctypes.c_uint64),
    ("offload_place", ctypes.c_int),
    ("disk_chunk", ctypes.c_int64),
    ("delayed_updates", ctypes.c_bool),
    ("delay_warmup", ctypes.c_int64),
]

sluice_array._fields_ = [
    ("name", ctypes.c_char_p),
    ("data", ctypes.c_void_p),
    ("bytes", ctypes.c_size_t),
]

sluice_batch._fields_ = [
    ("arrays", ctypes.POINTER(sluice_array)),
    ("count", ctypes.c_int),
]

sluice_memory._fields_ = [
    ("device", ctypes.c_uint64),
    ("host", ctypes.c_uint64),
    ("disk", ctypes.c_uint64),
]

sluice_setting._fields_ = [
    ("key", ctypes.c_char_p),
    ("type", ctypes.c_char_p),
    ("fallback", ctypes.c_char_p),
    ("help", ctypes.c_char_p),
    ("choices", ctypes.c_char_p),
    ("chapter", ctypes.c_char_p),
    ("example", ctypes.c_char_p),
    ("effect", ctypes.c_char_p),
    ("automatic", ctypes.c_bool),
    ("path", ctypes.c_bool),
]

sluice_sample._fields_ = [
    ("count", ctypes.c_int64),
    ("ids", ctypes.POINTER(ctypes.c_int32)),
    ("loss", ctypes.POINTER(ctypes.c_ubyte)),
    ("part_count", ctypes.c_int),
    ("texts", ctypes.POINTER(ctypes.c_char_p)),
    ("part_loss", ctypes.POINTER(ctypes.c_ubyte)),
]

sluice_metric._fields_ = [
    ("name", ctypes.c_char_p),
    ("value", ctypes.c_double),
    ("shown", ctypes.c_bool),
]

sluice_class_score._fields_ = [
    ("name", ctypes.c_char_p),
    ("precision", ctypes.c_double),
    ("recall", ctypes.c_double),
    ("f1", ctypes.c_double),
    ("support", ctypes.c_uint64),
]

sluice_candidate._fields_ = [
    ("settings", ctypes.c_char_p),
    ("chosen", ctypes.c_bool),
    ("fits", ctypes.c_bool),
    ("step_seconds", ctypes.c_double),
    ("measured_seconds", ctypes.c_double),
    ("peak", sluice_memory),
    ("lacks", ctypes.c_uint64),
]

sluice_stream_use._fields_ = [
    ("name", ctypes.c_char_p),
    ("busy_seconds", ctypes.c_double),
    ("exposed_seconds", ctypes.c_double),
]

sluice_event._fields_ = [
    ("kind", ctypes.c_int),
    ("ranks", ctypes.c_int),
    ("stage", ctypes.c_int),
    ("parameters", ctypes.c_uint64),
    ("peak", sluice_memory),
    ("overhead_bytes", ctypes.c_uint64),
    ("state_parameters", ctypes.c_uint64),
    ("state_gradients", ctypes.c_uint64),
    ("state_optimizer", ctypes.c_uint64),
    ("step_seconds", ctypes.c_double),
    ("moved_to_device", ctypes.c_uint64),
    ("moved_to_host", ctypes.c_uint64),
    ("moved_disk_read", ctypes.c_uint64),
    ("moved_disk_write", ctypes.c_uint64),
    ("comm_gather", ctypes.c_uint64),
    ("comm_reduce", ctypes.c_uint64),
    ("comm_norm", ctypes.c_uint64),
    ("table_rows", ctypes.c_uint64),
    ("table_bytes", ctypes.c_uint64),
    ("table_sent", ctypes.c_uint64),
    ("weights_sha256", ctypes.c_char_p),
    ("state_sha256", ctypes.c_char_p),
    ("speculated", ctypes.c_uint64),
    ("rolled_back", ctypes.c_uint64),
    ("step", ctypes.c_uint64),
    ("steps", ctypes.c_uint64),
    ("epoch", ctypes.c_double),
    ("loss", ctypes.c_double),
    ("accuracy", ctypes.c_double),
    ("lr", ctypes.c_double),
    ("gradient_norm", ctypes.c_double),
    ("seconds", ctypes.c_double),
    ("loss_scale", ctypes.c_double),
    ("samples", ctypes.c_uint64),
    ("tokens", ctypes.c_uint64),
    ("skipped", ctypes.c_bool),
    ("model_flops", ctypes.c_double),
    ("peak_flops", ctypes.c_double),
    ("path", ctypes.c_char_p),
    ("perplexity", ctypes.c_double),
    ("bits_per_byte", ctypes.c_double),
    ("tokens_per_second", ctypes.c_double),
    ("mfu", ctypes.c_double),
    ("phase", ctypes.c_char_p),
    ("done", ctypes.c_uint64),
    ("total", ctypes.c_uint64),
    ("over", ctypes.c_bool),
    ("targets", ctypes.c_uint64),
    ("sample", ctypes.POINTER(sluice_sample)),
    ("data_seconds", ctypes.c_double),
    ("metrics", ctypes.POINTER(sluice_metric)),
    ("metric_count", ctypes.c_int),
    ("best", ctypes.c_bool),
    ("judged", ctypes.c_bool),
    ("class_count", ctypes.c_int64),
    ("classes", ctypes.POINTER(sluice_class_score)),
    ("confusion", ctypes.POINTER(ctypes.c_uint64)),
    ("best_step", ctypes.c_uint64),
    ("evaluations", ctypes.c_uint64),
    ("memory", sluice_memory),
    ("resident_bytes", ctypes.c_uint64),
    ("total_samples", ctypes.c_uint64),
    ("judge", ctypes.c_char_p),
    ("fits", ctypes.c_bool),
    ("needs", sluice_memory),
    ("has", sluice_memory),
    ("limit", ctypes.c_char_p),
    ("verdict", ctypes.c_char_p),
    ("candidates", ctypes.POINTER(sluice_candidate)),
    ("candidate_count", ctypes.c_int),
    ("streams", ctypes.POINTER(sluice_stream_use)),
    ("stream_count", ctypes.c_int),
    ("timed_seconds", ctypes.c_double),
    ("speculating_layers", ctypes.c_int),
    ("speculation_bytes", ctypes.c_uint64),
    ("speculation_gain", ctypes.c_double),
    ("redo_seconds", ctypes.c_double),
    ("host_bytes_per_parameter", ctypes.c_double),
    ("table_disk_read", ctypes.c_uint64),
    ("table_disk_written", ctypes.c_uint64),
]

sluice_run_status._fields_ = [
    ("state", ctypes.c_int),
    ("run", ctypes.c_char * 40),
    ("host", ctypes.c_char * 128),
    ("pid", ctypes.c_int64),
    ("ranks", ctypes.c_int),
    ("started", ctypes.c_double),
    ("heard", ctypes.c_double),
    ("step", ctypes.c_uint64),
    ("steps", ctypes.c_uint64),
    ("loss", ctypes.c_double),
    ("metric", ctypes.c_char * 32),
    ("best", ctypes.c_double),
    ("best_step", ctypes.c_uint64),
    ("validation_loss", ctypes.c_double),
    ("early", ctypes.c_bool),
    ("step_seconds", ctypes.c_double),
    ("samples_per_second", ctypes.c_double),
    ("tokens_per_second", ctypes.c_double),
    ("seconds_left", ctypes.c_double),
    ("saved_step", ctypes.c_uint64),
    ("saved_path", ctypes.c_char * 512),
    ("memory", sluice_memory),
    ("resident_bytes", ctypes.c_uint64),
    ("warning", ctypes.c_char * 512),
    ("message", ctypes.c_char * 512),
    ("exit_status", ctypes.c_int),
]

sluice_job_options._fields_ = [
    ("size", ctypes.c_size_t),
    ("resume", ctypes.c_bool),
    ("weights", ctypes.c_char_p),
    ("event", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(sluice_event))),
    ("user", ctypes.c_void_p),
    ("plan_out", ctypes.c_void_p),
    ("out", ctypes.c_void_p),
    ("json", ctypes.c_bool),
    ("stop", ctypes.POINTER(ctypes.c_int)),
    ("save_request", ctypes.POINTER(ctypes.c_int)),
    ("log", sluice_log_fn),
    ("log_user", ctypes.c_void_p),
    ("prompt", ctypes.c_char_p),
    ("tokens", ctypes.c_int64),
    ("temperature", ctypes.c_double),
    ("top_k", ctypes.c_int),
    ("world", ctypes.c_void_p),
    ("ranks", ctypes.c_int),
    ("machine", ctypes.c_char_p),
    ("trace", ctypes.c_char_p),
    ("top_p", ctypes.c_double),
    ("min_p", ctypes.c_double),
    ("repetition_penalty", ctypes.c_double),
    ("seed", ctypes.c_int64),
    ("stops", ctypes.POINTER(ctypes.c_char_p)),
    ("stop_count", ctypes.c_int),
    ("prompts", ctypes.c_char_p),
    ("batch", ctypes.c_int),
    ("chat", ctypes.c_bool),
    ("system", ctypes.c_char_p),
    ("template_name", ctypes.c_char_p),
    ("in", ctypes.c_void_p),
    ("from_folder", ctypes.c_uint),
    ("predictions", ctypes.c_char_p),
    ("best", ctypes.c_bool),
    ("report", ctypes.c_char_p),
    ("log_file", ctypes.c_char_p),
    ("gpu", ctypes.c_char_p),
    ("gpus", ctypes.c_int),
    ("ram_bytes", ctypes.c_uint64),
    ("host", ctypes.c_char_p),
    ("tune_steps", ctypes.c_int),
    ("tune_keep", ctypes.c_int),
    ("time_step", ctypes.c_bool),
    ("replies", ctypes.c_char_p),
]

sluice_tokenize_options._fields_ = [
    ("size", ctypes.c_size_t),
    ("inputs", ctypes.POINTER(ctypes.c_char_p)),
    ("input_count", ctypes.c_int),
    ("standard_input", ctypes.c_void_p),
    ("out", ctypes.c_char_p),
    ("validation", ctypes.c_double),
    ("validation_out", ctypes.c_char_p),
    ("token_bytes", ctypes.c_int),
    ("llmc_header", ctypes.c_bool),
    ("lines", ctypes.c_bool),
    ("eos", ctypes.c_char_p),
    ("special_in_text", ctypes.c_bool),
    ("add_special", ctypes.c_bool),
    ("threads", ctypes.c_int),
    ("progress", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)),
    ("user", ctypes.c_void_p),
    ("stop", ctypes.POINTER(ctypes.c_int)),
]

# Function: what it returns, and its arguments by name.
FUNCTIONS: dict[str, tuple[Any, list[tuple[str, Any]]]] = {
    "sluice_version": (ctypes.c_char_p, []),
    "sluice_error": (ctypes.c_char_p, []),
    "sluice_printable": (ctypes.c_size_t, [("text", ctypes.c_char_p), ("out", ctypes.c_char_p), ("out_bytes", ctypes.c_size_t)]),
    "sluice_exit_status": (ctypes.c_int, [("status", ctypes.c_int)]),
    "sluice_graph_create": (ctypes.c_int, [("out", ctypes.POINTER(ctypes.c_void_p))]),
    "sluice_graph_destroy": (None, [("g", ctypes.c_void_p)]),
    "sluice_graph_check": (ctypes.c_int, [("g", ctypes.c_void_p)]),
    "sluice_layer": (None, [("g", ctypes.c_void_p), ("name", ctypes.c_char_p)]),
    "sluice_input": (ctypes.c_int32, [("g", ctypes.c_void_p), ("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int), ("dims", ctypes.POINTER(ctypes.c_int64))]),
    "sluice_parameter": (ctypes.c_int32, [("g", ctypes.c_void_p), ("name", ctypes.c_char_p), ("rank", ctypes.c_int), ("dims", ctypes.POINTER(ctypes.c_int64)), ("init", sluice_init)]),
    "sluice_freeze": (None, [("g", ctypes.c_void_p), ("parameter", ctypes.c_int32)]),
    "sluice_sparse": (None, [("g", ctypes.c_void_p), ("parameter", ctypes.c_int32), ("most_rows", ctypes.c_int64)]),
    "sluice_add": (ctypes.c_int32, [("g", ctypes.c_void_p), ("a", ctypes.c_int32), ("b", ctypes.c_int32)]),
    "sluice_subtract": (ctypes.c_int32, [("g", ctypes.c_void_p), ("a", ctypes.c_int32), ("b", ctypes.c_int32)]),
    "sluice_multiply": (ctypes.c_int32, [("g", ctypes.c_void_p), ("a", ctypes.c_int32), ("b", ctypes.c_int32)]),
    "sluice_scale": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("factor", ctypes.c_float)]),
    "sluice_linear": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("features", ctypes.c_int64), ("name", ctypes.c_char_p)]),
    "sluice_linear_with": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("weight", ctypes.c_int32), ("bias", ctypes.c_int32), ("in_out", ctypes.c_bool)]),
    "sluice_matmul": (ctypes.c_int32, [("g", ctypes.c_void_p), ("a", ctypes.c_int32), ("b", ctypes.c_int32), ("transpose_a", ctypes.c_bool), ("transpose_b", ctypes.c_bool)]),
    "sluice_embedding": (ctypes.c_int32, [("g", ctypes.c_void_p), ("ids", ctypes.c_int32), ("table", ctypes.c_int32)]),
    "sluice_bag": (ctypes.c_int32, [("g", ctypes.c_void_p), ("rows", ctypes.c_int32), ("ends", ctypes.c_int32), ("mean", ctypes.c_bool)]),
    "sluice_embedding_bag": (ctypes.c_int32, [("g", ctypes.c_void_p), ("ids", ctypes.c_int32), ("ends", ctypes.c_int32), ("table", ctypes.c_int32), ("mean", ctypes.c_bool)]),
    "sluice_bag_ends": (ctypes.c_int, [("bags", ctypes.POINTER(ctypes.c_int32)), ("count", ctypes.c_int64), ("bag_count", ctypes.c_int64), ("ends", ctypes.POINTER(ctypes.c_int32))]),
    "sluice_conv_options_init_sized": (None, [("o", ctypes.POINTER(sluice_conv_options)), ("size", ctypes.c_size_t)]),
    "sluice_conv2d": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("weight", ctypes.c_int32), ("bias", ctypes.c_int32), ("options", ctypes.POINTER(sluice_conv_options))]),
    "sluice_pool_options_init_sized": (None, [("o", ctypes.POINTER(sluice_pool_options)), ("size", ctypes.c_size_t)]),
    "sluice_max_pool2d": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("options", ctypes.POINTER(sluice_pool_options))]),
    "sluice_avg_pool2d": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("options", ctypes.POINTER(sluice_pool_options))]),
    "sluice_global_avg_pool": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_flatten": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_relu": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_gelu": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("exact", ctypes.c_bool)]),
    "sluice_silu": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_tanh": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_sigmoid": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_swiglu": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_geglu": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("exact", ctypes.c_bool)]),
    "sluice_softcap": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("cap", ctypes.c_float)]),
    "sluice_softmax": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_log_softmax": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_layer_norm": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("weight", ctypes.c_int32), ("bias", ctypes.c_int32), ("epsilon", ctypes.c_float)]),
    "sluice_rms_norm": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("weight", ctypes.c_int32), ("epsilon", ctypes.c_float)]),
    "sluice_rms_norm_offset": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("weight", ctypes.c_int32), ("epsilon", ctypes.c_float), ("offset", ctypes.c_float)]),
    "sluice_batch_norm_options_init_sized": (None, [("o", ctypes.POINTER(sluice_batch_norm_options)), ("size", ctypes.c_size_t)]),
    "sluice_batch_norm": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("name", ctypes.c_char_p), ("options", ctypes.POINTER(sluice_batch_norm_options))]),
    "sluice_group_norm": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("groups", ctypes.c_int), ("name", ctypes.c_char_p), ("epsilon", ctypes.c_float)]),
    "sluice_qk_norm": (ctypes.c_int32, [("g", ctypes.c_void_p), ("qkv", ctypes.c_int32), ("q_weight", ctypes.c_int32), ("k_weight", ctypes.c_int32), ("heads", ctypes.c_int), ("kv_heads", ctypes.c_int), ("epsilon", ctypes.c_float), ("offset", ctypes.c_float)]),
    "sluice_rotary": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("heads", ctypes.c_int), ("head_width", ctypes.c_int), ("base", ctypes.c_float)]),
    "sluice_rotary_options_init_sized": (None, [("o", ctypes.POINTER(sluice_rotary_options)), ("size", ctypes.c_size_t)]),
    "sluice_rotary_with": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("positions", ctypes.c_int32), ("options", ctypes.POINTER(sluice_rotary_options))]),
    "sluice_attention": (ctypes.c_int32, [("g", ctypes.c_void_p), ("q", ctypes.c_int32), ("k", ctypes.c_int32), ("v", ctypes.c_int32), ("heads", ctypes.c_int), ("kv_heads", ctypes.c_int), ("causal", ctypes.c_bool)]),
    "sluice_attention_packed": (ctypes.c_int32, [("g", ctypes.c_void_p), ("qkv", ctypes.c_int32), ("heads", ctypes.c_int), ("kv_heads", ctypes.c_int), ("causal", ctypes.c_bool)]),
    "sluice_attention_options_init_sized": (None, [("o", ctypes.POINTER(sluice_attention_options)), ("size", ctypes.c_size_t)]),
    "sluice_attention_with": (ctypes.c_int32, [("g", ctypes.c_void_p), ("q", ctypes.c_int32), ("k", ctypes.c_int32), ("v", ctypes.c_int32), ("positions", ctypes.c_int32), ("options", ctypes.POINTER(sluice_attention_options))]),
    "sluice_dropout": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("p", ctypes.c_float)]),
    "sluice_reshape": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("rank", ctypes.c_int), ("dims", ctypes.POINTER(ctypes.c_int64))]),
    "sluice_transpose": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("order", ctypes.POINTER(ctypes.c_int))]),
    "sluice_split": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("axis", ctypes.c_int), ("start", ctypes.c_int64), ("size", ctypes.c_int64)]),
    "sluice_add_part": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("part", ctypes.c_int32), ("axis", ctypes.c_int), ("start", ctypes.c_int64)]),
    "sluice_concat": (ctypes.c_int32, [("g", ctypes.c_void_p), ("values", ctypes.POINTER(ctypes.c_int32)), ("count", ctypes.c_int), ("axis", ctypes.c_int)]),
    "sluice_cross_entropy": (ctypes.c_int32, [("g", ctypes.c_void_p), ("logits", ctypes.c_int32), ("targets", ctypes.c_int32), ("ignore_index", ctypes.c_int32)]),
    "sluice_linear_cross_entropy": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("weight", ctypes.c_int32), ("targets", ctypes.c_int32), ("ignore_index", ctypes.c_int32)]),
    "sluice_cross_entropy_capped": (ctypes.c_int32, [("g", ctypes.c_void_p), ("logits", ctypes.c_int32), ("targets", ctypes.c_int32), ("ignore_index", ctypes.c_int32), ("softcap", ctypes.c_float)]),
    "sluice_linear_cross_entropy_capped": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("weight", ctypes.c_int32), ("targets", ctypes.c_int32), ("ignore_index", ctypes.c_int32), ("softcap", ctypes.c_float)]),
    "sluice_cross_entropy_smoothed": (ctypes.c_int32, [("g", ctypes.c_void_p), ("logits", ctypes.c_int32), ("targets", ctypes.c_int32), ("ignore_index", ctypes.c_int32), ("softcap", ctypes.c_float), ("smoothing", ctypes.c_float)]),
    "sluice_linear_cross_entropy_smoothed": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("weight", ctypes.c_int32), ("targets", ctypes.c_int32), ("ignore_index", ctypes.c_int32), ("softcap", ctypes.c_float), ("smoothing", ctypes.c_float)]),
    "sluice_linear_cross_entropy_with": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32), ("weight", ctypes.c_int32), ("bias", ctypes.c_int32), ("targets", ctypes.c_int32), ("ignore_index", ctypes.c_int32), ("softcap", ctypes.c_float), ("smoothing", ctypes.c_float)]),
    "sluice_mse": (ctypes.c_int32, [("g", ctypes.c_void_p), ("y", ctypes.c_int32), ("target", ctypes.c_int32)]),
    "sluice_bce_with_logits": (ctypes.c_int32, [("g", ctypes.c_void_p), ("y", ctypes.c_int32), ("target", ctypes.c_int32), ("weight", ctypes.c_int32)]),
    "sluice_gru": (ctypes.c_int32, [("g", ctypes.c_void_p), ("gates_x", ctypes.c_int32), ("weight", ctypes.c_int32), ("bias", ctypes.c_int32), ("lengths", ctypes.c_int32), ("reverse", ctypes.c_bool)]),
    "sluice_ctc_loss": (ctypes.c_int32, [("g", ctypes.c_void_p), ("logits", ctypes.c_int32), ("labels", ctypes.c_int32), ("lengths", ctypes.c_int32), ("blank", ctypes.c_int32), ("zero_infinity", ctypes.c_bool)]),
    "sluice_sum": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_mean": (ctypes.c_int32, [("g", ctypes.c_void_p), ("x", ctypes.c_int32)]),
    "sluice_set_loss": (None, [("g", ctypes.c_void_p), ("loss", ctypes.c_int32)]),
    "sluice_set_output": (None, [("g", ctypes.c_void_p), ("output", ctypes.c_int32)]),
    "sluice_graph_print": (None, [("g", ctypes.c_void_p), ("out", ctypes.c_void_p)]),
    "sluice_value_shape": (ctypes.c_int, [("g", ctypes.c_void_p), ("value", ctypes.c_int32), ("dtype", ctypes.POINTER(ctypes.c_int)), ("rank", ctypes.POINTER(ctypes.c_int)), ("dims", ctypes.POINTER(ctypes.c_int64))]),
    "sluice_graph_parameters": (ctypes.c_int, [("g", ctypes.c_void_p)]),
    "sluice_graph_parameter": (ctypes.c_int, [("g", ctypes.c_void_p), ("index", ctypes.c_int), ("name", ctypes.POINTER(ctypes.c_char_p)), ("trained", ctypes.POINTER(ctypes.c_bool)), ("rank", ctypes.POINTER(ctypes.c_int)), ("dims", ctypes.POINTER(ctypes.c_int64))]),
    "sluice_optimizer_init_sized": (None, [("o", ctypes.POINTER(sluice_optimizer)), ("kind", ctypes.c_int), ("size", ctypes.c_size_t)]),
    "sluice_launch_options_init_sized": (None, [("o", ctypes.POINTER(sluice_launch_options)), ("size", ctypes.c_size_t)]),
    "sluice_launch": (ctypes.c_int, [("o", ctypes.POINTER(sluice_launch_options)), ("body", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)), ("user", ctypes.c_void_p)]),
    "sluice_world_join": (ctypes.c_int, [("timeout_seconds", ctypes.c_double), ("out", ctypes.POINTER(ctypes.c_void_p))]),
    "sluice_world_leave": (None, [("w", ctypes.c_void_p)]),
    "sluice_world_rank": (ctypes.c_int, [("w", ctypes.c_void_p)]),
    "sluice_world_size": (ctypes.c_int, [("w", ctypes.c_void_p)]),
    "sluice_options_init_sized": (None, [("o", ctypes.POINTER(sluice_options)), ("size", ctypes.c_size_t)]),
    "sluice_engine_create": (ctypes.c_int, [("g", ctypes.c_void_p), ("options", ctypes.POINTER(sluice_options)), ("out", ctypes.POINTER(ctypes.c_void_p))]),
    "sluice_engine_destroy": (None, [("e", ctypes.c_void_p)]),
    "sluice_forward": (ctypes.c_int, [("e", ctypes.c_void_p), ("batch", ctypes.POINTER(sluice_batch)), ("loss", ctypes.POINTER(ctypes.c_double))]),
    "sluice_backward": (ctypes.c_int, [("e", ctypes.c_void_p)]),
    "sluice_step": (ctypes.c_int, [("e", ctypes.c_void_p)]),
    "sluice_set_targets": (ctypes.c_int, [("e", ctypes.c_void_p), ("counts", ctypes.POINTER(ctypes.c_uint64))]),
    "sluice_train_step": (ctypes.c_int, [("e", ctypes.c_void_p), ("batches", ctypes.POINTER(sluice_batch)), ("loss", ctypes.POINTER(ctypes.c_double))]),
    "sluice_evaluate": (ctypes.c_int, [("e", ctypes.c_void_p), ("batch", ctypes.POINTER(sluice_batch)), ("loss", ctypes.POINTER(ctypes.c_double))]),
    "sluice_predict": (ctypes.c_int, [("e", ctypes.c_void_p), ("batch", ctypes.POINTER(sluice_batch)), ("out", ctypes.c_void_p), ("out_bytes", ctypes.c_size_t)]),
    "sluice_set_learning_rate": (ctypes.c_int, [("e", ctypes.c_void_p), ("lr", ctypes.c_double)]),
    "sluice_gradient_norm": (ctypes.c_double, [("e", ctypes.c_void_p)]),
    "sluice_step_count": (ctypes.c_uint64, [("e", ctypes.c_void_p)]),
    "sluice_skipped_steps": (ctypes.c_uint64, [("e", ctypes.c_void_p)]),
    "sluice_current_loss_scale": (ctypes.c_double, [("e", ctypes.c_void_p)]),
    "sluice_get_parameter": (ctypes.c_int, [("e", ctypes.c_void_p), ("name", ctypes.c_char_p), ("out", ctypes.c_void_p), ("out_bytes", ctypes.c_size_t)]),
    "sluice_set_parameter": (ctypes.c_int, [("e", ctypes.c_void_p), ("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]),
    "sluice_save": (ctypes.c_int, [("e", ctypes.c_void_p), ("path", ctypes.c_char_p)]),
    "sluice_load": (ctypes.c_int, [("e", ctypes.c_void_p), ("path", ctypes.c_char_p)]),
    "sluice_checkpoint_save": (ctypes.c_int, [("e", ctypes.c_void_p), ("folder", ctypes.c_char_p)]),
    "sluice_checkpoint_resume": (ctypes.c_int, [("e", ctypes.c_void_p), ("folder", ctypes.c_char_p), ("step", ctypes.POINTER(ctypes.c_uint64))]),
    "sluice_hash": (ctypes.c_int, [("e", ctypes.c_void_p), ("weights", ctypes.c_char_p), ("state", ctypes.c_char_p)]),
    "sluice_planned_peak": (None, [("e", ctypes.c_void_p), ("out", ctypes.POINTER(sluice_memory))]),
    "sluice_observed_peak": (None, [("e", ctypes.c_void_p), ("out", ctypes.POINTER(sluice_memory))]),
    "sluice_plan_print": (None, [("e", ctypes.c_void_p), ("out", ctypes.c_void_p)]),
    "sluice_data_from_arrays": (ctypes.c_int, [("arrays", ctypes.POINTER(sluice_array)), ("count", ctypes.c_int), ("samples", ctypes.c_int64), ("shuffle", ctypes.c_bool), ("seed", ctypes.c_uint64), ("out", ctypes.POINTER(ctypes.c_void_p))]),
    "sluice_data_from_callback": (ctypes.c_int, [("fill", sluice_fill_fn), ("user", ctypes.c_void_p), ("out", ctypes.POINTER(ctypes.c_void_p))]),
    "sluice_data_destroy": (None, [("d", ctypes.c_void_p)]),
    "sluice_fit": (ctypes.c_int, [("e", ctypes.c_void_p), ("d", ctypes.c_void_p), ("steps", ctypes.c_uint64), ("last_loss", ctypes.POINTER(ctypes.c_double))]),
    "sluice_config_load": (ctypes.c_int, [("path", ctypes.c_char_p), ("out", ctypes.POINTER(ctypes.c_void_p))]),
    "sluice_config_parse": (ctypes.c_int, [("text", ctypes.c_char_p), ("name", ctypes.c_char_p), ("out", ctypes.POINTER(ctypes.c_void_p))]),
    "sluice_config_create": (ctypes.c_int, [("out", ctypes.POINTER(ctypes.c_void_p))]),
    "sluice_config_set": (ctypes.c_int, [("c", ctypes.c_void_p), ("assignment", ctypes.c_char_p)]),
    "sluice_config_destroy": (None, [("c", ctypes.c_void_p)]),
    "sluice_config_check": (ctypes.c_int, [("c", ctypes.c_void_p), ("log", sluice_log_fn), ("log_user", ctypes.c_void_p)]),
    "sluice_config_get": (ctypes.c_int, [("c", ctypes.c_void_p), ("key", ctypes.c_char_p), ("out", ctypes.c_char_p), ("out_bytes", ctypes.c_size_t)]),
    "sluice_config_print": (None, [("c", ctypes.c_void_p), ("out", ctypes.c_void_p)]),
    "sluice_config_help": (None, [("out", ctypes.c_void_p), ("markdown", ctypes.c_bool)]),
    "sluice_setting_at": (ctypes.c_bool, [("index", ctypes.c_int), ("out", ctypes.POINTER(sluice_setting))]),
    "sluice_event_json": (ctypes.c_size_t, [("event", ctypes.POINTER(sluice_event)), ("out", ctypes.c_char_p), ("out_bytes", ctypes.c_size_t)]),
    "sluice_run_state_name": (ctypes.c_char_p, [("state", ctypes.c_int)]),
    "sluice_runs_look": (ctypes.c_int, [("path", ctypes.c_char_p), ("found", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(sluice_run_status))), ("user", ctypes.c_void_p)]),
    "sluice_job_options_init_sized": (None, [("o", ctypes.POINTER(sluice_job_options)), ("size", ctypes.c_size_t)]),
    "sluice_config_check_output": (ctypes.c_int, [("c", ctypes.c_void_p), ("name", ctypes.c_char_p), ("path", ctypes.c_char_p)]),
    "sluice_job_config": (ctypes.c_int, [("c", ctypes.c_void_p), ("o", ctypes.POINTER(sluice_job_options))]),
    "sluice_job_plan": (ctypes.c_int, [("c", ctypes.c_void_p), ("o", ctypes.POINTER(sluice_job_options))]),
    "sluice_job_train": (ctypes.c_int, [("c", ctypes.c_void_p), ("o", ctypes.POINTER(sluice_job_options))]),
    "sluice_job_tune": (ctypes.c_int, [("c", ctypes.c_void_p), ("o", ctypes.POINTER(sluice_job_options))]),
    "sluice_job_eval": (ctypes.c_int, [("c", ctypes.c_void_p), ("o", ctypes.POINTER(sluice_job_options))]),
    "sluice_job_generate": (ctypes.c_int, [("c", ctypes.c_void_p), ("o", ctypes.POINTER(sluice_job_options))]),
    "sluice_inspect": (ctypes.c_int, [("path", ctypes.c_char_p), ("json", ctypes.c_bool), ("out", ctypes.c_void_p)]),
    "sluice_report": (ctypes.c_int, [("run", ctypes.c_char_p), ("out_path", ctypes.c_char_p), ("out", ctypes.c_void_p)]),
    "sluice_report_until": (ctypes.c_int, [("stop", ctypes.POINTER(ctypes.c_int)), ("run", ctypes.c_char_p), ("out_path", ctypes.c_char_p), ("out", ctypes.c_void_p)]),
    "sluice_comparison_show": (ctypes.c_int, [("lines", ctypes.c_char_p), ("out", ctypes.c_void_p), ("page", ctypes.c_char_p)]),
    "sluice_verify": (ctypes.c_int, [("path", ctypes.c_char_p), ("out", ctypes.c_void_p)]),
    "sluice_export": (ctypes.c_int, [("checkpoint", ctypes.c_char_p), ("out_path", ctypes.c_char_p), ("type", ctypes.c_int), ("shard_bytes", ctypes.c_uint64), ("out", ctypes.c_void_p)]),
    "sluice_export_until": (ctypes.c_int, [("stop", ctypes.POINTER(ctypes.c_int)), ("checkpoint", ctypes.c_char_p), ("out_path", ctypes.c_char_p), ("type", ctypes.c_int), ("shard_bytes", ctypes.c_uint64), ("out", ctypes.c_void_p)]),
    "sluice_tokenize_options_init_sized": (None, [("o", ctypes.POINTER(sluice_tokenize_options)), ("size", ctypes.c_size_t)]),
    "sluice_tokenize": (ctypes.c_int, [("tokenizer", ctypes.c_char_p), ("options", ctypes.POINTER(sluice_tokenize_options)), ("out", ctypes.c_void_p)]),
    "sluice_merge": (ctypes.c_int, [("base", ctypes.c_char_p), ("adapter", ctypes.c_char_p), ("out_path", ctypes.c_char_p), ("type", ctypes.c_int), ("shard_bytes", ctypes.c_uint64), ("out", ctypes.c_void_p)]),
    "sluice_merge_until": (ctypes.c_int, [("stop", ctypes.POINTER(ctypes.c_int)), ("base", ctypes.c_char_p), ("adapter", ctypes.c_char_p), ("out_path", ctypes.c_char_p), ("type", ctypes.c_int), ("shard_bytes", ctypes.c_uint64), ("out", ctypes.c_void_p)]),
    "sluice_known_machines": (None, [("out", ctypes.c_void_p)]),
    "sluice_known_models": (None, [("out", ctypes.c_void_p)]),
    "sluice_largest_models": (ctypes.c_int, [("stop", ctypes.POINTER(ctypes.c_int)), ("out", ctypes.c_void_p)]),
    "sluice_devices": (ctypes.c_int, [("measure", ctypes.c_bool), ("ranks", ctypes.c_int), ("device", ctypes.c_int), ("machine_file", ctypes.c_char_p), ("out", ctypes.c_void_p)]),
    "sluice_disks": (ctypes.c_int, [("path", ctypes.c_char_p), ("out", ctypes.c_void_p)]),
    "sluice_doctor": (ctypes.c_int, [("folder", ctypes.c_char_p), ("device", ctypes.c_int), ("json", ctypes.c_bool), ("out", ctypes.c_void_p)]),
}
