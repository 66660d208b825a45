"""files.py: weights, checkpoints, tokenizers and the machine."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any, Literal, Sequence

from . import _header as header
from ._library import check, encode, fill, lib, make, text_of, word
from ._settings import Device, DType
from .arrays import Array, fitting, view


def inspect(path: str | os.PathLike[str]) -> Any:
    """What is in a safetensors file, a folder of a model, a checkpoint, a folder of checkpoints or a tokenizer.json: what
    `sluice inspect --json` writes."""
    status, text = text_of(lambda file: lib.sluice_inspect(encode(path), True, file))
    check(status)
    return json.loads(text)


def verify(path: str | os.PathLike[str]) -> str:
    """Reads every byte and checks every checksum; InputError names the first fault."""
    status, text = text_of(lambda file: lib.sluice_verify(encode(path), file))
    check(status)
    return text


def export(
    checkpoint: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    dtype: DType = "f32",
    shard_bytes: int = 0,
) -> str:
    """The weights of a checkpoint as safetensors; an `out` that is a folder, or ends in a slash, gets the model's folder."""
    kind = word("sluice_dtype", dtype, "export")
    status, text = text_of(lambda file: lib.sluice_export(encode(checkpoint), encode(out), kind, shard_bytes, file))
    check(status)
    return text


def merge(
    base: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    dtype: Literal["base", "f32", "bf16", "f16"] = "base",
    shard_bytes: int = 0,
) -> str:
    """A model's folder with a PEFT adapter added to its weights; "base": in the type of the base's weights."""
    kind = word("sluice_dtype", "i32" if dtype == "base" else dtype, "merge")
    paths = [encode(p) for p in (base, adapter, out)]
    status, text = text_of(lambda file: lib.sluice_merge(*paths, kind, shard_bytes, file))
    check(status)
    return text


def tokenize(
    tokenizer: str | os.PathLike[str],
    inputs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> str:
    """Files of text as a file of token ids; without `out` the ids and tokens as text. Options are the other fields of
    sluice_tokenize_options in the header."""
    made = make(header.sluice_tokenize_options)
    paths = (ctypes.c_char_p * max(len(inputs), 1))(*(encode(p) for p in inputs))
    made.inputs = ctypes.cast(paths, ctypes.POINTER(ctypes.c_char_p))
    made.input_count = len(inputs)
    if out is not None:
        made.out = encode(out)
    own = ("size", "inputs", "input_count", "standard_input", "out", "progress", "user", "stop")
    fill(made, options, "tokenize", own)
    status, text = text_of(lambda file: lib.sluice_tokenize(encode(tokenizer), ctypes.byref(made), file))
    check(status)
    return text


def devices(*, measure: bool = False, device: Device = "auto", machine_file: str | os.PathLike[str] | None = None,
            disk: str | os.PathLike[str] | None = None) -> str:
    """What this machine offers and what is built in; with `measure` also how fast it is, written to `machine_file`. With `disk`,
    a folder for swap files, its disk alone is measured, and kept for every plan with it."""
    if disk is not None:
        status, text = text_of(lambda file: lib.sluice_disks(encode(disk), file))
        check(status)
        return text
    kind = word("sluice_device", device, "devices")
    path = encode(machine_file) if machine_file is not None else None
    status, text = text_of(lambda file: lib.sluice_devices(measure, 0, kind, path, file))
    check(status)
    return text


def bag_ends(bags: Any, bag_count: int) -> Array:
    """For data in coordinates: entry i is in bag bags[i], in increasing order; the Array that Graph.bag takes as `ends`."""
    found = view("bags", bags)
    given = fitting("bags", bags, "i32", found.shape[:1] if found.shape else (0,))
    made = Array((bag_count,), "i32")
    source = ctypes.cast(given.address, ctypes.POINTER(ctypes.c_int32))
    target = ctypes.cast(made.address, ctypes.POINTER(ctypes.c_int32))
    check(lib.sluice_bag_ends(source, given.shape[0], bag_count, target))
    return made
