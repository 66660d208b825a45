"""engine.py: trains a graph step by step with arrays of the caller, where they lie."""

from __future__ import annotations

import ctypes
import math
import os
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Sequence, TypeVar, overload

from . import _header as header
from ._library import Handle, check, encode, fill, last_error, lib, log_callback, make, text_of
from ._settings import WORDS, EngineSettings, LossScale, OptimizerSettings
from ._whole import whole, wholes
from .arrays import ITEM_BYTES, Array, View, brackets, fitting, kept_type, view
from .errors import UsageError, error_of
from .graph import Graph, Input, Parameter

if TYPE_CHECKING:
    from typing_extensions import Unpack

Batch = Mapping[str, Any]
Out = TypeVar("Out")


class Memory(NamedTuple):
    """Bytes on each tier."""

    device: int
    host: int
    disk: int


class Hashes(NamedTuple):
    """SHA-256 in hexadecimal digits."""

    weights: str
    state: str


class Optimizer:
    """How weights change. What is not given has the default of PyTorch and DeepSpeed."""

    kind: str = ""

    def __init__(self, kind: str = "", **settings: Unpack[OptimizerSettings]) -> None:
        self.kind = kind or self.kind
        if self.kind not in WORDS["sluice_optimizer_kind"]:
            raise UsageError(f"optimizer {self.kind!r} is not one of {', '.join(WORDS['sluice_optimizer_kind'])}")
        self.settings = settings
        self._struct()

    def _struct(self) -> header.sluice_optimizer:
        made = header.sluice_optimizer()
        lib.sluice_optimizer_init_sized(ctypes.byref(made), WORDS["sluice_optimizer_kind"][self.kind], ctypes.sizeof(made))
        fill(made, self.settings, type(self).__name__, ("size", "kind"))
        return made

    def __repr__(self) -> str:
        name = type(self).__name__ if type(self) is not Optimizer else f"Optimizer({self.kind!r}) with "
        return f"{name}({', '.join(f'{k}={v!r}' for k, v in self.settings.items())})"


class SGD(Optimizer):
    kind = "sgd"


class Adagrad(Optimizer):
    kind = "adagrad"


class Adam(Optimizer):
    kind = "adam"


class AdamW(Optimizer):
    kind = "adamw"


class LAMB(Optimizer):
    kind = "lamb"


class LARS(Optimizer):
    kind = "lars"


class Lion(Optimizer):
    kind = "lion"


class RMSprop(Optimizer):
    kind = "rmsprop"


