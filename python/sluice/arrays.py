"""arrays.py: memory of NumPy, PyTorch and others as the library reads and writes it, without copies.

An array comes in by the first of these that it has: NumPy's __array_interface__, DLPack, the buffer protocol. Only its
address is passed on; whoever calls keeps it alive until the call returns. What does not fit as it lies in memory is
refused with a message that says what would: a copy is the caller's decision. Whole numbers of another width than i32, such as
the int64 of labels in PyTorch, are the exception: they are few, and are copied where each of them fits. NumPy itself is
never needed."""

from __future__ import annotations

import ctypes
import math
from array import array as c_array
from typing import Any, NamedTuple, Sequence

from .errors import UsageError


class View(NamedTuple):
    """Where an array lies."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    contiguous: bool
    writable: bool
    device: str
    owner: Any  # keeps the memory


ITEM_BYTES = {"f32": 4, "i32": 4}
_TYPESTR = {"<f4": "f32", "<i4": "i32"}
_NUMPY = {"f32": "float32", "i32": "int32"}
# Whole numbers that are copied to i32, as NumPy and DLPack call them, and as memoryviews do.
_WHOLE: dict[str, Any] = {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "uint32": "I", "int64": "q", "uint64": "Q"}


def kept_type(dtype: str) -> str:
    """What an array of this type is for the library: as it lies, or copied; f32 where it is neither."""
    return dtype if dtype in ITEM_BYTES else "i32" if dtype in _WHOLE else "f32"


def _whole_type(letter: str, item: int) -> str:
    """The type of whole numbers that a buffer ("q") or NumPy ("i", "u") calls by this letter."""
    return ("u" if letter.isupper() or letter == "u" else "") + f"int{8 * item}"


def _is_contiguous(shape: Sequence[int], strides: Sequence[int] | None, item: int) -> bool:
    """Row-major without gaps; strides of dimensions of size 1 say nothing."""
    if strides is None or 0 in shape:
        return True
    expected = item
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


# ---- DLPack ----


class _DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _DLManagedTensor(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [
    ("dl_tensor", _DLTensor),
    ("manager_ctx", ctypes.c_void_p),
    ("deleter", _DELETER),
]

_CPU, _CUDA_HOST = 1, 3
_DEVICES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda managed memory", 14: "oneapi"}
_CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_SHORT = {"float32": "f32", "int32": "i32"}

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_is_valid_raw = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_get_pointer_raw = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def _from_dlpack(what: str, array: Any) -> View:
    kind, number = array.__dlpack_device__()
    device = "cpu" if kind in (_CPU, _CUDA_HOST) else f"{_DEVICES.get(kind, f'device type {kind}')}:{number}"
    if device != "cpu":
        return View(0, "", (), True, False, device, array)
    try:
        capsule = array.__dlpack__()
    except (BufferError, RuntimeError, TypeError) as e:
        raise UsageError(f"{what}: {type(array).__name__} does not give its memory by DLPack: {e}") from None
    if not _is_valid(capsule, b"dltensor"):
        raise UsageError(f"{what}: {type(array).__name__} gives no DLPack tensor of the first version")
    t = ctypes.cast(_get_pointer(capsule, b"dltensor"), ctypes.POINTER(_DLManagedTensor)).contents.dl_tensor
    shape = tuple(t.shape[i] for i in range(t.ndim))
    item = t.dtype.bits // 8
    strides = [t.strides[i] * item for i in range(t.ndim)] if t.strides else None
    name = f"{_CODES.get(t.dtype.code, 'unknown')}{t.dtype.bits}" + (f"x{t.dtype.lanes}" if t.dtype.lanes != 1 else "")
    address = (t.data or 0) + t.byte_offset
    contiguous = _is_contiguous(shape, strides, item)
    return View(address, _SHORT.get(name, name), shape, contiguous, True, device, (array, capsule))


# ---- the other ways ----


def _from_interface(array: Any, interface: Any) -> View:
    typestr = interface["typestr"]
    dtype = _TYPESTR.get(typestr) or str(getattr(array, "dtype", typestr))
    if typestr[:2] in ("<i", "<u", "|i", "|u") and dtype not in ITEM_BYTES:
        dtype = _whole_type(typestr[1], int(typestr[2:]))
    address, read_only = interface["data"]
    shape = tuple(interface["shape"])
    contiguous = _is_contiguous(shape, interface.get("strides"), int(typestr[2:]) if typestr[2:].isdigit() else 1)
    return View(address, dtype, shape, contiguous, not read_only, "cpu", (array, interface))


def _from_buffer(what: str, array: Any) -> View:
    try:
        m = memoryview(array)
    except TypeError:
        raise UsageError(
            f"{what}: {type(array).__name__} is no array: give one of NumPy, PyTorch or another library that has "
            "DLPack, or an array.array"
        ) from None
    code = m.format.lstrip("@=<")
    dtype = {("f", 4): "f32", ("i", 4): "i32", ("l", 4): "i32"}.get((code, m.itemsize), f"format {m.format!r}")
    if len(code) == 1 and code in "bBhHiIlLqQ" and m.format[0] not in ">!" and dtype != "i32":
        dtype = _whole_type(code, m.itemsize)
    if not m.c_contiguous or m.nbytes == 0:
        return View(0, dtype, tuple(m.shape or ()), m.c_contiguous, not m.readonly, "cpu", m)
    return View(_address_of(m), dtype, tuple(m.shape or ()), True, not m.readonly, "cpu", m)


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


def _address_of(m: memoryview) -> int:
    """ctypes' own from_buffer takes no buffer that cannot be written."""
    raw = _PyBuffer()
    if ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(m), ctypes.byref(raw), 0) != 0:
        raise UsageError("a buffer does not give its memory")
    address = int(raw.buf or 0)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(raw))
    return address


