"""errors.py: a status of the library as an exception, with the library's message."""

from __future__ import annotations

from . import _header as header


class Error(Exception):
    """What every call of this package raises when it fails. `status` is the number of the library and of the program."""

    status = int(header.sluice_status.SLUICE_ERR_FAILED)


class UsageError(Error, ValueError):
    """A configuration, a setting, an array or a call that cannot be, or does not fit the model."""

    status = int(header.sluice_status.SLUICE_ERR_USAGE)


class NoFitError(Error):
    """Does not fit in memory; only before step 1. The message says how much is missing and what would help."""

    status = int(header.sluice_status.SLUICE_ERR_NO_FIT)


class InputError(Error):
    """Data or weights that are missing, empty, too short, malformed, or of another model."""

    status = int(header.sluice_status.SLUICE_ERR_INPUT)


class RankError(Error):
    """A rank was lost, stuck or diverged."""

    status = int(header.sluice_status.SLUICE_ERR_RANK)


class FileError(Error):
    """An I/O error, or a full disk, on a file that was already accepted."""

    status = int(header.sluice_status.SLUICE_ERR_IO)


class NumbersError(Error, ArithmeticError):
    """A loss or a gradient is not finite."""

    status = int(header.sluice_status.SLUICE_ERR_NUMBERS)


class NoMemoryError(Error, MemoryError):
    """The operating system refused memory."""

    status = int(header.sluice_status.SLUICE_ERR_NO_MEMORY)


class Stopped(Error):
    """Stopped by SIGTERM or SIGHUP, after a checkpoint where there was a step to save. Ctrl-C is KeyboardInterrupt."""

    status = int(header.sluice_status.SLUICE_ERR_STOPPED)


class StopTraining(Exception):
    """Raise it in on_step or on_event: the run saves its checkpoint and ends, and train returns."""


_CLASSES = {
    c.status: c
    for c in (Error, UsageError, NoFitError, InputError, RankError, FileError, NumbersError, NoMemoryError, Stopped)
}


def error_of(status: int, message: str) -> Error:
    """The exception for a status."""
    made = _CLASSES.get(status, Error)(message)
    made.status = status
    return made
