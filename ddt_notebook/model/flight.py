"""Reads the entries of PyTorch's Flight Recorder, and translates its names to those of torch.

The recorder of a running rank and the files that a real job left behind hold the same entries.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

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
#: Opcodes by the length of what follows them: nothing, 1, 2, 4 or 8 bytes; the most frequent first.
_FIXED = {
    1: b"\x80Kqh\x82",
    0: b"(.0120NaebdlsuR\x81\x88\x89)]}\x8f\x90\x91\x93\x94\x92oQ\x97\x98",
    2: b"M\x83",
    4: b"Jj\x84",
    8: b"G\x95",
}
#: Texts and large numbers of a usual length with their content: four in each entry.
_USUAL = rb"\x8a\x08.{8}|X(?:" + (
    b"|".join(re.escape(bytes([n])) + rb"\x00\x00\x00.{%d}" % n for n in range(1, 32)) + b")"
)
#: Any number of them; arguments of a call, which do not nest; places in the memo below 2 ** 24.
_STEPS = re.compile(
    b"(?>(?>"
    + b"|".join(
        b"[" + re.escape(codes) + b"]" + (b"+" if width == 0 else b".{%d}" % width)
        for width, codes in _FIXED.items()
    )
    + b"|"
    + _USUAL
    + rb"|[t\x85]R|r...\x00|c[^\n]*\n[^\n]*\n)*)",
    re.DOTALL,
)
#: Opcodes that a length precedes their content, and how many bytes that has.
_LENGTHS = {
    **dict.fromkeys((b"\x8c", b"U", b"C", b"\x8a"), 1),
    **dict.fromkeys((b"X", b"T", b"B", b"\x8b"), 4),
    **dict.fromkeys((b"\x8d", b"\x8e"), 8),
}
_TUPLES = (b"t", b"\x85", b"\x86", b"\x87")
#: What the unpickler refuses when it gets there, and the end.
_NAMES = (b"i", b"P", b"")
#: Python can hash a tuple that nests so many.
_MOST_TUPLES = 50_000
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
        If it names any class or function other than those with which torch writes plain lists,
        claims a size beyond all memory, or nests tuples without a limit.
    """
    try:
        if _tuples_in(data) > _MOST_TUPLES:
            return _read_slowly(data)
        # a stream that can peek is read in large pieces, in half of the time
        return _PlainUnpickler(io.BufferedReader(io.BytesIO(data))).load()
    except (MemoryError, OverflowError) as error:
        raise pickle.UnpicklingError("a size in the dump is beyond all memory") from error


def _read_slowly(data: bytes) -> Any:
    try:
        return _FlatKeys(io.BytesIO(data)).load()
    except KeyError as error:
        raise pickle.UnpicklingError(f"the dump cannot be read: no opcode {error}") from error


def _tuples_in(data: bytes) -> int:
    """How many tuples a dump makes that are no arguments.

    Raises
    ------
    pickle.UnpicklingError
        If it claims sizes or numbers for which Python's unpickler would reserve memory at once.
    """
    at = found = 0
    while True:
        step = _STEPS.match(data, at)
        assert step is not None
        at = step.end()
        code, rest = data[at : at + 1], data[at + 1 : at + 9]
        if code in _LENGTHS:
            width = _LENGTHS[code]
            at += 1 + width + int.from_bytes(rest[:width], "little")
        elif code in _TUPLES:
            at, found = at + 1, found + 1
        elif code in _NAMES:  # the unpickler refuses the name, or has read all
            return found
        else:
            raise pickle.UnpicklingError("the dump cannot be read: torch does not write such ones")


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _found(module, name)


class _FlatKeys(pickle._Unpickler):
    """Reads slowly, and never hashes a tuple, which takes a stack as deep as it is nested."""

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def find_class(self, module: str, name: str) -> Any:
        return _found(module, name)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def load_setitems(self) -> None:
        self._update(self.pop_mark())

    def _update(self, items: list[Any]) -> None:
        if any(type(key) not in (str, int) for key in items[::2]):
            raise pickle.UnpicklingError(
                "the dump cannot be read: a key is neither text nor number"
            )
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **{
            code: load
            for code, load in pickle._Unpickler.dispatch.items()
            if code
            not in b"".join((pickle.SETITEM, pickle.DICT, pickle.ADDITEMS, pickle.FROZENSET))
        },
        pickle.SETITEMS[0]: load_setitems,
    }


def _found(module: str, name: str) -> Any:
    if module == "torch.jit._pickle" and name in ("build_intlist", "build_doublelist"):
        return _as_it_is
    raise pickle.UnpicklingError(f"the Flight Recorder's dump names {module}.{name}")


def _as_it_is(values: list[Any]) -> list[Any]:
    return values