class World:
    """The ranks this process was started with, by mpirun or srun, or it alone. A context manager."""

    def __init__(self, timeout_seconds: float = 0.0) -> None:
        pointer = ctypes.c_void_p()
        check(lib.sluice_world_join(timeout_seconds, ctypes.byref(pointer)))
        self._handle = Handle(pointer.value, lib.sluice_world_leave)
        self.rank = int(lib.sluice_world_rank(pointer))
        self.size = int(lib.sluice_world_size(pointer))

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Data:
    """Where Engine.fit takes its micro-batches from."""

    def __init__(self, handle: Handle, inputs: dict[str, Input], keep: Any, failures: list[BaseException]) -> None:
        self._handle = handle
        self._inputs = inputs  # of arrays: as the graph must have them, but for the first dimension
        self._keep = keep  # memory and callbacks that the library borrows
        self._failures = failures  # of a function, until fit raises them

    @classmethod
    def from_arrays(cls, arrays: Batch, *, shuffle: bool = True, seed: int = 0) -> Data:
        """All samples in memory, one array for each input: rows of the first dimension are samples. They are read where
        they lie: leave them as they are while this is in use (whole numbers of other widths than i32 are copied once).
        Shuffled anew every epoch from the seed."""
        views = {name: view(f"array {name!r}", a) for name, a in arrays.items()}
        rows = {v.shape[0] if v.shape else 0 for v in views.values()}
        if len(rows) != 1:
            found = ", ".join(f"{n} {brackets(v.shape)}" for n, v in views.items())
            raise UsageError(f"arrays need one number of rows: {found or 'there are none'}")
        for name, v in views.items():
            views[name] = fitting(f"array {name!r}", arrays[name], kept_type(v.dtype), v.shape)
        packed, keep = _arrays({encode(n): v for n, v in views.items()})
        pointer = ctypes.c_void_p()
        check(lib.sluice_data_from_arrays(packed, len(views), rows.pop(), shuffle, seed, ctypes.byref(pointer)))
        inputs = {n: Input(v.dtype, v.shape) for n, v in views.items()}
        return cls(Handle(pointer.value, lib.sluice_data_destroy), inputs, (packed, keep), [])

    @classmethod
    def from_function(cls, graph: Graph, fill_batch: Callable[[int, dict[str, Array]], Mapping[str, Any] | None]) -> Data:
        """`fill_batch(index, buffers)` writes micro-batch number `index`, from 0 over the whole run, into the library's own
        memory: buffers["x"].numpy()[:] = ... Or it returns arrays, which are copied there. The buffers are valid during
        the call."""
        inputs = dict(graph.inputs)
        pointer = ctypes.c_void_p()
        failures: list[BaseException] = []

        def on_fill(_u: Any, index: int, names: Any, buffers: Any, sizes: Any, count: int) -> int:
            try:
                given: dict[str, Array] = {}
                for i in range(count):
                    name = names[i].decode("utf-8", "surrogateescape")
                    given[name] = Array(inputs[name].shape, inputs[name].dtype, address=buffers[i])
                for name, a in (fill_batch(index, given) or {}).items():
                    if name not in given:
                        raise UsageError(f"the function returns {name!r}, which is no input of the graph")
                    v = fitting(f"input {name!r}", a, inputs[name].dtype, inputs[name].shape)
                    ctypes.memmove(given[name].address, v.address, given[name].nbytes)
                return int(header.sluice_status.SLUICE_OK)
            except BaseException as e:  # it must not pass through C; fit raises it again
                failures.append(e)
                return int(header.sluice_status.SLUICE_ERR_INPUT)

        callback = header.sluice_fill_fn(on_fill)
        check(lib.sluice_data_from_callback(callback, None, ctypes.byref(pointer)))
        return cls(Handle(pointer.value, lib.sluice_data_destroy), {}, callback, failures)

    def close(self) -> None:
        self._handle.close()

    def __enter__(self) -> Data:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _arrays(views: Mapping[bytes, View]) -> tuple[Any, Any]:
    """Views as C takes them, and what keeps them alive."""
    packed = (header.sluice_array * max(len(views), 1))()
    for i, (name, v) in enumerate(views.items()):
        packed[i].name = name
        packed[i].data = v.address
        packed[i].bytes = math.prod(v.shape) * ITEM_BYTES[v.dtype]
    return packed, views


