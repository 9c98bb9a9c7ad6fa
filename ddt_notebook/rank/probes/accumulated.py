"""Records what an evaluation adds up from batch to batch, and what it gives the other ranks of it.

Between two batches, the numbers in the loop's variables and in the objects there, such as a meter,
are compared with those before. So it does not matter how the program adds up: with numbers, with
tensors or in a list. Nothing is compared once a loop has trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from threading import get_ident
from types import FrameType, ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from ...model import Position
from ...model.shown import Accumulated, ShownNumber
from .frames import local_variables, user_frames

#: Numbers and objects of one loop, levels of objects, elements of a tensor, numbers that are given
#: to other ranks. They bound the record and were chosen, not measured.
_MAX_NUMBERS = 64
_MAX_OBJECTS = 512
_MAX_DEPTH = 3
_MAX_ELEMENTS = 16
_MAX_GIVEN = 256
#: Objects without numbers of an evaluation, which may be large.
_CLOSED = (torch.nn.Module, Optimizer, torch.utils.data.DataLoader, torch.utils.data.Dataset)
#: Arguments of a call that are no data.
_SETTINGS = (type(None), bool, str, dist.ProcessGroup, dist.ReduceOp, dist.ReduceOp.RedOpType)
_read = torch.Tensor.tolist


@dataclass(slots=True)
class _Number:
    """A number that is added to: its latest value, or the length of a list of numbers."""

    value: float
    total: float = 0.0
    #: The sum of what each batch added, times the samples of the batch.
    weighted: float = 0.0
    changes: int = 0


@dataclass(slots=True)
class PassSums:
    """What one pass over a loader adds up."""

    where: Position | None
    epoch: int
    #: The number of backward passes of this process when it began.
    backwards: int
    numbers: dict[str, _Number] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    #: Numbers that were given to other ranks since the last batch.
    given: list[float] = field(default_factory=list)
    #: Whether more was given, such as a large tensor or an object.
    gave_more: bool = False
    #: Numbers that were written after that, by line of code and position in the line of output.
    written: dict[tuple[Position, int], ShownNumber] = field(default_factory=dict)

    def begin(self, frame: FrameType | None) -> None:
        """Note the numbers before the first batch."""
        for name, value, _ in numbers(frame):
            self.numbers[name] = _Number(value)

    def used(self, frame: FrameType | None, samples: int) -> None:
        """Note what a batch of this many samples has changed."""
        self.sizes.append(samples)
        for name, value, latest in numbers(frame):
            number = self.numbers.get(name)
            if number is None or value == number.value:
                continue
            if latest is None:
                added = value - number.value
            elif value == number.value + 1:
                added = latest  # a list has one more
            else:
                continue
            number.value = value
            number.total += added
            number.weighted += added * samples
            number.changes += 1

    def observed(self) -> Iterator[Accumulated]:
        """The numbers that changed, with the batches that were counted."""
        if self.where is None:
            return
        for name, number in self.numbers.items():
            if number.changes:
                yield Accumulated(
                    name=name,
                    loop=self.where,
                    epoch=self.epoch,
                    batches=len(self.sizes),
                    samples=sum(self.sizes),
                    even=len(set(self.sizes)) == 1,
                    total=number.total,
                    weighted=number.weighted,
                )


class AccumulatedRecord:
    """The latest pass that evaluates in this run."""

    def __init__(self) -> None:
        self.thread: int | None = None
        self.latest: PassSums | None = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self.thread, self.latest = get_ident(), None

    def begins(
        self, where: Position | None, epoch: int, backwards: int, frame: FrameType
    ) -> PassSums | None:
        """Begin a pass before its first batch."""
        if get_ident() != self.thread:
            return None
        sums = PassSums(where, epoch, backwards)
        sums.begin(next(user_frames(frame), None))
        return sums

    def uses(self, sums: PassSums, samples: int, frame: FrameType) -> None:
        """Note a batch that was used without a training step."""
        sums.given.clear()
        sums.gave_more = False
        sums.written.clear()
        sums.used(next(user_frames(frame), None), samples)
        self.latest = sums

    def gives(self, values: tuple[Any, ...]) -> None:
        """Note the numbers that a call of ``torch.distributed`` is given after the last batch."""
        if self.latest is None or get_ident() != self.thread:
            return
        self.latest.gave_more |= not given_numbers(values, self.latest.given)


def given_numbers(values: tuple[Any, ...], given: list[float]) -> bool:
    """Add the numbers that a call is given to a list; returns whether it was given nothing else."""
    whole = True
    for value in _each(values):
        count = len(given)
        for number in elements(value):
            if len(given) < _MAX_GIVEN:
                given.append(number)
        if len(given) in (count, _MAX_GIVEN) and not isinstance(value, _SETTINGS):
            whole = False
    return whole


def _each(values: tuple[Any, ...]) -> Iterator[Any]:
    """The arguments of a call, with the items of short lists, such as the outputs of all_gather."""
    for value in values:
        if isinstance(value, (list, tuple)) and len(value) <= _MAX_GIVEN:
            yield from value
        else:
            yield value


def numbers(frame: FrameType | None) -> Iterator[tuple[str, float, float | None]]:
    """The numbers that a frame holds: name, value, and for a list its length and last element."""
    if frame is None:
        return
    left = _MAX_NUMBERS
    seen: set[int] = set()
    # what was made last comes first: a cell may have hundreds of older names
    waiting = [(name, value, 0) for name, value in [*local_variables(frame).items()][::-1]]
    for name, value, depth in waiting:
        found: list[tuple[str, float, float | None]] = []
        if isinstance(value, list):
            last = next(iter(elements(value[-1])), None) if value else 0.0
            if last is not None:
                found.append((name, float(len(value)), last))
        elif held := list(elements(value)):
            found = [(f"{name}[{at}]" if at else name, x, None) for at, x in enumerate(held)]
        elif depth < _MAX_DEPTH and id(value) not in seen and len(waiting) < _MAX_OBJECTS:
            seen.add(id(value))
            waiting += [(f"{name}.{key}", one, depth + 1) for key, one in parts(value)]
        for one in found:
            yield one
            left -= 1
        if left <= 0:
            return


def parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The items of a dictionary, or the attributes of an object of a class of the user."""
    if isinstance(value, dict):
        held = value
    elif isinstance(value, (type, ModuleType, *_CLOSED)):
        return
    else:
        held = getattr(value, "__dict__", None) or {}
    if len(held) <= _MAX_NUMBERS:
        for key, one in list(held.items()):
            if isinstance(key, str) and not key.startswith("__"):
                yield key, one


def elements(value: Any) -> Iterator[float]:
    """A number, or the elements of a small tensor on the CPU, as far as they are finite."""
    if isinstance(value, (int, float)):
        if not isinstance(value, bool) and isfinite(value):
            yield float(value)
    elif (
        type(value) is torch.Tensor
        and value.is_cpu
        and value.layout is torch.strided
        and 0 < value.numel() <= _MAX_ELEMENTS
        and not value.is_complex()
        and value.dtype is not torch.bool
    ):
        yield from filter(isfinite, map(float, _read(value.detach().reshape(-1))))


#: The record of this process.
RECORD = AccumulatedRecord()
