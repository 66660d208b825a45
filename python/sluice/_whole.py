"""_whole.py: whole numbers on their way to C.

ctypes cuts a whole number to the width of the field or argument that it goes to: 2**32 + 1 would become 1, and -1 the largest
number there is. Here each is refused with its bounds instead. Every struct and every function of the header passes through:
the generated structs are `Struct`s, and _library.py makes each function of the library a `Function`."""

from __future__ import annotations

import ctypes
import operator
from typing import Any, Sequence

_SIGNED = (ctypes.c_byte, ctypes.c_short, ctypes.c_int, ctypes.c_long, ctypes.c_longlong)
_UNSIGNED = (ctypes.c_ubyte, ctypes.c_ushort, ctypes.c_uint, ctypes.c_ulong, ctypes.c_ulonglong)


def bounds(kind: Any) -> tuple[int, int] | None:
    """The least and the largest number of a ctypes type; None where it is none of whole numbers."""
    bits = 8 * ctypes.sizeof(kind) if kind in _SIGNED + _UNSIGNED else 0
    if not bits:
        return None
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind in _SIGNED else (0, (1 << bits) - 1)


def whole(what: str, value: Any, kind: Any, least: int | None = None) -> int:
    """`value` as a number that `kind` holds, and not below `least`. `what` is for the message: the name of the field."""
    from .errors import UsageError  # which needs the header, which needs this module

    found = bounds(kind)
    assert found is not None
    low, high = found[0] if least is None else least, found[1]
    try:
        number = operator.index(value)
    except TypeError:
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        raise UsageError(f"{what}: {value!r} is of the wrong type: it takes a whole number from {low} to {high}") from None
    if not low <= number <= high:
        raise UsageError(f"{what}: {number} is out of range: it takes a whole number from {low} to {high}")
    return number


def truth(what: str, value: Any) -> bool:
    """True and False, those of NumPy, 1 and 0. Of anything else ctypes would take "false" for True."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    from .errors import UsageError

    raise UsageError(f"{what}: {value!r} is of the wrong type: it takes True or False")


def taken(what: str, value: Any, kind: Any) -> Any:
    """`value` for a field or an argument of the type `kind`."""
    if bounds(kind) is not None:
        return whole(what, value, kind)
    return truth(what, value) if kind is ctypes.c_bool else value


def wholes(what: str, values: Sequence[Any], kind: Any) -> Any:
    """An array of numbers as C takes it, of at least one element."""
    return (kind * max(len(values), 1))(*(whole(what, v, kind) for v in values))


class Struct(ctypes.Structure):
    """A struct of the header."""

    def __setattr__(self, name: str, value: Any) -> None:
        for field in type(self)._fields_:
            if field[0] == name:
                value = taken(name, value, field[1])
        super().__setattr__(name, value)


class Function:
    """A function of the library with its arguments' names and types."""

    def __init__(self, name: str, function: Any, returns: Any, arguments: Sequence[tuple[str, Any]]) -> None:
        function.restype, function.argtypes = returns, [kind for _, kind in arguments]
        self.name = name.removeprefix("sluice_")
        self.argtypes: list[Any] = function.argtypes
        self._function = function
        self._checked = [
            (i, f"{self.name}: {argument}", kind)
            for i, (argument, kind) in enumerate(arguments)
            if bounds(kind) is not None or kind is ctypes.c_bool
        ]

    def __call__(self, *given: Any) -> Any:
        if not self._checked:
            return self._function(*given)
        made = list(given)
        for i, what, kind in self._checked:
            if i < len(made):
                made[i] = taken(what, made[i], kind)
        return self._function(*made)
