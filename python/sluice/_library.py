"""_library.py: finds and opens libsluice, and what every module needs around its calls.

A call releases Python's global lock while it runs; the library's callbacks take it again. An object of the library belongs to
one thread at a time, so every handle has a lock of its own; a callback that calls the object it is called from would wait
for itself, and is refused instead."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from . import _header as header
from ._settings import ENUM_FIELDS, WORDS
from ._whole import Function, wholes
from .errors import UsageError, error_of

FOLDER = Path(__file__).resolve().parent
LOG = logging.getLogger("sluice")


class Library:
    """The functions of the header, each under its name."""

    def __getattr__(self, name: str) -> Function:
        raise AttributeError(f"include/sluice.h declares no {name}")


def _open() -> Library:
    """SLUICE_LIBRARY, the one in the package, or the system's."""
    named = os.environ.get("SLUICE_LIBRARY")
    inside = FOLDER / "lib" / "libsluice.so"
    path = named or (str(inside) if inside.exists() else f"libsluice.so.{header.SLUICE_VERSION_MAJOR}")
    try:
        opened = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(
            f"libsluice is not here: {e}. Install the package by pip, or name the library in SLUICE_LIBRARY"
        ) from None
    opened.sluice_version.restype = ctypes.c_char_p
    version = opened.sluice_version().decode()
    wanted = f"{header.SLUICE_VERSION_MAJOR}.{header.SLUICE_VERSION_MINOR}."
    if not version.startswith(wanted):
        raise ImportError(f"{path} is sluice {version}, this package is for {wanted}x: install them together")
    made = Library()
    for name, (returns, arguments) in header.FUNCTIONS.items():
        try:
            function = getattr(opened, name)
        except AttributeError:
            raise ImportError(f"{path} lacks {name}, which include/sluice.h declares: build both together") from None
        setattr(made, name, Function(name, function, returns, arguments))
    return made


lib = _open()


def version() -> str:
    """Of the library: "0.1.0"."""
    return str(lib.sluice_version().decode())


def last_error() -> str:
    """The message of this thread's newest failure."""
    return str(lib.sluice_error().decode("utf-8", "replace"))


def check(status: int) -> None:
    """Raises what a status stands for, with the library's message."""
    if status != header.sluice_status.SLUICE_OK:
        raise error_of(status, last_error())


def encode(text: str | os.PathLike[str]) -> bytes:
    """A name or a path as C takes it."""
    made = os.fsencode(text) if not isinstance(text, str) else text.encode("utf-8", "surrogateescape")
    if b"\0" in made:
        raise UsageError(f"{text!r} has a NUL in it")
    return made


def dims(shape: Sequence[int]) -> tuple[int, Any]:
    """A shape as C takes it: how many dimensions, and an array of them."""
    if isinstance(shape, int):
        shape = (shape,)
    if len(shape) > header.SLUICE_MAX_RANK:
        raise UsageError(f"{list(shape)} has {len(shape)} dimensions, at most {header.SLUICE_MAX_RANK} are allowed")
    return len(shape), wholes("shape", shape, ctypes.c_int64)


def word(enum: str, value: str, what: str) -> int:
    """The number of an enum's value: "host" of sluice_place."""
    known = WORDS[enum]
    if value not in known:
        raise UsageError(f"{what}: {value!r} is not one of {', '.join(known)}")
    return known[value]


def text_as_c(struct: ctypes.Structure, key: str, value: Any) -> Any:
    """Texts and paths encoded for the fields that take them; everything else as it is."""
    kinds = {f[0]: f[1] for f in type(struct)._fields_}
    return encode(value) if kinds[key] is ctypes.c_char_p and isinstance(value, (str, os.PathLike)) else value


