"""Searches the data from which a batch was taken among the variables of the user's code.

A batch that is made up is in no variable. Rows of one that was taken from data stand in it, one
element after the other, whatever indices the program has drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch

from ..after_import import AfterImport
from . import accumulated
from .frames import local_variables, user_frames

#: Frames and objects that are searched, and elements of an array. They bound the time and were
#: chosen, not measured.
_FRAMES, _OBJECTS, _ELEMENTS = 4, 512, 1 << 22
#: Rows of a batch that are looked up, the most elements of a row that are compared, and how many
#: elements and different ones a row needs: others may stand in an array by chance.
_ROWS, _LENGTH, _SHORTEST, _DIFFERENT = 3, 32, 8, 4
#: Elements that a row needs which is a whole row of an array.
_SHORTEST_WHOLE = 5
#: An array of data has more elements than this multiple of a batch.
_TIMES = 4
#: The latest files that NumPy has mapped: a function may map one anew for each batch.
_MAPPED = 8
_mapped: dict[tuple[str, Any, int], None] = {}


def install() -> None:
    """Note the files that NumPy maps."""
    AfterImport("numpy", _watch_maps).install()


def _watch_maps(numpy: ModuleType) -> None:
    original = numpy.memmap.__new__

    def __new__(kind: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        __tracebackhide__ = True
        array = original(kind, filename, *args, **kwargs)
        if kind is numpy.memmap and array.filename is not None:
            key = str(array.filename), array.dtype, int(array.offset)
            _mapped.pop(key, None)
            _mapped[key] = None
            if len(_mapped) > _MAPPED:
                del _mapped[next(iter(_mapped))]
        return array

    numpy.memmap.__new__ = __new__


def _mapped_arrays(numpy: Any, least: int) -> Iterator[tuple[str, Any]]:
    for file, dtype, offset in list(_mapped):
        if dtype.kind not in "iuf":
            continue
        try:
            size = (Path(file).stat().st_size - offset) // dtype.itemsize
            if least <= size <= _ELEMENTS:
                yield Path(file).name, numpy.fromfile(file, dtype, size, offset=offset)
        except OSError:  # it is gone
            continue


def find(batch: torch.Tensor, frame: FrameType | None, *, short: bool = False) -> str:
    """The variable that holds the data of which a batch is a part; empty if none was found.

    Parameters
    ----------
    short
        Whether to look up rows, too, that are so short that they have to be whole rows of an array.
    """
    numpy = sys.modules.get("numpy")
    rows = _rows(batch, _SHORTEST_WHOLE if short else _SHORTEST)
    if not rows or numpy is None:
        return ""
    least = batch.numel() * _TIMES
    for name, array in chain(_arrays(frame, numpy, least), _mapped_arrays(numpy, least)):
        if (array.dtype.kind == "f") != (rows[0].dtype.kind == "f"):
            continue
        same = array.astype(rows[0].dtype, copy=False)
        if len(rows[0]) < _SHORTEST:
            if same.shape[1:] == batch.shape[1:] and all(_is_row(row, same) for row in rows):
                return name
        elif all(_stands_in(row, same.reshape(-1), numpy) for row in rows):
            return name
    return ""


def _rows(batch: torch.Tensor, shortest: int) -> list[Any]:
    """The first rows that no array holds by chance; none if there are fewer than two."""
    if batch.dim() < 2 or not batch.is_cpu or batch.is_complex() or batch.dtype == torch.bfloat16:
        return []
    rows = (row.detach().reshape(-1)[:_LENGTH].numpy() for row in batch[: 4 * _ROWS])
    apart = [r for r in rows if len(r) >= shortest and len({*r.tolist()}) >= _DIFFERENT]
    return apart[:_ROWS] if len(apart) > 1 else []


def _arrays(frame: FrameType | None, numpy: Any, least: int) -> Iterator[tuple[str, Any]]:
    """The large arrays among the variables of frames, and in their objects."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any, bool]] = []
    for user in islice(user_frames(frame), _FRAMES):
        for names in (local_variables(user), user.f_globals):
            waiting += [(name, value, True) for name, value in list(names.items())]
    for name, value, opens in islice(waiting, _OBJECTS):
        if id(value) in seen:
            continue
        seen.add(id(value))
        array = value
        if type(value) is torch.Tensor and value.is_cpu and value.layout is torch.strided:
            plain = not value.requires_grad and not value.is_complex()
            array = value.numpy() if plain and value.dtype != torch.bfloat16 else None
        if isinstance(array, numpy.ndarray):
            if array.dtype.kind in "iuf" and least <= array.size <= _ELEMENTS:
                yield name, array
        elif opens and len(waiting) < _OBJECTS:
            waiting += [(f"{name}.{key}", one, False) for key, one in accumulated.parts(value)]


def _is_row(row: Any, table: Any) -> bool:
    """Whether an array has a row of these elements."""
    return bool((table.reshape(len(table), -1) == row).all(1).any())


def _stands_in(row: Any, flat: Any, numpy: Any) -> bool:
    """Whether the elements of a row stand in an array one after the other."""
    last = flat.size - row.size
    return any(
        numpy.array_equal(flat[at : at + row.size], row)
        for at in numpy.flatnonzero(flat[: last + 1] == row[0])
    )
