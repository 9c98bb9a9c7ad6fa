"""Records what the user's own collectives were given, and what became of their results.

Of the calls of one line, the first, second, fourth, eighth and so on are examined, so that the cost
of a loop with many steps is that of a few. Numbers in reach of the line show what a value is the
mean of, however the program computed it; no operation of torch is watched for that.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isclose, isfinite
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, Literal

import torch

from ...model import Position
from ...model.exchanged import Exchanged, MeanOf, RankExchanged, UsedValue, WrittenMean
from ...model.operations import Operation
from ...model.shown import ShownNumber
from ...model.user_code import is_user_code
from ...wire.records import CallRecord
from ..user_signals import let_through
from . import accumulated, early_reads
from .frames import local_variables, user_frames, user_line

_REDUCE = frozenset({"all_reduce", "reduce"})
_GATHER = frozenset({"all_gather", "all_gather_into_tensor", "all_gather_single"})
#: The collectives that are examined.
EXAMINED = _REDUCE | _GATHER
#: Lines and calls of a run, elements of a tensor that is reduced, and elements of one that is
#: gathered or averaged. They bound the record and were chosen, not measured.
_MAX_LINES, _MAX_CALLS = 64, 128
_MAX_ELEMENTS, _MOST_ELEMENTS = 16, 1 << 20
#: User frames, objects in each, and elements of an object in which the parts of a mean are sought.
_FRAMES, _OBJECTS, _PARTS, _DEPTH = 3, 64, 1 << 16, 2
#: Numbers that are read or written after a call before its result is no longer looked for.
_FOLLOWED = 16
_MAX_AVERAGED = 8
_MAX_USES = 4
_MAX_COUNTS = 16
#: Parts of a list or tuple that may be tensors, and the smallest number of sums of columns.
_FEW, _VECTOR = 8, 2
#: The most steps over which gradients are accumulated.
_ACCUMULATED = 64
#: Operations before a loss in which a gathered tensor is sought.
_NODES = 96
#: Sums in single precision, added up in any order.
_RELATIVE = 1e-5


@dataclass(slots=True)
class _Followed:
    """A call whose result is followed."""

    about: Exchanged
    left: int = _FOLLOWED
    reads: list[UsedValue] = field(default_factory=list)
    scheduled: list[UsedValue] = field(default_factory=list)
    written: list[ShownNumber] = field(default_factory=list)
    averaged: list[WrittenMean] = field(default_factory=list)
    loss: Position | None = None

    def observed(self) -> Exchanged:
        """What is known of the call now."""
        return replace(
            self.about,
            reads=tuple(self.reads),
            scheduled=tuple(self.scheduled),
            written=tuple(self.written),
            averaged=tuple(self.averaged),
            loss=self.loss,
        )

    def is_first_sum(self, value: float) -> bool:
        """Whether a value is the result of the line's first call, which added up one number."""
        about = self.about
        return about.number == 1 and about.reduce_op == "SUM" and about.result == (value,)

    def is_near(self, value: float, relative: float, *, counts: bool) -> bool:
        """Whether a value is the result, or its mean over the ranks or over one of the counts.

        A result of several elements may hold a sum and its count.
        """
        divisors = {1, len(self.about.members), *(one for one in self.about.result if one)}
        scales = [1]
        if counts:
            divisors |= {*self.about.counts.values()}
            scales.append(100)
        return any(
            isclose(scale * one / divisor, value, rel_tol=relative)
            for one in self.about.result
            for divisor in divisors
            for scale in scales
        )


@dataclass(slots=True)
class _Averaged:
    """The results of a line's calls that one instruction reads, from the first call on."""

    call: _Followed
    code: CodeType  # kept, so that no other code has its id
    count: int = 0
    total: float = 0.0
    weighted: float = 0.0
    samples: int = 0

    def add(self, value: float, samples: int) -> None:
        """Add a result that was read after a batch of so many samples."""
        self.count += 1
        self.total += value
        self.weighted += samples * value
        self.samples += samples

    def means(self) -> Iterator[float]:
        """The mean over calls, and over samples, as meters show it."""
        yield self.total / self.count
        if self.samples:
            yield self.weighted / self.samples


