"""Keeps a ledger of running values that the user's own objects hold outside of modules' buffers.

A running mean of observations, a normaliser or a centre is often a tensor, an array or a number in
a plain object. Such values are found among the user's objects before the first pass, and small
fingerprints are taken at the sampled steps.
"""

from __future__ import annotations

import struct
import sys
import weakref
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ...model import Position
from ...model.training import KeptSample, PlainState
from ...model.user_code import is_user_code
from .fingerprints import shape_text, sketch
from .frames import scopes

#: Owners and values of a record, objects and levels that are searched, frames, and samples. They
#: bound the record and were chosen, not measured.
_MOST, _VALUES, _OBJECTS, _LEVELS, _FRAMES, _PARTS, _MAX_SAMPLES = 16, 16, 512, 3, 6, 2000, 40
#: A larger tensor is data or a copy of a model.
_ELEMENTS = 1 << 20


class _Owner:
    """The numbers that one object holds."""

    def __init__(self, name: str, owner: Any, keys: list[str]) -> None:
        self.name, self.kind, self.keys = name, type(owner).__name__, keys
        self.owner = weakref.ref(owner)
        self.shapes = tuple(_shape(vars(owner)[key]) for key in keys)
        self.saved: Position | None = None
        self.samples: list[KeptSample] = []

    def is_in(self, memory: set[int]) -> bool:
        """Whether one of its tensors lies in this memory."""
        owner = self.owner()
        held = {} if owner is None else vars(owner)
        values = (held.get(key) for key in self.keys)
        return any(isinstance(x, torch.Tensor) and x.data_ptr() in memory for x in values)

    def sample(self, moment: str, number: int, step: int) -> None:
        """Take fingerprints of the values, if the object still exists."""
        owner = self.owner()
        if owner is not None and len(self.samples) < _MAX_SAMPLES:
            held = vars(owner)
            values = tuple(_content(held.get(key)) for key in self.keys)
            self.samples.append(KeptSample(moment=moment, number=number, step=step, values=values))

    def observed(self) -> PlainState:
        """The values that have changed since the beginning."""
        changed = [
            at for at in range(len(self.keys)) if len({one.values[at] for one in self.samples}) > 1
        ]
        return PlainState(
            name=self.name,
            kind=self.kind,
            values=tuple(self.keys[at] for at in changed),
            shapes=tuple(self.shapes[at] for at in changed),
            saved=self.saved,
            samples=tuple(
                KeptSample(
                    moment=one.moment,
                    number=one.number,
                    step=one.step,
                    values=tuple(one.values[at] for at in changed),
                )
                for one in self.samples
            ),
        )


class PlainStates:
    """The ledger of one run; the caller handles errors."""

    def __init__(self, steps: Callable[[], int]) -> None:
        self._steps = steps
        self._owners: dict[int, _Owner] = {}

    def begin(self, frame: Any) -> None:
        """Find the values before a model's first pass in a run."""
        for name, owner in _objects(frame):
            if len(self._owners) == _MOST:
                return
            if id(owner) in self._owners:
                continue
            keys = [
                key
                for key, value in list(islice(vars(owner).items(), _OBJECTS))
                if isinstance(key, str) and not key.startswith("__") and _is_number(value)
            ][:_VALUES]
            if keys and _can_be_watched(owner):
                found = _Owner(name, owner, keys)
                found.sample("begin", 0, self._steps())
                self._owners[id(owner)] = found

    def sample(self, moment: str, number: int) -> None:
        """Take fingerprints of all values, at a decreasing share of the steps."""
        if self._owners and not number & (number - 1):
            step = self._steps()
            for one in self._owners.values():
                one.sample(moment, number, step)

    def saves(self, memory: set[int], where: Position | None) -> None:
        """Note which values a program saves, given the memory of what it saves."""
        for one in self._owners.values():
            if one.saved is None and one.is_in(memory):
                one.saved = where

    def observed(self) -> tuple[PlainState, ...]:
        """The objects whose values have changed."""
        found = (one.observed() for one in self._owners.values())
        return tuple(one for one in found if one.values)


def _objects(frame: Any) -> Iterator[tuple[str, Any]]:
    """The user's objects in reach of the user's frames, and modules with classes of the user."""
    seen: set[int] = set()
    waiting = [
        (name, value, 0)
        for variables in scopes(frame, _FRAMES)
        for name, value in list(variables.items())
        if not name.startswith("__")
    ]
    for name, value, level in waiting:
        if len(seen) == _OBJECTS:
            return
        if id(value) in seen or not _is_searched(value):
            continue
        seen.add(id(value))
        if isinstance(value, nn.Module):
            for path, part in islice(value.named_modules(), _PARTS):
                if _is_of_user(type(part)):
                    yield f"{name}.{path}".rstrip("."), part
            continue
        yield name, value
        if level < _LEVELS:
            items = list(islice(vars(value).items(), _OBJECTS))
            waiting += [(f"{name}.{key}", one, level + 1) for key, one in items]


def _is_searched(value: Any) -> bool:
    if isinstance(value, (type, Optimizer, torch.Tensor)):
        return False
    own = isinstance(value, nn.Module) or _is_of_user(type(value))
    return own and type(getattr(value, "__dict__", None)) is dict


def _is_of_user(kind: type) -> bool:
    """Whether a class was defined in the user's code."""
    if kind.__module__ == "__main__":
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return isinstance(file, str) and is_user_code(file)


def _can_be_watched(owner: Any) -> bool:
    try:
        weakref.ref(owner)
    except TypeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    if _is_scalar(value):
        return True
    if type(value) is torch.Tensor:
        return (
            value.is_cpu
            and value.layout is torch.strided
            and value.is_floating_point()
            and value.grad_fn is None
            and 0 < value.numel() <= _ELEMENTS
        )
    return _is_array(value) and 0 < value.size <= _ELEMENTS


def _is_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return isinstance(value, float) or (numpy is not None and isinstance(value, numpy.floating))


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray and value.dtype.kind == "f"


def _content(value: Any) -> int:
    if _is_scalar(value):
        return zlib.crc32(struct.pack("d", float(value)))
    if _is_array(value):
        return sketch(torch.from_numpy(value.copy()))
    return sketch(value) if isinstance(value, torch.Tensor) and value.is_cpu else 0


def _shape(value: Any) -> str:
    if _is_scalar(value):
        return "scalar"
    return shape_text(value) if isinstance(value, torch.Tensor) else _array_shape(value)


def _array_shape(value: Any) -> str:
    return "×".join(map(str, value.shape)) or "scalar"