class Engine:
    """Plans a graph's training step, reserves its memory and runs it. A context manager.

        with sluice.Engine(g, sluice.AdamW(lr=1e-3), precision="bf16", device_bytes=2 << 30) as e:
            loss = e.train_step({"x": x, "label": label})

    Settings are the fields of sluice_options in the header, enums by their names in lower case. Batches are read where they
    lie. What does not fit raises NoFitError here, before the first step."""

    def __init__(
        self,
        graph: Graph,
        optimizer: Optimizer | None = None,
        *,
        world: World | None = None,
        loss_scale: LossScale | None = None,
        partition_weights: Sequence[float] | None = None,
        **settings: Unpack[EngineSettings],
    ) -> None:
        options = make(header.sluice_options)
        own = ("size", "optimizer", "log", "log_user", "world", "loss_scale", "partition_weights")
        fill(options, settings, "Engine", own)
        if optimizer is not None:
            options.optimizer = optimizer._struct()
        if loss_scale is not None:
            fill(options.loss_scale, loss_scale, "loss_scale")
        if partition_weights is not None:
            weights = (ctypes.c_double * len(partition_weights))(*partition_weights)
            options.partition_weights = ctypes.cast(weights, ctypes.POINTER(ctypes.c_double))
        options.log = log_callback
        uses = [graph._handle]
        pointer = ctypes.c_void_p()
        if world is not None:
            uses.append(world._handle)
            options.world = world._handle._pointer
        with graph._handle as g:
            check(lib.sluice_engine_create(g, ctypes.byref(options), ctypes.byref(pointer)))
        self.graph = graph
        self._handle = Handle(pointer.value, lib.sluice_engine_destroy, uses)
        self._micro_batches = int(options.accumulation_steps)
        self._names = {name: encode(name) for name in graph.inputs}
        self._parameters = graph.parameters
        self._loss = ctypes.c_double()

    # ---- batches ----

    def _batch(self, batch: Batch) -> tuple[header.sluice_batch, Any]:
        """A micro-batch as C takes it: addresses of the caller's arrays, and what keeps them alive."""
        if batch.keys() != self.graph.inputs.keys():
            missing = [n for n in self.graph.inputs if n not in batch]
            raise UsageError(
                f"the batch lacks {', '.join(map(repr, missing))}"
                if missing
                else f"the batch has {', '.join(repr(n) for n in batch if n not in self.graph.inputs)}, "
                f"which the graph has not: its inputs are {', '.join(map(repr, self.graph.inputs))}"
            )
        views = {
            self._names[name]: fitting(f"input {name!r}", batch[name], wanted.dtype, wanted.shape)
            for name, wanted in self.graph.inputs.items()
        }
        packed, keep = _arrays(views)
        return header.sluice_batch(packed, len(views)), (packed, keep)

    def train_step(self, *batches: Batch) -> float:
        """A whole step: as many micro-batches as the setting accumulation_steps says. Returns the loss, the mean over their
        targets."""
        if len(batches) != self._micro_batches:
            raise UsageError(f"a step takes {self._micro_batches} micro-batches (accumulation_steps), got {len(batches)}")
        made = [self._batch(b) for b in batches]
        packed = (header.sluice_batch * len(made))(*(m[0] for m in made))
        with self._handle as pointer:
            check(lib.sluice_train_step(pointer, packed, ctypes.byref(self._loss)))
            return self._loss.value

    def forward(self, batch: Batch) -> float:
        """The first part of a micro-batch; backward follows. Returns its loss."""
        made, _keep = self._batch(batch)
        with self._handle as pointer:
            check(lib.sluice_forward(pointer, ctypes.byref(made), ctypes.byref(self._loss)))
            return self._loss.value

    def backward(self) -> None:
        with self._handle as pointer:
            check(lib.sluice_backward(pointer))

    def step(self) -> None:
        """Changes the weights, after accumulation_steps pairs of forward and backward."""
        with self._handle as pointer:
            check(lib.sluice_step(pointer))

    def set_targets(self, counts: Sequence[int]) -> None:
        """Before a step's first forward: how many targets count in each of its micro-batches."""
        if len(counts) != self._micro_batches:
            raise UsageError(f"a step has {self._micro_batches} micro-batches (accumulation_steps), got {len(counts)}")
        with self._handle as pointer:
            check(lib.sluice_set_targets(pointer, wholes("set_targets: counts", counts, ctypes.c_uint64)))

    def evaluate(self, batch: Batch) -> float:
        """The loss without training, dropout off. Needs the setting evaluation=True."""
        made, _keep = self._batch(batch)
        with self._handle as pointer:
            check(lib.sluice_evaluate(pointer, ctypes.byref(made), ctypes.byref(self._loss)))
            return self._loss.value

    @overload
    def predict(self, batch: Batch) -> Array: ...

    @overload
    def predict(self, batch: Batch, out: Out) -> Out: ...

    def predict(self, batch: Batch, out: Any = None) -> Any:
        """The graph's output, in `out` or in a new Array. Needs the setting evaluation=True."""
        shape = self.graph.output.shape
        result = Array(shape) if out is None else out
        target = fitting("out", result, "f32", shape, writable=True)
        made, _keep = self._batch(batch)
        with self._handle as pointer:
            check(lib.sluice_predict(pointer, ctypes.byref(made), target.address, math.prod(shape) * 4))
        return result

    def fit(self, data: Data, steps: int, on_step: Callable[[Engine, float], Any] | None = None) -> float:
        """Trains `steps` steps from `data` and returns the last loss. The position in the data goes on from step_count, so
        a resumed run continues. `on_step(engine, loss)` is called between steps, where Ctrl-C is raised, too."""
        steps = whole("fit: steps", steps, ctypes.c_uint64)
        self._check_data(data)
        loss = math.nan
        for _ in range(steps):
            with self._handle as pointer, data._handle as source:
                status = lib.sluice_fit(pointer, source, 1, ctypes.byref(self._loss))
                message = last_error() if status else ""
                loss = self._loss.value
            if data._failures:
                raise data._failures.pop()
            if status:
                raise error_of(status, message)
            if on_step is not None:
                on_step(self, loss)
        return loss

    def _check_data(self, data: Data) -> None:
        if not data._inputs:
            return
        if data._inputs.keys() != self.graph.inputs.keys():
            raise UsageError(f"the data has {sorted(data._inputs)}, the graph reads {sorted(self.graph.inputs)}")
        for name, wanted in self.graph.inputs.items():
            found = data._inputs[name]
            if found.dtype != wanted.dtype or found.shape[1:] != wanted.shape[1:]:
                raise UsageError(
                    f"input {name!r}: the data has rows of {found.dtype} {brackets(found.shape[1:])}, "
                    f"{wanted.dtype} {brackets(wanted.shape[1:])} is needed"
                )

    # ---- numbers ----

    @property
    def step_count(self) -> int:
        with self._handle as pointer:
            return int(lib.sluice_step_count(pointer))

    @property
    def skipped_steps(self) -> int:
        """Steps that changed nothing because their gradient was not finite."""
        with self._handle as pointer:
            return int(lib.sluice_skipped_steps(pointer))

    @property
    def gradient_norm(self) -> float:
        """Of the newest step, before clipping."""
        with self._handle as pointer:
            return float(lib.sluice_gradient_norm(pointer))

    @property
    def loss_scale(self) -> float:
        with self._handle as pointer:
            return float(lib.sluice_current_loss_scale(pointer))

    def set_learning_rate(self, lr: float) -> None:
        """Of the steps from here on."""
        with self._handle as pointer:
            check(lib.sluice_set_learning_rate(pointer, lr))

    # ---- parameters ----

    @property
    def parameters(self) -> dict[str, Parameter]:
        """By name, in the order in which they were made."""
        return dict(self._parameters)

    def _shape(self, name: str) -> tuple[int, ...]:
        found = self._parameters.get(name)
        if found is not None:
            return found.shape
        module, _, last = name.rpartition(".")
        if last == "num_batches_tracked":
            return ()
        if last in ("running_mean", "running_var") and f"{module}.weight" in self._parameters:
            return self._parameters[f"{module}.weight"].shape
        raise UsageError(f"there is no parameter {name!r}: the graph has {', '.join(self._parameters)}")

    @overload
    def get_parameter(self, name: str) -> Array: ...

    @overload
    def get_parameter(self, name: str, out: Out) -> Out: ...

    def get_parameter(self, name: str, out: Any = None) -> Any:
        """A parameter, or a running statistic of a batch norm, in fp32: in `out` or in a new Array."""
        shape = self._shape(name)
        result = Array(shape) if out is None else out
        target = fitting("out", result, "f32", shape, writable=True)
        with self._handle as pointer:
            size = math.prod(shape) * 4
            check(lib.sluice_get_parameter(pointer, encode(name), target.address, size))
        return result

    def set_parameter(self, name: str, values: Any) -> None:
        """Replaces a parameter by an array of f32 of its shape."""
        shape = self._shape(name)
        source = fitting(f"parameter {name!r}", values, "f32", shape)
        with self._handle as pointer:
            check(lib.sluice_set_parameter(pointer, encode(name), source.address, math.prod(shape) * 4))

    def __getitem__(self, name: str) -> Array:
        return self.get_parameter(name)

    def __setitem__(self, name: str, values: Any) -> None:
        self.set_parameter(name, values)

    # ---- files ----

    def save(self, path: str | os.PathLike[str]) -> None:
        """Weights as safetensors, written at once or not at all."""
        with self._handle as pointer:
            check(lib.sluice_save(pointer, encode(path)))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Weights of a safetensors file; one that does not fit changes nothing."""
        with self._handle as pointer:
            check(lib.sluice_load(pointer, encode(path)))

    def save_checkpoint(self, folder: str | os.PathLike[str]) -> None:
        """The whole state of training, in folder/step-N."""
        with self._handle as pointer:
            check(lib.sluice_checkpoint_save(pointer, encode(folder)))

    def resume(self, folder: str | os.PathLike[str]) -> int:
        """Takes the newest checkpoint that verifies; returns its step, 0 where there is none."""
        step = ctypes.c_uint64()
        with self._handle as pointer:
            check(lib.sluice_checkpoint_resume(pointer, encode(folder), ctypes.byref(step)))
        return step.value

    def hashes(self) -> Hashes:
        """Equal for equal weights and optimizer state, whatever the ranks and tiers."""
        weights, state = ctypes.create_string_buffer(65), ctypes.create_string_buffer(65)
        with self._handle as pointer:
            check(lib.sluice_hash(pointer, weights, state))
        return Hashes(weights.value.decode(), state.value.decode())

    # ---- memory ----

    def _peak(self, function: Any) -> Memory:
        made = header.sluice_memory()
        with self._handle as pointer:
            function(pointer, ctypes.byref(made))
        return Memory(made.device, made.host, made.disk)

    @property
    def planned_peak(self) -> Memory:
        return self._peak(lib.sluice_planned_peak)

    @property
    def observed_peak(self) -> Memory:
        """The same to the byte once a step has run."""
        return self._peak(lib.sluice_observed_peak)

    @property
    def plan(self) -> str:
        """Memory by tier and kind, what moves, expected time."""
        with self._handle as pointer:
            return text_of(lambda file: lib.sluice_plan_print(pointer, file))[1]

    def close(self) -> None:
        """Waits for running work and frees everything."""
        self._handle.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