@dataclass(slots=True)
class _Taken:
    """What is known of a call before it is made."""

    about: Exchanged
    tensor: torch.Tensor
    outputs: Any = None


class ExchangedRecord:
    """The examined calls of this run."""

    def __init__(self) -> None:
        self.thread: int | None = None
        self.begin_run()
        self.thread = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self.thread = get_ident()
        self.problem = ""
        self.values: list[_Followed] = []
        #: Reduced values that may still be read or written.
        self.open: deque[_Followed] = deque(maxlen=8)
        #: By the instruction that reads them: sums of one number that a meter may average.
        self.averaged: dict[tuple[int, int], _Averaged] = {}
        #: What was gathered for a loss: number of elements, sum and sum of squares.
        self.gathered: list[tuple[_Followed, tuple[int, float, float]]] = []
        #: The loss of the last backward pass, if it is a number on the CPU.
        self.last_loss = 0.0
        #: Whether an optimizer has stepped in this run, and since the last call that gathered.
        self.has_stepped = self.stepped = False
        self._calls: dict[tuple[int, int], tuple[CodeType, int]] = {}

    def _stop(self, error: Exception) -> None:
        let_through(error)
        self.thread, self.problem = None, f"{type(error).__name__}: {error}"
        self.open.clear()
        self.averaged.clear()
        self.gathered.clear()

    @property
    def follows(self) -> bool:
        """Whether results may still be read or written."""
        return bool(self.open or self.averaged)

    # -- calls ---------------------------------------------------------------------------------

    def before(
        self,
        record: CallRecord,
        operation: Operation,
        given: Mapping[str, Any],
        frame: FrameType,
        backwards: int,
    ) -> _Taken | None:
        """Note what a call is given; None if it is not examined."""
        code = frame.f_code
        if record.outside or record.asynchronous or len(record.group.members) < 2:
            return None
        if record.op not in EXAMINED:
            return None
        if get_ident() != self.thread or not is_user_code(code.co_filename):
            return None
        key = id(code), frame.f_lasti
        known = self._calls.get(key)
        if known is None and len(self._calls) == _MAX_LINES:
            return None
        number = known[1] + 1 if known is not None else 1
        self._calls[key] = code, number
        if number & (number - 1) or len(self.values) >= _MAX_CALLS:
            return None
        try:
            about = Exchanged(
                op=record.op,
                reduce_op=record.reduce_op,
                root=record.root,
                where=Position(file=code.co_filename, line=frame.f_lineno, function=code.co_name),
                number=number,
                members=record.group.members,
                backwards=backwards,
            )
            tensor = given.get(operation.tensors or "")
            if record.op in _GATHER:
                return _gathers(about, tensor, given.get(operation.result or ""), frame)
            return _reduces(about, tensor, frame, self.last_loss)
        except Exception as error:  # noqa: BLE001  (an object of the user may raise anything)
            self._stop(error)
            return None

    def after(self, taken: _Taken) -> None:
        """Note the result of a call."""
        try:
            if taken.about.op in _GATHER:
                followed = _Followed(taken.about)
                self.values.append(followed)
                self.gathered.append((followed, _content(taken.outputs)))
                self.stepped = False
                return
            result = tuple(accumulated.elements(taken.tensor))
            followed = _Followed(replace(taken.about, result=result))
            self.values.append(followed)
            self.open.append(followed)
        except Exception as error:  # noqa: BLE001
            self._stop(error)

    # -- what becomes of results; the callers handle errors --------------------------------------

    def reads(self, values: Any, frame: FrameType, samples: int) -> None:
        """Note that a line of the user's code read values from a tensor, after such a batch."""
        averaged = self.averaged.get((id(frame.f_code), frame.f_lasti))
        if averaged is not None and isinstance(values, float):
            averaged.add(values, samples)
        if not self.open:
            return
        for value in values if isinstance(values, list) else (values,):
            if isinstance(value, (int, float)):
                for one in self._near(float(value), _RELATIVE, counts=False):
                    if len(one.reads) < _MAX_USES and (where := user_line(frame)) is not None:
                        one.reads.append(UsedValue(where=where, value=float(value)))
                    if averaged is None and one.is_first_sum(value):
                        self._average(one, value, frame, samples)

    def _average(self, one: _Followed, value: float, frame: FrameType, samples: int) -> None:
        if len(self.averaged) < _MAX_AVERAGED and get_ident() == self.thread:
            averaged = _Averaged(one, frame.f_code)
            averaged.add(value, samples)
            self.averaged[id(frame.f_code), frame.f_lasti] = averaged

    def writes(self, number: str, where: Position, text: str) -> None:
        """Note a decimal number that was written."""
        for one in self._near(float(number), _WRITTEN, counts=True):
            if len(one.written) < _MAX_USES:
                one.written.append(ShownNumber(where=where, number=number, text=text))
        for key, averaged in list(self.averaged.items()):
            for mean in averaged.means() if averaged.count > 1 else ():
                if isclose(mean, float(number), rel_tol=_WRITTEN):
                    shown = ShownNumber(where=where, number=number, text=text)
                    averaged.call.averaged.append(
                        WrittenMean(number=shown, value=mean, count=averaged.count)
                    )
                    del self.averaged[key]  # a meter that begins anew has another mean
                    break

    def schedules(self, value: Any, frame: FrameType) -> None:
        """Note what a scheduler is given that lowers the learning rate by it."""
        if not self.open or get_ident() != self.thread:
            return
        try:
            for number in accumulated.elements(value):
                for one in self._near(number, _RELATIVE, counts=False):
                    if len(one.scheduled) < _MAX_USES and (where := user_line(frame)) is not None:
                        one.scheduled.append(UsedValue(where=where, value=number))
        except Exception as error:  # noqa: BLE001
            self._stop(error)

    def _near(self, value: float, relative: float, *, counts: bool) -> list[_Followed]:
        """The followed calls that a number may come from."""
        if get_ident() != self.thread:
            return []
        for one in self.open:
            one.left -= 1
        found = [one for one in self.open if one.is_near(value, relative, counts=counts)]
        while self.open and self.open[0].left <= 0:
            self.open.popleft()
        return found

    def finds_loss(self, loss: float, number: int) -> None:
        """Find the calls that were given the loss of a backward pass; ``number`` came before it."""
        for one in self.open:
            about = one.about
            if about.backwards != number or about.of_loss:
                continue
            if any(_is_multiple(value, loss) for value in about.given):
                one.about = replace(about, of_loss=True)

    def loss(self, loss: torch.Tensor) -> None:
        """Note which gathered tensors a loss uses as constants; called before its backward pass."""
        waiting, self.gathered = self.gathered, []
        if not self.has_stepped:  # another model may still hold the same weights, as a copy
            return
        sizes = {expected[0] for _, expected in waiting}
        operands = [
            (operand.requires_grad, _content(operand))
            for operand in _operands(loss)
            if operand.numel() in sizes
        ]
        for followed, expected in waiting:
            graded = {grad for grad, content in operands if _equal(content, expected)}
            if graded == {False}:
                followed.loss = user_line(sys._getframe())

    def steps(self) -> None:
        """Called before an optimizer's first step, and its first after a tensor was gathered.

        The next loss has other gathered tensors.
        """
        self.stepped = self.has_stepped = True
        self.gathered.clear()

    def observed(self, rank: int) -> RankExchanged:
        """What this rank exchanged in the run that has just ended."""
        return RankExchanged(
            rank=rank,
            values=tuple(one.observed() for one in self.values),
            early=tuple(early_reads.RECORD.reads.values()),
        )


