"""Records which values of an evaluation a rank writes to its output without having exchanged them.

A value counts as shown if its number stands in a line of output: as it was read from a tensor, or
as the sum, mean or share that programs compute from such values. Nothing is recorded while a model
trains; then a call of ``item()`` costs less than a microsecond more.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import get_ident
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch

from ...model import Position
from ...model.shown import OwnResults, RankShown, ShownNumber, ShownValue
from ...model.user_code import is_user_code
from ..after_import import AfterImport
from ..user_signals import let_through
from . import (
    accumulated,
    evaluations,
    exchanged,
    loaders,
    own_metrics,
    training,
    written_files,
)
from .frames import local_variables, path_in_torch, user_frames, user_line

#: Lines that read or write, values that are shown, and characters of a line of output. They bound
#: the record and were chosen, not measured: a record that reaches one of the first two says so.
_MAX_LINES = 64
_MAX_SHOWN = 32
#: The first reads by an instruction after a batch that are also noted by themselves.
_MAX_READS = 4
_MAX_TEXT = 160
#: A vector of more values holds no results of an evaluation.
_MAX_VALUES = 8
_DECIMAL = re.compile(r"(?<![\w.])[-+]?\d+\.(\d+)(?:e([-+]?\d+))?(?![\w.]*\d)")
#: Numbers that many values round to show nothing.
_COMMON = frozenset({0.0, 1.0, 100.0})
#: Sums may be added up in another order: single precision has a relative error of 6e-8.
_RELATIVE = 1e-6
#: Of how many numbers a mean is at most, if the sum of them is looked for; chosen, not measured.
_MOST_COUNTED = 1000
#: The modules whose ``SummaryWriter`` writes numbers to files for TensorBoard.
_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")
#: Functions of loggers that are given a dictionary of numbers, or a name and a number.
_LOGGERS = (
    ("wandb.sdk.wandb_run", "Run", "log"),
    ("mlflow.tracking.fluent", "", "log_metric"),
    ("mlflow.tracking.fluent", "", "log_metrics"),
)
#: Torch's own code through which a user's ``print`` and format string read a tensor.
_FORMATTERS = frozenset({"_tensor.py", "_tensor_str.py"})


#: An instruction of the user's code, what called it, and which one of its reads after a batch; 0
#: stands for all. A meter reads what a training loop and what an evaluation gives it.
_Read = tuple[CodeType, int, int, int]


@dataclass(slots=True)
class Reads:
    """What one instruction of the user's code read from tensors during one evaluation."""

    where: Position
    backwards: int
    feed: loaders.Pass | None
    #: Which one of the instruction's reads after each batch these are; 0 for all of them.
    number: int = 0
    #: The number of the last batch, and how often the instruction has read after it.
    batch: int = 0
    of_batch: int = 0
    count: int = 0
    total: float = 0.0
    last: float = 0.0
    weighted: float = 0.0
    weights: int = 0
    exchanged: bool = False
    #: Whether what was read last was computed without any other rank.
    own: bool = False

    def add(self, value: float, samples: int) -> None:
        """Add a value that was read after a batch of this many samples."""
        self.count += 1
        self.total += value
        self.last = value
        self.weighted += value * samples
        self.weights += samples

    def number_after_batch(self) -> int:
        """Count a read; returns which one after the last batch it is, 0 behind the loop."""
        if self.feed is None or not self.feed.is_open:
            return 0
        if self.batch != self.feed.batches:
            self.batch, self.of_batch = self.feed.batches, 0
        self.of_batch += 1
        return self.of_batch if self.of_batch <= _MAX_READS else 0

    def results(self) -> Iterator[tuple[str, float]]:
        """What programs compute from such values, by name."""
        names = f" {self.number}" if self.number else ""
        yield from ((name + names, value) for name, value in self._results())

    def _results(self) -> Iterator[tuple[str, float]]:
        yield "last", self.last
        sums = {"last": self.last, "total": self.total}
        if self.count > 1:
            yield "total", self.total
            yield "mean", self.total / self.count
        if self.weights:
            yield "weighted", self.weighted / self.weights
        if self.feed is not None:
            about = self.feed.log.about
            counts = {
                "samples": self.feed.samples,
                "batches": self.feed.batches,
                "data set": about.dataset_size,
                "universe": about.universe,
                "expected": about.expected_batches,
            }
            for name, count in counts.items():
                if count:
                    yield from ((f"{of}/{name}", one / count) for of, one in sums.items())