def fill(struct: ctypes.Structure, settings: Mapping[str, Any], what: str, leave_out: Sequence[str] = ()) -> None:
    """Sets fields of a struct by name. None keeps what is there."""
    name = type(struct).__name__
    known = [f[0] for f in type(struct)._fields_ if f[0] not in leave_out]
    for key, value in settings.items():
        if key not in known:
            import difflib

            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
            raise UsageError(f"{what}: there is no setting {key!r}{hint}")
        if value is None:
            continue
        enum = ENUM_FIELDS.get(name, {}).get(key)
        if enum:
            value = word(enum, value, f"{what}: {key}")
        try:
            setattr(struct, key, text_as_c(struct, key, value))
        except UsageError as e:
            raise UsageError(f"{what}: {e}") from None
        except TypeError:
            raise UsageError(f"{what}: {key}: {value!r} is of the wrong type") from None


def make(struct: Any) -> Any:
    """A struct of the header with its defaults: X with X_init_sized."""
    made = struct()
    getattr(lib, struct.__name__ + "_init_sized")(ctypes.byref(made), ctypes.sizeof(made))
    return made


# ---- text that the library writes to a FILE ----

_libc = ctypes.CDLL(None, use_errno=True)
_libc.open_memstream.restype = ctypes.c_void_p
_libc.open_memstream.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)]
_libc.fclose.argtypes = [ctypes.c_void_p]
_libc.free.argtypes = [ctypes.c_void_p]


def text_of(call: Callable[[int], int | None]) -> tuple[int, str]:
    """What `call` returns, and what it wrote to the FILE it was given."""
    start, size = ctypes.c_void_p(), ctypes.c_size_t()
    file = _libc.open_memstream(ctypes.byref(start), ctypes.byref(size))
    if not file:
        raise MemoryError("no memory for a text")
    try:
        status = call(file) or 0
    finally:
        _libc.fclose(file)
        written = ctypes.string_at(start, size.value) if start.value else b""
        _libc.free(start)
    return status, written.decode("utf-8", "replace")


# ---- handles ----


class Handle:
    """Owns an object of the library. `uses` are handles that outlive it: they are destroyed behind it."""

    def __init__(self, pointer: Any, destroy: Callable[[Any], None], uses: Sequence[Handle] = ()) -> None:
        self._pointer: Any = pointer
        self._destroy = destroy
        self._uses = list(uses)
        self._users = 0
        self._closing = False
        self._lock = threading.Lock()
        self._owner: int | None = None
        for used in self._uses:
            used._users += 1

    @property
    def closed(self) -> bool:
        return self._closing

    def __enter__(self) -> Any:
        """The pointer, for this thread alone until __exit__."""
        me = threading.get_ident()
        if self._owner == me:
            raise UsageError("this object is in use by the call that has called you: wait until it returns")
        self._lock.acquire()
        if self._closing:
            self._lock.release()
            raise UsageError("this object is closed")
        self._owner = me
        return self._pointer

    def __exit__(self, *_: object) -> None:
        self._owner = None
        self._lock.release()

    def close(self) -> None:
        """Destroys the object, now or when its last user is gone."""
        if self._owner == threading.get_ident():
            raise UsageError("this object is in use by the call that has called you: close it afterwards")
        with self._lock:
            self._closing = True
        self._release()

    def _release(self) -> None:
        if self._users > 0 or self._pointer is None or not self._closing:
            return
        pointer, self._pointer = self._pointer, None
        self._destroy(pointer)
        for used in self._uses:
            used._users -= 1
            used._release()
        self._uses = []

    def __del__(self) -> None:
        self._closing = True
        self._release()


# ---- the library's log ----

_LEVELS = {
    int(header.sluice_log_level.SLUICE_LOG_WARNING): logging.WARNING,
    int(header.sluice_log_level.SLUICE_LOG_NOTE): logging.INFO,
    int(header.sluice_log_level.SLUICE_LOG_DETAIL): logging.DEBUG,
}


def _on_log(_user: Any, level: int, line: bytes) -> None:
    LOG.log(_LEVELS.get(level, logging.INFO), "%s", line.decode("utf-8", "replace"))


log_callback = header.sluice_log_fn(_on_log)