#: A number is written with a few digits; the rules compare it with what it shows of a value.
_WRITTEN = 1e-3

#: The record of this process.
RECORD = ExchangedRecord()


def observe(
    rank: int, namespace: Mapping[str, Any], names: list[str] | None = None
) -> RankExchanged:
    """What this rank exchanged in the run that has just ended."""
    return RECORD.observed(rank)


# -- reduced values ----------------------------------------------------------------------------


def _reduces(about: Exchanged, tensor: Any, frame: FrameType, last_loss: float) -> _Taken | None:
    given = tuple(accumulated.elements(tensor))
    if not given or len(given) > _MAX_ELEMENTS or not all(map(isfinite, given)):
        return None
    of_loss = any(_is_multiple(value, last_loss) for value in given)
    means: list[MeanOf] = []
    sums: list[MeanOf] = []
    counts: dict[str, int] = {}
    for depth, user in enumerate(user_frames(frame)):
        if depth == _FRAMES:
            break
        means += _means(user, given, tensor)
        numbers = [(name, value) for name, value, _ in accumulated.numbers(user)]
        means += _means_by_count(user, given, numbers, len(about.members))
        sums += _sums(user, given, tensor)
        whole = {
            name: int(value)
            for name, value in numbers
            if value > 1 and value.is_integer() and "[" not in name
        }
        for name, count in whole.items():
            if len(counts) < _MAX_COUNTS and count != len(about.members):
                counts.setdefault(name, count)
                means += [
                    MeanOf(name=name, count=count, element=at)
                    for at, value in enumerate(given)
                    if _may_be_mean(value)
                    and any(isclose(n / count, value, rel_tol=_RELATIVE) for _, n in numbers)
                ]
    about = replace(
        about, given=given, means=tuple(means), sums=tuple(sums), counts=counts, of_loss=of_loss
    )
    return _Taken(about, tensor)