@dataclass(slots=True)
class _Shown:
    """A value that was shown, what it was computed from, and the pass that came last before it."""

    reads: Reads
    value: ShownValue
    fed_by: tuple[CodeType, int] | None


@dataclass
class ShownRecord:
    """What this process read from tensors in evaluations of this run, and what it wrote."""

    thread: int | None = None
    #: Why nothing is recorded any more in this run; empty if it is.
    problem: str = ""
    #: The latest reads by each instruction: all (0), and those that came first, second and so on
    #: after each batch, since a meter may read several values in one line.
    reads: dict[_Read, Reads] = field(default_factory=dict)
    #: Reads whose values also come from training steps, where they are estimates.
    beside_training: set[_Read] = field(default_factory=set)
    shown: dict[tuple[Position, Position], _Shown] = field(default_factory=dict)
    wrote: set[Position] = field(default_factory=set)
    #: Whether a limit has kept something out of this record.
    full: bool = False
    #: What was shown since the last input, with the number of exchanges at that time.
    line: str = ""
    #: Are called with each part of output that may hold a number, and the whole line so far.
    followers: list[Callable[[str, str], None]] = field(default_factory=list)

    @property
    def active(self) -> bool:
        """Whether this run has evaluated something."""
        return bool(self.listens or self.wrote or evaluations.RECORD.evaluated)

    @property
    def listens(self) -> bool:
        """Whether what is written may be a result of an evaluation."""
        reads = self.reads or self.followers or exchanged.RECORD.follows
        return bool(reads) or accumulated.RECORD.latest is not None

    def begin_run(self) -> None:
        """Begin a cell."""
        self.thread, self.problem = get_ident(), ""
        self.reads, self.beside_training = {}, set()
        self.shown, self.wrote, self.full = {}, set(), False
        self.line = ""
        written_files.OWN.begin_run()

    def stop(self, error: Exception) -> None:
        """Record nothing more in this run, and keep the reason."""
        let_through(error)
        self.thread, self.problem = None, f"{type(error).__name__}: {error}"

    # -- values are read -----------------------------------------------------------------------

    def read(self, tensor: torch.Tensor, values: Any, frame: FrameType) -> None:
        """Note values that a line of the user's code read from a tensor, if it evaluates."""
        code = frame.f_code
        kind = _kind(code)
        if kind == "formats":
            found = next(user_frames(frame), None)
            if found is None:
                return
            frame, code = found, found.f_code
        elif kind != "user":
            return
        if get_ident() != self.thread or type(tensor) is not torch.Tensor:
            return
        if exchanged.RECORD.follows:
            latest = loaders.RECORD.latest
            batch = latest.last_samples if latest is not None else 0
            exchanged.RECORD.reads(values, frame, batch)
        feed, callers = _feed(), _callers(frame)
        # one line may read several values
        own = bool(evaluations.RECORD.own) and tensor.data_ptr() in evaluations.RECORD.own
        number = self._read((code, frame.f_lasti, callers, 0), feed, values, frame, own)
        if number:
            self._read((code, frame.f_lasti, callers, number), feed, values, frame, own)

    def _read(
        self, key: _Read, feed: loaders.Pass | None, values: Any, frame: FrameType, own: bool
    ) -> int:
        """Add what was read; returns which one after the last batch it was, 0 if unknown."""
        backwards = training.RECORD.backwards
        before = self.reads.get(key)
        if not _evaluates(feed):
            if before is not None:
                self.beside_training.add(key)
            return 0
        if before is not None and feed is None and backwards == before.backwards + 1:
            self.beside_training.add(key)  # as often as there are training steps
        if before is None or before.backwards != backwards or before.feed is not feed:
            alone = key[3] > 0
            if before is None and len(self.reads) >= (_MAX_READS if alone else 1) * _MAX_LINES:
                self.full |= not alone
                return 0
            before = self.reads[key] = Reads(_position(frame), backwards, feed, key[3])
        record = evaluations.RECORD
        before.own = own
        before.exchanged |= not own and record.exchanges != record.exchanges_at_input
        samples = feed.last_samples if feed is not None else 0
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, (int, float)) and math.isfinite(value):
                before.add(float(value), samples)
        return 0 if key[3] else before.number_after_batch()

    # -- values are shown ----------------------------------------------------------------------

    def writes(self, text: str) -> None:
        """Note a part of what the rank writes; it is examined line by line."""
        if not self.listens or get_ident() != self.thread:
            return
        self.line = (self.line + text)[-4096:]
        if "\n" in text or "\r" in text:
            line, self.line = self.line, ""
            self.logs(line)

    def logs(self, line: str, whole: str = "") -> None:
        """Note a line of output, if one of its numbers is a result of an evaluation.

        A file may be given a line in parts; ``whole`` is then what the line holds so far.
        """
        if get_ident() != self.thread or "." not in line:
            return
        self._exchanged_numbers(line, whole or line)
        for follow in self.followers:
            follow(line, whole or line)
        backwards, exchanges = training.RECORD.backwards, evaluations.RECORD.exchanges
        current = {
            key: reads
            for key, reads in self.reads.items()
            if reads.backwards == backwards and (*key[:3], 0) not in self.beside_training
        }
        if not current:
            return
        numbers = list(_DECIMAL.finditer(line))
        if not numbers:
            return
        where = user_line(sys._getframe())
        if where is None:
            return
        if len(self.wrote) < _MAX_LINES:
            self.wrote.add(where)
        elif where not in self.wrote:
            self.full = True
        unexchanged = exchanges == evaluations.RECORD.exchanges_at_input
        own = [
            reads
            for reads in current.values()
            if not reads.exchanged and (unexchanged or reads.own or _was_not_given(reads))
        ]
        for number in numbers:
            value = float(number[0])
            found = _source(own, value, _tolerance(number, value))
            if found is not None:
                alone = unexchanged or found[0].own
                self._show(*found, value, whole or line, number[0], beside=not alone)

    def _exchanged_numbers(self, line: str, whole: str) -> None:
        """Note the numbers of a line of output that may be computed from those of all ranks."""
        sums = accumulated.RECORD.latest
        if sums is not None and (not sums.given or sums.backwards != training.RECORD.backwards):
            sums = None
        followed = exchanged.RECORD
        if sums is None and not followed.follows:
            return
        text = whole.strip()[:_MAX_TEXT]
        for at, number in enumerate(_DECIMAL.finditer(line)):
            where = line_of_text(sys._getframe(), number[0])
            if where is None:
                continue
            if followed.follows:
                followed.writes(number[0], where, text)
            if sums is not None and len(sums.written) < _MAX_SHOWN:
                sums.written[where, at] = ShownNumber(where=where, number=number[0], text=text)

    def _show(
        self, reads: Reads, form: str, value: float, line: str, number: str, *, beside: bool
    ) -> None:
        where = line_of_text(sys._getframe(), number)
        if where is None:
            return
        key = where, reads.where
        if key not in self.shown and len(self.shown) >= _MAX_SHOWN:
            self.full = True
            return
        feed = reads.feed
        shown = ShownValue(
            where=where,
            taken=reads.where,
            value=value,
            text=line.strip()[:_MAX_TEXT],
            loop=feed.where if feed is not None else None,
            form=form,
            beside=beside,
        )
        self.shown[key] = _Shown(reads, shown, evaluations.RECORD.fed_by)
        evaluations.RECORD.on_exchange = self.exchanged

    def exchanged(self, values: tuple[Any, ...] | None) -> None:
        """Called when ranks exchange data after a value was shown.

        In the same evaluation, what was shown before was its progress, not its result. Another
        evaluation that follows, in other lines, may exchange its own results.
        """
        if get_ident() != self.thread:
            return
        now = training.RECORD.backwards
        latest = [one for one in self.shown.values() if one.reads.backwards == now]
        # a line that calls a library, which reads a loader and exchanges what it computes from it
        feed, here = loaders.RECORD.latest, user_line(sys._getframe())
        if latest and feed is not None and feed.where == here:
            latest = [one for one in latest if one.reads.feed in (None, feed)]
        given: list[float] = []
        if latest and values is not None and accumulated.given_numbers(values, given):
            fed_by = evaluations.RECORD.fed_by
            latest = [
                one
                for one in latest
                if one.fed_by in (None, fed_by)
                or _are_given(one.reads, given)
                or any(_is_multiple(number, one.reads.last) for number in given)
            ]
        dropped = {id(one) for one in latest}
        self.shown = {key: one for key, one in self.shown.items() if id(one) not in dropped}
        if not any(one.reads.backwards == now for one in self.shown.values()):
            evaluations.RECORD.on_exchange = None

    def observed(self, rank: int) -> RankShown:
        """What this rank showed of its evaluations in the run that has just ended."""
        sums = accumulated.RECORD.latest
        return RankShown(
            rank=rank,
            accumulated=tuple(sums.observed()) if sums is not None else (),
            given=tuple(sums.given) if sums is not None else (),
            numbers=tuple(sums.written.values()) if sums is not None else (),
            values=tuple(one.value for one in self.shown.values() if not _trained(one.reads.feed)),
            own=tuple(
                OwnResults(
                    taken=reads.where,
                    samples=reads.feed.samples if reads.feed is not None else 0,
                    results=dict(reads.results()),
                )
                for key, reads in self.reads.items()
                if (*key[:3], 0) not in self.beside_training
            ),
            inputs=tuple(evaluations.RECORD.inputs),
            evaluated=evaluations.RECORD.evaluated,
            wrote=tuple(self.wrote),
            complete=not (self.full or self.problem),
        )


