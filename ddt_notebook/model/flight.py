"""Reads the entries of PyTorch's Flight Recorder, and translates its names to those of torch.

The recorder of a running rank and the files that a real job left behind hold the same entries.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from itertools import chain, islice
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
#: Opcodes that hash what may nest without end, or reserve memory for what does not follow.
_REFUSED = b"".join(
    (pickle.SETITEM, pickle.DICT, pickle.ADDITEMS, pickle.FROZENSET, pickle.BYTEARRAY8)
)
#: The recorder nests six levels; a dump of 1 MB has 200,000 values, shared ones counted each time.
_DEEPEST, _MOST_PARTS = 16, 4_000_000
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

    It needs memory and time in proportion to the dump, whatever the dump contains, and so does
    what compares its values or writes them as text.

    Raises
    ------
    pickle.UnpicklingError
        If it cannot be read, or names any class or function other than those with which torch
        writes plain lists.
    """
    try:
        content = _CarefulUnpickler(io.BytesIO(data)).load()
        _check_nesting(content)
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # whatever Python's opcodes raise for operands that are not theirs
        why = f"{type(error).__name__}: {error}"
        raise pickle.UnpicklingError(f"the dump cannot be read: {why:.200}") from error
    return content


def unpickled_quickly(data: bytes) -> Any:
    """The same in a tenth of the time, for what torch or this package wrote.

    It calls nothing that `unpickled` would not. But other dumps can fill the memory, last for
    years and end the process, which therefore has to limit itself.
    """
    # a stream that can peek is read in large pieces, in half of the time
    return _QuickUnpickler(io.BufferedReader(io.BytesIO(data))).load()


def _check_nesting(content: Any) -> None:
    """Raise an error if values nest deeply, or a small dump has many since they share parts."""
    left, level = _MOST_PARTS, [content]
    for _ in range(_DEEPEST):
        parts = chain.from_iterable(
            one.values() if type(one) is dict else one
            for one in level
            if type(one) in (dict, list, tuple)
        )
        level = list(islice(parts, left + 1))
        left -= len(level)
        if not level:
            return
        if left < 0:
            break
    raise pickle.UnpicklingError("the dump cannot be read: torch does not nest values like this")


class _QuickUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _found(module, name)


class _CarefulUnpickler(pickle._Unpickler):
    """Never hashes a tuple, which takes a stack as deep as it is nested, and time without end."""

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
        **{code: load for code, load in pickle._Unpickler.dispatch.items() if code not in _REFUSED},
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
    }


def _found(module: str, name: str) -> Any:
    if module == "torch.jit._pickle" and name in ("build_intlist", "build_doublelist"):
        return _as_it_is
    raise pickle.UnpicklingError(f"the Flight Recorder's dump names {module}.{name}")


def _as_it_is(values: list[Any]) -> list[Any]:
    return values