def _is_multiple(value: float, loss: float) -> bool:
    """Whether a value is a loss, or one that was divided by a number of accumulation steps."""
    times = value / loss if loss else 0.0
    near = 0.5 < times < _ACCUMULATED + 0.5
    return near and isclose(value, round(times) * loss, rel_tol=_RELATIVE)


def _may_be_mean(value: float) -> bool:
    return not value.is_integer()


def _means(frame: FrameType, given: tuple[float, ...], tensor: torch.Tensor) -> Iterator[MeanOf]:
    """What the given values are means of, among the variables of a frame."""
    for name, value in _held(frame):
        if value is tensor:
            continue
        numbers = _numbers_of(value)
        if numbers is None or numbers.numel() < 2:
            continue
        mean = float(numbers.double().mean())
        for at, one in enumerate(given):
            if _may_be_mean(one) and isclose(mean, one, rel_tol=_RELATIVE):
                yield MeanOf(name=name, count=numbers.numel(), element=at)


def _means_by_count(
    frame: FrameType, given: tuple[float, ...], numbers: list[tuple[str, float]], ranks: int
) -> Iterator[MeanOf]:
    """Which values are a number divided by the rows of a tensor, or by an element of one."""
    counts = {
        name: int(value)
        for name, value in numbers
        if "[" in name and value > 1 and value.is_integer()
    }
    for name, value in _held(frame):
        parts = value[:_FEW] if isinstance(value, (list, tuple)) else (value,)
        for at, one in enumerate(parts):
            if isinstance(one, torch.Tensor) and one.dim() and one.shape[0] > 1:
                part = name if one is value else f"{name}[{at}]"
                counts.setdefault(f"len({part})", one.shape[0])
    counts = {name: count for name, count in counts.items() if count != ranks}
    values = [(at, value) for at, value in enumerate(given) if _may_be_mean(value)]
    for name, count in counts.items():
        for at, value in values:
            if any(isclose(n / count, value, rel_tol=_RELATIVE) for _, n in numbers):
                yield MeanOf(name=name, count=count, element=at)


def _sums(frame: FrameType, given: tuple[float, ...], tensor: torch.Tensor) -> Iterator[MeanOf]:
    """The tensors in a frame of whose rows all of the given values are the sums."""
    if len(given) < _VECTOR:
        return  # several numbers may sum up to one
    for name, value in _held(frame):
        if isinstance(value, torch.Tensor) and value is not tensor and _is_readable(value):
            rows = value.detach()
            if rows.dim() == 2 and rows.shape[1] == len(given) and rows.shape[0] > 1:
                total = rows.double().sum(0).tolist()
                near = float(rows.double().abs().sum(0).max()) * _RELATIVE
                if all(isclose(a, b, abs_tol=near) for a, b in zip(total, given, strict=True)):
                    yield MeanOf(name=name, count=rows.shape[0])


