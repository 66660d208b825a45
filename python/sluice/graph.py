"""graph.py: networks of one's own: a graph, and tensors with operators.

    g = sluice.Graph()
    x = g.input("x", (64, 784))
    label = g.input("label", (64,), "i32")
    y = x.linear(128, "fc1").relu().linear(10, "fc2")
    g.output, g.loss = y, y.cross_entropy(label)

A mistake raises at the line that makes it. The graph keeps its first one, as in C: build it anew then."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Sequence

from . import _header as header
from ._library import Handle, check, dims, encode, lib, make, text_of, word
from ._ops import GraphOps, TensorOps
from ._settings import ENUM_FIELDS, DType, InitKind, WORDS
from ._whole import wholes
from .arrays import brackets
from .errors import UsageError

_DTYPES = {v: k for k, v in WORDS["sluice_dtype"].items()}


class Input(NamedTuple):
    """What a batch has to have of one input."""

    dtype: str
    shape: tuple[int, ...]


class Parameter(NamedTuple):
    """A parameter of a graph."""

    shape: tuple[int, ...]
    trained: bool  # False: frozen


class Tensor(TensorOps):
    """A value of a graph. Its methods are the builders that take it first; + - * @ and slices are there as well."""

    def __init__(self, graph: Graph, value: int) -> None:
        self.graph = graph
        self._value = value
        dtype, rank = ctypes.c_int(), ctypes.c_int()
        sizes = (ctypes.c_int64 * header.SLUICE_MAX_RANK)()
        with graph._handle as pointer:
            check(lib.sluice_value_shape(pointer, value, ctypes.byref(dtype), ctypes.byref(rank), sizes))
        self.dtype: str = _DTYPES[dtype.value]
        self.shape: tuple[int, ...] = tuple(sizes[: rank.value])

    def _tensor(self) -> Tensor:
        return self

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def transpose(self, order: Sequence[int]) -> Tensor:
        """As Graph.transpose."""
        return self.graph.transpose(self, order)

    def __add__(self, other: Tensor) -> Tensor:
        return self.graph.add(self, other) if isinstance(other, Tensor) else NotImplemented

    def __sub__(self, other: Tensor) -> Tensor:
        return self.graph.subtract(self, other) if isinstance(other, Tensor) else NotImplemented

    def __mul__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return self.graph.multiply(self, other)
        return self.graph.scale(self, float(other)) if isinstance(other, (int, float)) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Tensor:
        return self.graph.scale(self, 1.0 / other) if isinstance(other, (int, float)) else NotImplemented

    def __neg__(self) -> Tensor:
        return self.graph.scale(self, -1.0)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.graph.matmul(self, other) if isinstance(other, Tensor) else NotImplemented

    def __getitem__(self, key: Any) -> Tensor:
        """Parts along dimensions: x[:, 2:5]. Slices of step 1 alone; no dimension goes away."""
        parts = key if isinstance(key, tuple) else (key,)
        if Ellipsis in parts:
            at = parts.index(Ellipsis)
            parts = parts[:at] + (slice(None),) * (self.ndim - len(parts) + 1) + parts[at + 1 :]
        if len(parts) > self.ndim or not all(isinstance(p, slice) and p.step in (None, 1) for p in parts):
            raise UsageError(f"a tensor of shape {brackets(self.shape)} takes slices of step 1, not {key!r}")
        made = self
        for axis, part in enumerate(parts):
            start, stop, _ = part.indices(self.shape[axis])
            if (start, stop) != (0, self.shape[axis]):
                made = made.split(axis, start, stop - start)
        return made

    def __repr__(self) -> str:
        return f"Tensor({self.dtype} {brackets(self.shape)})"


class Graph(GraphOps):
    """A network being built; an Engine trains it. A graph serves one engine."""

    def __init__(self) -> None:
        pointer = ctypes.c_void_p()
        check(lib.sluice_graph_create(ctypes.byref(pointer)))
        self._handle = Handle(pointer.value, lib.sluice_graph_destroy)
        self.inputs: dict[str, Input] = {}
        self._loss: Tensor | None = None
        self._output: Tensor | None = None

    # ---- what the generated builders call ----

    def _value(self, tensor: Tensor) -> int:
        if tensor.graph is not self:
            raise UsageError("a tensor of another graph: operands come from one graph")
        return tensor._value

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            return self._value(argument)
        if isinstance(argument, str):
            return encode(argument)
        if isinstance(argument, ctypes.Structure):
            return ctypes.byref(argument)
        return header.SLUICE_NONE if argument is None else argument

    def _op(self, function: str, *arguments: Any) -> Tensor:
        converted = [self._argument(a) for a in arguments]
        with self._handle as pointer:
            try:
                value = getattr(lib, function)(pointer, *converted)
            except ctypes.ArgumentError as e:
                name = function.removeprefix("sluice_")
                raise UsageError(f"{name}: an argument is of the wrong type: {e}") from None
            if value == header.SLUICE_NONE:
                check(lib.sluice_graph_check(pointer))
        return Tensor(self, value)

    def _check(self) -> None:
        with self._handle as pointer:
            check(lib.sluice_graph_check(pointer))

    def _values(self, tensors: Sequence[Tensor]) -> tuple[Any, int]:
        made = [self._value(t) for t in tensors]
        return (ctypes.c_int32 * max(len(made), 1))(*made), len(made)

    def _options(self, struct: Any, **fields: Any) -> Any:
        made = make(struct)
        for name, value in fields.items():
            if value is None:
                continue
            enum = ENUM_FIELDS.get(struct.__name__, {}).get(name)
            if name.endswith("_h"):
                height, width = value if isinstance(value, (tuple, list)) else (value, value)
                setattr(made, name, height)
                setattr(made, name[:-2] + "_w", width)
            elif enum is not None:
                setattr(made, name, word(enum, value, name))
            else:
                setattr(made, name, self._value(value) if isinstance(value, Tensor) else value)
        return made

    # ---- inputs, parameters, layers ----

    def input(self, name: str, shape: Sequence[int], dtype: DType = "f32") -> Tensor:
        """Data of one micro-batch, f32 or i32; the shape includes the batch."""
        made = self._op("sluice_input", name, word("sluice_dtype", dtype, f"input {name!r}"), *dims(shape))
        self.inputs[name] = Input(dtype, made.shape)
        return made

    def parameter(self, name: str, shape: Sequence[int], init: InitKind = "normal", scale: float = 0.02) -> Tensor:
        """Weights by a name, which is a tensor's in files. `scale`: the deviation of "normal", the bound of "uniform"."""
        start = header.sluice_init(word("sluice_init_kind", init, f"parameter {name!r}"), scale)
        rank, sizes = dims(shape)
        with self._handle as pointer:
            value = lib.sluice_parameter(pointer, encode(name), rank, sizes, start)
            if value == header.SLUICE_NONE:
                check(lib.sluice_graph_check(pointer))
        return Tensor(self, value)

    def layer(self, name: str) -> None:
        """Starts a layer: what is built from here to the next call is staged, recomputed and updated together."""
        with self._handle as pointer:
            lib.sluice_layer(pointer, encode(name))
        self._check()

    def freeze(self, parameter: Tensor) -> None:
        """Excludes a parameter from training: it gets no gradient and no optimizer state."""
        with self._handle as pointer:
            lib.sluice_freeze(pointer, self._value(parameter))
        self._check()

    def sparse(self, parameter: Tensor, most_rows: int = 0) -> None:
        """Makes a table of embeddings sparse: it stays on the host, and a step moves only the rows that it names.
        `most_rows`: how many different rows a step names at most; 0: as many as its batches have ids."""
        with self._handle as pointer:
            lib.sluice_sparse(pointer, self._value(parameter), most_rows)
        self._check()

    def transpose(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """x with its dimensions in this order."""
        if len(order) != x.ndim:
            raise UsageError(f"transpose: {list(order)} is no order of the dimensions of {brackets(x.shape)}")
        return self._op("sluice_transpose", x, wholes("transpose: order", order, ctypes.c_int))

    @property
    def loss(self) -> Tensor:
        """What training makes small: a scalar."""
        if self._loss is None:
            raise UsageError("the graph has no loss yet: graph.loss = a scalar")
        return self._loss

    @loss.setter
    def loss(self, tensor: Tensor) -> None:
        with self._handle as pointer:
            lib.sluice_set_loss(pointer, self._value(tensor))
        self._check()
        self._loss = tensor

    @property
    def output(self) -> Tensor:
        """What Engine.predict returns."""
        if self._output is None:
            raise UsageError("the graph has no output yet: graph.output = what predict gives, before the engine is made")
        return self._output

    @output.setter
    def output(self, tensor: Tensor) -> None:
        with self._handle as pointer:
            lib.sluice_set_output(pointer, self._value(tensor))
        self._check()
        self._output = tensor

    @property
    def parameters(self) -> dict[str, Parameter]:
        """By name, in the order in which they were made."""
        made: dict[str, Parameter] = {}
        name, trained, rank = ctypes.c_char_p(), ctypes.c_bool(), ctypes.c_int()
        sizes = (ctypes.c_int64 * header.SLUICE_MAX_RANK)()
        with self._handle as pointer:
            for i in range(lib.sluice_graph_parameters(pointer)):
                references = (ctypes.byref(v) for v in (name, trained, rank))
                check(lib.sluice_graph_parameter(pointer, i, *references, sizes))
                found = (name.value or b"").decode("utf-8", "surrogateescape")
                made[found] = Parameter(tuple(sizes[: rank.value]), trained.value)
        return made

    def __str__(self) -> str:
        """One line an operation."""
        with self._handle as pointer:
            return text_of(lambda file: lib.sluice_graph_print(pointer, file))[1]

    def close(self) -> None:
        """Frees it now, or as soon as its engine is closed."""
        self._handle.close()

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