def view(what: str, array: Any) -> View:
    """Where `array` lies; `what` is for messages, as in 'input "x"'."""
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        return _from_interface(array, interface)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _from_dlpack(what, array)
    if hasattr(array, "__cuda_array_interface__"):
        return View(0, "", (), True, False, "cuda", array)
    return _from_buffer(what, array)


def brackets(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def fitting(what: str, array: Any, dtype: str, shape: Sequence[int], writable: bool = False) -> View:
    """The view of an array that is as it must be, or an exception that says what is not."""
    v = view(what, array)
    wanted = f"{dtype} {brackets(shape)} is needed"
    if v.device != "cpu":
        raise UsageError(f"{what}: the array is on {v.device}; {wanted} in host memory, as x.cpu() gives it")
    copied = dtype == "i32" and v.dtype in _WHOLE and not writable
    if v.dtype != dtype and not copied:
        raise UsageError(
            f"{what}: the array is {v.dtype}, {wanted}: convert it once, as x.astype({_NUMPY[dtype]!r}) does"
        )
    if tuple(v.shape) != tuple(shape):
        raise UsageError(f"{what}: the array has shape {brackets(v.shape)}, {wanted}")
    if not v.contiguous:
        raise UsageError(
            f"{what}: the array is not contiguous in row-major order, {wanted}: numpy.ascontiguousarray(x) copies it"
        )
    if writable and not v.writable:
        raise UsageError(f"{what}: the array is read-only, and the result goes there")
    return _as_i32(what, v) if copied else v


def _as_i32(what: str, v: View) -> View:
    """A copy of whole numbers of another width, each of which must fit."""
    count = math.prod(v.shape)
    code = _WHOLE[v.dtype]
    item = c_array(code).itemsize
    raw = (ctypes.c_char * (count * item)).from_address(v.address) if count else b""
    numbers = memoryview(raw).cast("B").cast(code)
    try:
        made = c_array("i", numbers)
    except OverflowError:
        at = next(i for i, n in enumerate(numbers) if not -(1 << 31) <= n < 1 << 31)
        raise UsageError(
            f"{what}: the array is {v.dtype}, and number {at} of it, {numbers[at]}, does not fit in i32"
        ) from None
    return View(made.buffer_info()[0], "i32", v.shape, True, True, "cpu", made)


# ---- out ----

# What was exported by DLPack and is still in use, by the address of its DLManagedTensor.
_exported: dict[int, tuple[Any, ...]] = {}


def _delete_exported(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


def _drop_capsule(capsule: int) -> None:
    """A capsule that nobody has taken still owns its tensor."""
    if _is_valid_raw(capsule, b"dltensor"):
        _exported.pop(_get_pointer_raw(capsule, b"dltensor"), None)


_deleter = _DELETER(_delete_exported)
_capsule_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_drop_capsule)


class Array:
    """Numbers that the library wrote or is to read: f32 or i32, row-major, in host memory.

    numpy.asarray(a), torch.from_dlpack(a) and memoryview(a.buffer) see the same memory."""

    def __init__(self, shape: Sequence[int], dtype: str = "f32", *, address: int | None = None, owner: Any = None) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = dtype
        self.nbytes = math.prod(self.shape) * ITEM_BYTES[dtype]
        kind = ctypes.c_float if dtype == "f32" else ctypes.c_int32
        count = max(math.prod(self.shape), 1)
        self._owner = owner
        self._memory: Any = (kind * count)() if address is None else (kind * count).from_address(address)
        self.address = ctypes.addressof(self._memory)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        typestr = next(k for k, v in _TYPESTR.items() if v == self.dtype)
        return {"version": 3, "typestr": typestr, "shape": self.shape, "data": (self.address, False)}

    @property
    def buffer(self) -> Any:
        """The numbers as a memoryview of one dimension."""
        return memoryview(self._memory).cast("B").cast("f" if self.dtype == "f32" else "i")

    def numpy(self) -> Any:
        """The same memory as an array of NumPy, which must be installed."""
        import numpy

        return numpy.asarray(self)

    def tolist(self) -> Any:
        """Nested lists; of no dimensions the number itself."""
        flat = list(self._memory)

        def nest(start: int, shape: Sequence[int]) -> Any:
            if not shape:
                return flat[start]
            each = math.prod(shape[1:])
            return [nest(start + i * each, shape[1:]) for i in range(shape[0])]

        return nest(0, self.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        if copy:
            raise BufferError("sluice gives its memory, not a copy of it")
        if dl_device is not None and tuple(dl_device) != (_CPU, 0):
            raise BufferError("this array is in host memory")
        dims = (ctypes.c_int64 * max(self.ndim, 1))(*self.shape)
        managed = _DLManagedTensor()
        t = managed.dl_tensor
        t.data, t.ndim, t.byte_offset = self.address, self.ndim, 0
        t.device.type, t.device.id = _CPU, 0
        t.dtype.code, t.dtype.bits, t.dtype.lanes = (2 if self.dtype == "f32" else 0), 32, 1
        t.shape = ctypes.cast(dims, ctypes.POINTER(ctypes.c_int64))
        managed.deleter = _deleter
        address = ctypes.addressof(managed)
        _exported[address] = (managed, dims, self)
        return _new_capsule(address, b"dltensor", ctypes.cast(_capsule_destructor, ctypes.c_void_p))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Array({self.dtype} {brackets(self.shape)})"


def array_of(v: View) -> Array:
    """A view as an array of its own, on the same memory."""
    return Array(v.shape, v.dtype, address=v.address, owner=v.owner)