def _held(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """The variables of a frame, what was made last first, and those in its objects."""
    waiting = [(name, value, 0) for name, value in [*local_variables(frame).items()][::-1]]
    for name, value, depth in waiting:
        yield name, value
        if depth < _DEPTH and len(waiting) < _OBJECTS:
            waiting += [(f"{name}.{key}", one, depth + 1) for key, one in accumulated.parts(value)]


def _numbers_of(value: Any) -> torch.Tensor | None:
    """The numbers in a tensor, an array, or a list of numbers or tensors."""
    numpy = sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        return value.detach().reshape(-1) if _is_readable(value) else None
    if numpy is not None and type(value) is numpy.ndarray:
        small = value.dtype.kind == "f" and value.size <= _PARTS
        return torch.from_numpy(value.copy()).reshape(-1) if small else None
    if not isinstance(value, (list, tuple, deque)) or not 2 <= len(value) <= _PARTS:
        return None
    if all(type(one) is float or isinstance(one, (float, int)) for one in value):
        return torch.tensor([float(one) for one in value], dtype=torch.float64)
    if not all(isinstance(one, torch.Tensor) and _is_readable(one) for one in value):
        return None
    if sum(one.numel() for one in value) > _PARTS:
        return None
    return torch.cat([one.detach().reshape(-1).double() for one in value])


def _is_readable(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and tensor.is_floating_point()
        and tensor.numel() <= _PARTS
    )


# -- gathered values ---------------------------------------------------------------------------


def _gathers(about: Exchanged, tensor: Any, outputs: Any, frame: FrameType) -> _Taken | None:
    if not isinstance(tensor, torch.Tensor) or not tensor.is_cpu or not tensor.is_floating_point():
        return None
    if not 1 < tensor.numel() * len(about.members) <= _MOST_ELEMENTS:
        return None
    gradient: Literal["", "carried", "stopped"] = ""
    if tensor.grad_fn is not None:
        gradient = "carried" if torch.is_grad_enabled() else "stopped"
    elif _has_gradient_elsewhere(tensor, frame):
        gradient = "stopped"
    return _Taken(replace(about, gradient=gradient), tensor, outputs) if gradient else None


def _has_gradient_elsewhere(tensor: torch.Tensor, frame: FrameType) -> bool:
    """Whether a variable holds the same numbers with a gradient, as before ``detach()``."""
    at = tensor.data_ptr()
    for depth, user in enumerate(user_frames(frame)):
        if depth == _FRAMES:
            return False
        for value in local_variables(user).values():
            if (
                isinstance(value, torch.Tensor)
                and value.grad_fn is not None
                and value.is_cpu
                and value.data_ptr() == at
            ):
                return True
    return False


def _content(value: Any) -> tuple[int, float, float]:
    """The number of elements of one or several tensors, their sum and their sum of squares."""
    count, total, squares = 0, 0.0, 0.0
    for one in value if isinstance(value, (list, tuple)) else (value,):
        numbers = one.detach().reshape(-1).double()
        count += numbers.numel()
        total += float(numbers.sum())
        squares += float(numbers.square().sum())
    return count, total, squares


def _equal(one: tuple[int, float, float], other: tuple[int, float, float]) -> bool:
    near = _RELATIVE * (one[0] * one[2]) ** 0.5  # the most that a sum can be off
    return (
        one[0] == other[0]
        and isclose(one[1], other[1], rel_tol=_RELATIVE, abs_tol=near)
        and isclose(one[2], other[2], rel_tol=_RELATIVE)
    )


_saved_names: dict[type, tuple[str, ...]] = {}


def _operands(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that the operations shortly before a loss have used."""
    waiting = [loss.grad_fn] if loss.grad_fn is not None else []
    seen = set(waiting)
    for node in waiting:
        kind = type(node)
        names = _saved_names.get(kind)
        if names is None:
            names = tuple(name for name in dir(kind) if name.startswith("_saved_"))
            _saved_names[kind] = names
        for name in names:
            try:
                value = getattr(node, name)
            except RuntimeError:  # it was changed in place, or released
                continue
            if (
                isinstance(value, torch.Tensor)
                and value.is_cpu
                and value.is_floating_point()
                and value.layout is torch.strided
            ):
                yield value
        for following, _ in node.next_functions:
            if following is not None and following not in seen and len(seen) < _NODES:
                seen.add(following)
                waiting.append(following)
