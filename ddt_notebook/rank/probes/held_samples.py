"""Identifies the samples that a data set holds, without asking it for any of them.

A data set may read a file or draw a random crop when it is asked for a sample, so only what it
keeps in memory is looked at: lists, tensors and arrays that are as long as itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from ..user_signals import let_through
from .fingerprints import has_content, sketch

#: The first samples, of which as many numbers are kept: the smallest, so that two data sets that
#: have samples in common keep common numbers.
_SAMPLES, _KEPT = 1024, 256
#: What is read of one sample.
_MAX_BYTES, _MAX_PARTS, _MAX_DEPTH = 4096, 32, 4
#: Parts of a sample that are compared each for itself, and characters of their names.
_MOST_NAMED, _LONGEST_NAME = 8, 40
#: Values of such a part, and how often each has to occur on average. Chosen, not measured.
_MOST_VALUES, _TIMES_EACH = 4096, 3
#: Rows of a table of Hugging Face's ``datasets`` are read only if it is this small.
_TABLE_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Held:
    """Numbers for the first samples of a data set.

    For their order, for each by content, and, for each named part of the samples that consists of
    a few different integers or texts, such as labels: for its values, and for the places at which
    they are equal. If ranks number labels in other ways, only the former differ.
    """

    order: int
    contents: tuple[int, ...]
    repeated: int
    parts: tuple[tuple[str, tuple[int, int]], ...] = ()


def held(dataset: Any, size: int | None) -> Held | None:
    """What a data set of this size holds; None if that is not in memory, or not understood."""
    if not size or size < 2:
        return None
    try:
        columns = _numbered(dataset, size)
        rows = [_together(parts) for parts in zip(*columns.values(), strict=True)]
        parts = tuple(
            (name[:_LONGEST_NAME], numbers)
            for name, one in _parts(dataset, columns).items()
            if (numbers := _classes(one)) is not None
        )
    except Exception as error:  # noqa: BLE001  (a data set may be of any class)
        let_through(error)
        return None
    if not rows:
        return None
    different = set(rows)
    contents = tuple(sorted(different)[:_KEPT])
    return Held(hash(tuple(rows)), contents, len(rows) - len(different), parts)


def _numbered(dataset: Any, size: int) -> dict[str, list[int]]:
    """A number for each of the first samples, by what holds a part of them; none if not known."""
    columns = {name: one for name, one in _columns(dataset).items() if _is_as_long(one, size)}
    found: dict[str, list[int]] = {}
    for name, one in columns.items():
        numbers = _numbers(one, min(size, _SAMPLES))
        if numbers is None:
            return {}
        found[name] = numbers
    return found


def _parts(dataset: Any, columns: dict[str, list[int]]) -> dict[str, Any]:
    """The named parts of the first samples: the columns, or the keys of the only one."""
    named = _columns(dataset)
    found = {name: named[name][: len(columns[name])] for name in islice(columns, _MOST_NAMED)}
    rows = next(iter(found.values()), ())
    if len(found) != 1 or isinstance(rows, (torch.Tensor, np.ndarray)):
        return found
    if not all(isinstance(row, Mapping) for row in rows):
        return found
    keys = [key for key in islice(rows[0], _MOST_NAMED) if isinstance(key, str)]
    return {key: [row.get(key) for row in rows] for key in keys}


def _classes(column: Any) -> tuple[int, int] | None:
    """Numbers for the values of a column, and for where they are equal; None unless they repeat."""
    flat: list[int | str] = []
    for value in column:
        one = value
        if isinstance(value, (torch.Tensor, np.ndarray, np.generic)):
            if value.ndim > 1:
                return None
            one = value.reshape(-1)[:_MAX_PARTS].tolist()
        items = one[:_MAX_PARTS] if isinstance(one, (list, tuple)) else [one]
        if not all(type(item) in (int, bool, str) for item in items):
            return None
        flat += items
        if len(flat) >= _MOST_VALUES:
            break
    seen: dict[int | str, int] = {}
    pattern = tuple(seen.setdefault(item, len(seen)) for item in flat)
    if len(seen) < 2 or len(seen) * _TIMES_EACH > len(flat):
        return None
    return zlib.crc32(repr(flat).encode(errors="replace")), hash(pattern)


def _columns(dataset: Any) -> dict[str, Any]:
    """What holds the samples of a data set, by name."""
    if type(dataset) in (list, tuple):
        return {"": dataset}
    own = getattr(dataset, "__dict__", {})
    if isinstance(own.get("tensors"), tuple):  # TensorDataset
        return {f"tensors[{at}]": one for at, one in enumerate(own["tensors"])}
    if "_indices" in own and "_data" in own:  # Hugging Face's datasets
        return {"": _of_table(own["_data"], own["_indices"])}
    return dict(own)


def _of_table(data: Any, indices: Any) -> list[Any]:
    rows = data.to_pylist() if data.nbytes < _TABLE_BYTES else None
    if indices is None:
        return rows or []
    # a selection or another order of the rows, of which the table may have another one on each rank
    places = indices.column(0).to_pylist()
    return [rows[at] for at in places] if rows is not None else places


def _is_as_long(one: Any, size: int) -> bool:
    if isinstance(one, (torch.Tensor, np.ndarray)):
        return one.ndim > 0 and len(one) == size
    return type(one) in (list, tuple) and len(one) == size


def _numbers(column: Any, count: int) -> list[int] | None:
    if isinstance(column, torch.Tensor):
        if type(column) is not torch.Tensor or not has_content(column) or not column.is_cpu:
            return None
        return [sketch(row) for row in column.detach()[:count]]
    found = [_number(one, 0) for one in column[:count]]
    return None if None in found else found  # type: ignore[return-value]


def _number(value: Any, depth: int) -> int | None:
    """A number for a part of a sample, the same in every process; None if it is not understood."""
    if isinstance(value, torch.Tensor):
        return sketch(value) if type(value) is torch.Tensor and value.is_cpu else None
    if isinstance(value, (str, PurePath)):
        return zlib.crc32(str(value)[:_MAX_BYTES].encode(errors="replace"))
    if isinstance(value, bytes):
        return zlib.crc32(value[:_MAX_BYTES])
    if value is None or isinstance(value, (bool, int, float, np.generic)):
        return zlib.crc32(repr(value).encode())
    if isinstance(value, np.ndarray):
        plain = value.dtype.kind in "biufcSU"
        return zlib.crc32(value.reshape(-1)[:_MAX_BYTES].tobytes()) if plain else None
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return _number([part for pair in value.items() for part in pair], depth)
    if depth < _MAX_DEPTH and isinstance(value, Sequence):
        parts = [_number(part, depth + 1) for part in value[:_MAX_PARTS]]
        return None if None in parts else _together((len(value), *parts))  # type: ignore[arg-type]
    return None


def _together(parts: tuple[int, ...]) -> int:
    return parts[0] if len(parts) == 1 else hash(parts) & 0xFFFFFFFFFFFF
