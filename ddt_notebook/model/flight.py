"""Reads the entries of PyTorch's Flight Recorder, and translates its names to those of torch.

The recorder of a running rank and the files that a real job left behind hold the same entries.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from typing import Any

from .collective import Shape
from .operations import from_recorder
from .user_code import is_user_code

_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
#: Frames as the recorder stores them, innermost first: file, line, function.
Frames = Iterable[tuple[str, int, str]]


def operation(entry: dict[str, Any]) -> str:
    """``"all_reduce"`` for the recorder's ``"gloo:all_reduce"`` or ``"nccl:allreduce"``."""
    return from_recorder(str(entry["profiling_name"]))


def dtypes(names: Iterable[str]) -> tuple[str, ...]:
    """``"float32"`` for the recorder's ``"Float"``."""
    return tuple(_DTYPES.get(name, name.lower()) for name in names)


def shapes(sizes: Iterable[Iterable[int]]) -> tuple[Shape, ...]:
    """Sizes of tensors as tuples."""
    return tuple(tuple(map(int, size)) for size in sizes)


def user_frame(frames: Frames) -> tuple[tuple[str, int, str] | None, str | None]:
    """The user's innermost frame, None if there is none, and the library that issued the call."""
    caller = None
    for file, line, function in frames:
        caller = caller or library(file.partition("/torch/")[2])
        if is_user_code(file):
            return (file, line, function), caller
    return None, caller


def library(path: str | None) -> str | None:
    """The name that users know for the part of torch in this file."""
    if not path:
        return None
    for part, name in (
        ("nn/parallel/distributed", "DistributedDataParallel"),
        ("autograd/graph", "DistributedDataParallel"),
        ("algorithms/join", "Join"),
        ("fsdp", "FSDP"),
        ("distributed/tensor", "DTensor"),
    ):
        if part in path:
            return name
    return None


def unpickled(data: bytes) -> Any:
    """The content of a pickled dump, which may be dicts, lists, numbers and text only.

    Raises
    ------
    pickle.UnpicklingError
        If it names any class or function other than those with which torch writes plain lists, or
        claims a size beyond all memory.
    """
    try:
        # a stream that can peek is read in large pieces, in half of the time
        return _PlainUnpickler(io.BufferedReader(io.BytesIO(data))).load()
    except (MemoryError, OverflowError) as error:
        raise pickle.UnpicklingError("a size in the dump is beyond all memory") from error


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.jit._pickle" and name in ("build_intlist", "build_doublelist"):
            return _as_it_is
        raise pickle.UnpicklingError(f"the Flight Recorder's dump names {module}.{name}")


def _as_it_is(values: list[Any]) -> list[Any]:
    return values