#: The record of this process.
RECORD = ShownRecord()


def observe(rank: int, namespace: Mapping[str, Any], names: list[str] | None = None) -> RankShown:
    """What this rank showed of its evaluations in the run that has just ended."""
    return RECORD.observed(rank)


def install() -> None:
    """Record what this process reads from tensors and writes to its output."""
    for name in ("item", "tolist", "__float__", "__int__"):
        setattr(torch.Tensor, name, _reading(getattr(torch.Tensor, name)))
    for stream in (sys.stdout, sys.stderr):
        stream.write = _writing(stream.write)  # type: ignore[method-assign]
    original = logging.Logger.handle

    @functools.wraps(original)
    def handle(self: logging.Logger, record: logging.LogRecord) -> None:
        original(self, record)
        if RECORD.listens and not self.disabled:
            RECORD.logs(_message(record))

    logging.Logger.handle = handle  # type: ignore[method-assign]
    for module in _WRITERS:
        AfterImport(module, _wrap_writer).install()
    for name, owner, function in _LOGGERS:
        AfterImport(name, functools.partial(_wrap_logger, owner, function)).install()
    own_metrics.install()
    written_files.install(lambda: RECORD.listens, _in_file, _from_file)


def _wrap_writer(module: ModuleType) -> None:
    """Note the numbers that a ``SummaryWriter`` is given like those of a line of output."""
    original = module.SummaryWriter.add_scalar

    @functools.wraps(original)
    def add_scalar(self: Any, tag: Any, scalar_value: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            if isinstance(scalar_value, torch.Tensor):
                value = scalar_value.detach().item()  # so it is read in the line of the call
                RECORD.read(scalar_value, value, sys._getframe(1))
            else:
                value = float(scalar_value)
            if RECORD.listens:
                RECORD.logs(f"{tag} {value!r}\n")
        except Exception as error:  # noqa: BLE001  (the writer itself refuses what is no number)
            RECORD.stop(error)
        return original(self, tag, scalar_value, *args, **kwargs)

    module.SummaryWriter.add_scalar = add_scalar


def _wrap_logger(owner: str, function: str, module: ModuleType) -> None:
    """Note the numbers that a function of a logger is given like those of a line of output."""
    held = getattr(module, owner) if owner else module
    original = getattr(held, function)

    @functools.wraps(original)
    def log(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            if RECORD.listens or evaluations.RECORD.evaluated:
                RECORD.logs(_given(args, kwargs, sys._getframe(1)))
        except Exception as error:  # noqa: BLE001  (the logger itself refuses what it cannot log)
            RECORD.stop(error)
        return original(*args, **kwargs)

    setattr(held, function, log)


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> str:
    """The names and numbers that a logger is given, as a line of output."""
    parts: list[str] = []
    for value in (*args, *kwargs.values()):
        for name, one in value.items() if isinstance(value, dict) else (("", value),):
            number = one
            if isinstance(one, torch.Tensor) and one.numel() == 1:
                number = one.detach().item()
                RECORD.read(one, number, frame)  # so it is read in the line of the call
            if isinstance(number, (str, int, float)):
                parts.append(f"{name} {number!r}" if name else f"{number!r}")
    return " ".join(parts) + "\n"


def _reading(original: Callable[..., Any]) -> Callable[..., Any]:
    getframe, read = sys._getframe, RECORD.read
    known = _kinds

    @functools.wraps(original)
    def method(self: Any, *args: Any) -> Any:
        value = original(self, *args)
        frame = getframe(1)
        if known.get(frame.f_code.co_filename) != "other":
            try:
                if self.numel() <= _MAX_VALUES:
                    read(self, value, frame)
            except Exception as error:  # noqa: BLE001  (a user's own class may raise anything)
                RECORD.stop(error)
        return value

    return method


def _writing(original: Callable[[str], int]) -> Callable[[str], int]:
    @functools.wraps(original)
    def write(text: str) -> int:
        if RECORD.listens:
            try:
                RECORD.writes(text)
            except Exception as error:  # noqa: BLE001  (what is printed may be of any class)
                RECORD.stop(error)
        return original(text)

    return write


def _in_file(text: str, line: str) -> None:
    try:
        RECORD.logs(text, line)
    except Exception as error:  # noqa: BLE001  (the user's file must be written)
        RECORD.stop(error)


def _from_file() -> None:
    """Note that the rank reads what another rank has written."""
    evaluations.RECORD.reads_data()
    if accumulated.RECORD.latest is not None:
        accumulated.RECORD.latest.gave_more = True


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  (logging itself reports wrong arguments)
        return ""


#: By file: since Python 3.13, the hash of a code object takes 2 µs for 100 lines, and is not kept.
_kinds: dict[str, str] = {}


def _kind(code: CodeType) -> str:
    """Whether code is the ``user``'s, or one of torch's that ``formats`` a tensor for output."""
    kind = _kinds.get(code.co_filename)
    if kind is None:
        formats = path_in_torch(code.co_filename) in _FORMATTERS
        kind = "formats" if formats else "user" if is_user_code(code.co_filename) else "other"
        _kinds[code.co_filename] = kind
    return kind


def _callers(frame: FrameType) -> int:
    """A number for the two instructions that have called a function."""
    first = frame.f_back
    second = first.f_back if first is not None else None
    return hash(tuple((id(one.f_code), one.f_lasti) for one in (first, second) if one is not None))


def _feed() -> loaders.Pass | None:
    """The pass over a loader that gave the last batch, unless something trained after its end."""
    latest = loaders.RECORD.latest
    if latest is None:
        return None
    if latest.is_open:  # a training step may evaluate on data that no loader gives
        return None if evaluations.RECORD.graded is False and _trained(latest) else latest
    trained_since = training.RECORD.backwards > latest.backwards_at_end
    return None if trained_since else latest


def _evaluates(feed: loaders.Pass | None) -> bool:
    """Whether the rank evaluates, as far as can be known at this time."""
    if feed is not None:
        return not _trained(feed)
    if evaluations.RECORD.graded is not None:
        return not evaluations.RECORD.graded
    return not training.RECORD.active


def _trained(feed: loaders.Pass | None) -> bool:
    """Whether a pass over a loader trains."""
    if feed is None:
        return False
    feed.measure()
    return feed.trained > 0


def _tolerance(number: re.Match[str], value: float) -> float:
    digits = len(number[1]) - int(number[2] or 0)
    return max(0.51 * 10.0**-digits, abs(value) * _RELATIVE)


def _source(reads: list[Reads], value: float, tolerance: float) -> tuple[Reads, str] | None:
    """The reads from which a number that was written was computed, and how."""
    if abs(value) in _COMMON:
        return None
    for one in reads:
        for name, result in one.results():
            for scaled in (result, 100 * result):
                if abs(scaled - value) <= tolerance:
                    return one, name
            if result < 50 and abs(math.exp(result) - value) <= tolerance:  # a perplexity
                return one, name
    for one in reads:
        for other in reads:
            if other is not one and other.total and other.last:
                shares = (one.total / other.total, one.last / other.last)
                if any(abs(s * k - value) <= tolerance for s in shares for k in (1, 100)):
                    return one, ""
    return None


def _was_not_given(reads: Reads) -> bool:
    """Whether other ranks were given only numbers since the last batch, and none of these."""
    sums = accumulated.RECORD.latest
    if sums is None or sums.gave_more or sums.backwards != reads.backwards:
        return False
    return not _are_given(reads, sums.given)


def _are_given(reads: Reads, numbers: list[float]) -> bool:
    """Whether a number that other ranks were given is computed from what was read."""
    results = [reads.total, reads.weighted, *(value for _, value in reads.results())]
    return any(
        math.isclose(given, scale * one, rel_tol=_RELATIVE * 10)
        for given in numbers
        for one in results
        if one  # 0 is computed from anything
        for scale in (1, 100, -1, 0.01)
    )


def _is_multiple(given: float, mean: float) -> bool:
    """Whether a number may be the sum of which the mean was read."""
    times = given / mean if mean else 0.0
    near = 0.5 < times < _MOST_COUNTED
    return near and math.isclose(times, round(times), rel_tol=_RELATIVE * 10)


def line_of_text(frame: FrameType | None, number: str) -> Position | None:
    """The user's line that wrote a number: the caller of a function that was given the text."""
    found = None
    for user in user_frames(frame):
        found = user
        code = user.f_code
        takes_any = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if not code.co_argcount and not takes_any:
            break
        given = code.co_argcount + code.co_kwonlyargcount
        given += bool(code.co_flags & inspect.CO_VARARGS)
        names = code.co_varnames[:given]
        local = local_variables(user)
        values = [local.get(name) for name in names]
        parts = [p for v in values for p in (v if isinstance(v, tuple) else (v,))]
        if code.co_flags & inspect.CO_VARKEYWORDS:  # a logger that takes numbers of any name
            digits = len(number.partition(".")[2])
            for value in local.get(code.co_varnames[given], {}).values():
                parts += (str(value), f"{value:.{digits}f}" if isinstance(value, float) else "")
        if not any(isinstance(part, str) and number in part for part in parts):
            break
    return _position(found) if found is not None else None


def _position(frame: FrameType) -> Position:
    code = frame.f_code
    return Position(file=code.co_filename, line=frame.f_lineno, function=code.co_name)
