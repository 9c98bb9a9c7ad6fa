"""Counts what DataLoaders deliver. It is always on and takes a few microseconds per batch.

The indices of a batch are noted when the loader draws them from its sampler, so the sampler's order
and random state do not change. Samples of an IterableDataset have no index: they are counted, and
the first ones of each epoch are identified by a sketch of their content.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from ...model import Position
from ...model.partition import LoaderPartition
from ...model.torch_features import LOADERS
from .. import torch_private, tracebacks
from ..user_signals import let_through
from . import accumulated, checkpoints, evaluations, left_states, seeds, training
from .fingerprints import joint_content, on_cpu
from .frames import calling_package, user_line
from .held_samples import held

_MAX_LOADERS = 16
_MAX_EPOCHS = 20
_MAX_INDICES = 2_000_000
#: How many first samples of an epoch are kept by index, and batches by whether they were trained,
#: and how many samples by content.
_FIRST, _WITH_CONTENT = 64, 64
#: For how many batches the first sample's content is kept, if samples have no index.
_HEADS = 16
_RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
#: How many samplers are opened that wrap others.
_MOST_WRAPPERS = 5


@dataclass
class Pass:
    """One epoch of a loader."""

    log: LoaderLog
    number: int
    in_cell: int
    run: int
    where: Position | None
    sampler_epoch: int | None
    epoch_set: bool
    made: int
    batches: int = 0
    samples: int = 0
    complete: bool = False
    broken_off: bool = False
    #: Whether it began inside ``join()``, where ranks may have different numbers of batches.
    joined: bool = field(default_factory=lambda: training.RECORD.joining > 0)
    first: list[int] = field(default_factory=list)
    content: list[int] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    waited_s: float = 0.0
    lasted_s: float = 0.0
    trained: int = 0
    #: The first batches after which a training pass began, as bits.
    trained_first: int = 0
    #: How many batches an evaluation took that a library makes between training passes.
    evaluated: int = 0
    #: How many samples the last batch had.
    last_samples: int = 0
    #: The sizes of the latest batches.
    sizes: deque[int] = field(default_factory=lambda: deque(maxlen=2))
    #: What it adds up; None once it has trained.
    sums: accumulated.PassSums | None = None
    #: The epoch of the checkpoint from which an optimizer was restored just before this pass, if
    #: it stepped during the pass.
    resumed_from: int | None = None
    #: That epoch with the optimizer, and how many steps it had taken in this run.
    resumed: tuple[int, weakref.ref[Any]] | None = None
    steps_before: int = 0
    _first_at: float = 0.0
    _backwards: int = field(default_factory=lambda: training.RECORD.backwards)
    _passes_before: int = 0  #: training passes of the loop before its last batch
    _iterator: weakref.ref[Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the loop still runs."""
        return self._iterator is not None

    @property
    def backwards_at_end(self) -> int:
        """The number of backward passes of this process when the loop ended."""
        return self._backwards + self.trained

    def follow(self, iterator: Any) -> None:
        """Note the iterator of the epoch; the loop has ended when the iterator is deleted."""
        self._iterator = weakref.ref(iterator, self.close)

    def close(self, _: object = None) -> None:
        """End the epoch; later steps do not belong to it."""
        if self._iterator is not None:
            self.measure()
            self._iterator = None

    def measure(self) -> None:
        """Note the epoch's duration and its number of training passes, unless it has ended."""
        if self._iterator is not None:
            passes = training.RECORD.backwards - self._backwards
            self._note_trained(passes)
            self.trained = passes if self.evaluated < max(self.batches, 1) else 0
            self.lasted_s = time.monotonic() - self._first_at if self.batches else 0.0
            if self.resumed is not None:
                epoch, optimizer = self.resumed
                stepped = training.RECORD.steps_of(optimizer()) > self.steps_before
                self.resumed_from = epoch if stepped else None

    def _note_trained(self, passes: int) -> None:
        """Note whether a training pass began since the last batch, if it is one of the first."""
        if passes > self._passes_before and 0 < self.batches <= _FIRST:
            self.trained_first |= 1 << (self.batches - 1)
        self._passes_before = passes

    def resume(self, resumed: tuple[int, weakref.ref[Any]] | None) -> None:
        """Note from which epoch of a checkpoint an optimizer was restored before this pass."""
        self.resumed = resumed
        if resumed is not None:
            self.steps_before = training.RECORD.steps_of(resumed[1]())

    def adds_up(self, frame: FrameType) -> None:
        """Note, before the next batch, what the loop has added up from those before."""
        if not (RECORD.reading_ahead and self.batches):
            self.uses(frame)

    def uses(self, frame: FrameType) -> None:
        """Note what the loop has added up from the batch that it was given last."""
        try:
            if not self.batches:
                self.sums = accumulated.RECORD.begins(
                    self.where, self.in_cell, self._backwards, frame
                )
            elif self.sums is not None:
                if training.RECORD.backwards > self._backwards:
                    self.sums = None
                else:
                    accumulated.RECORD.uses(self.sums, self.last_samples, frame)
        except Exception as error:  # noqa: BLE001  (the loop may hold objects of any class)
            let_through(error)
            self.sums = None
            self.log.problem = f"{type(error).__name__}: {error}"

    def took(self, indices: Any, batch: Any, asked_at: float, got_at: float) -> None:
        """Count a batch that the loader delivered to the user's code."""
        if self.batches:
            self.waited_s += got_at - asked_at
        else:
            self._first_at = got_at
        if self.batches <= _FIRST:
            self._note_trained(training.RECORD.backwards - self._backwards)
        self.batches += 1
        self.evaluated += RECORD.evaluating
        wanted = len(self.content) < _WITH_CONTENT
        before = self.samples
        if indices is None or not self.log.has_index:
            self.samples += _length(batch, self.log.collates)
        else:  # without automatic batching, the sampler returns single indices
            chosen = list(indices) if self.log.collates else [indices]
            self.samples += len(chosen)
            self._keep(chosen)
        self.last_samples = self.samples - before
        self.sizes.append(self.last_samples)
        if wanted:
            missing = _WITH_CONTENT - len(self.content)
            self.content += _contents(batch, self.log.collates, missing)
        if len(self.heads) < _HEADS and self.log.collates and not self.log.has_index:
            self.heads += _contents(batch, self.log.collates, 1)

    def hands_on(self, number: int) -> None:
        """Note that a library, which reads one batch ahead, gave the program its batch so far."""
        ahead = self.batches - number
        if ahead < len(self.sizes):
            self.last_samples = self.sizes[-1 - ahead]

    def _keep(self, indices: list[Any]) -> None:
        kept = self.log.indices
        before = len(kept)
        try:
            if before + len(indices) <= _MAX_INDICES:
                kept.extend(indices)
            else:
                self.log.uncounted += len(indices)
        except (TypeError, OverflowError):  # the sampler returns names or pairs
            del kept[before:]
            self.log.indexed = False
        if len(self.first) < _FIRST:
            self.first += kept[before : before + _FIRST - len(self.first)]


@dataclass
class LoaderLog:
    """What one loader has delivered. The log outlives the loader."""

    where: Position | None
    #: Without a name, and without what changes while it is iterated.
    about: LoaderPartition
    loader: weakref.ref[DataLoader[Any]]
    #: Whether samples have an index, and whether all indices were numbers.
    has_index: bool
    indexed: bool
    collates: bool
    subsets: list[Any]
    #: The samples that the program's own sampler selects, of which a library's deals out some.
    selected: list[int] | None = None
    passes: deque[Pass] = field(default_factory=lambda: deque(maxlen=_MAX_EPOCHS))
    passes_begun: int = 0
    made: int = 1
    indices: array[int] = field(default_factory=lambda: array("q"))
    uncounted: int = 0
    problem: str = ""

    def begin(self, loader: DataLoader[Any], run: int, where: Position | None) -> Pass:
        """Begin an epoch; only the counts of the earlier ones are kept."""
        if self.passes:
            self.passes[-1].close()
        self.passes_begun += 1
        before = self.passes[-1] if self.passes and self.passes[-1].run == run else None
        in_cell = before.in_cell + 1 if before is not None else 1
        self.indices = array("q")
        self.uncounted = 0
        sampler = users_sampler(loader)
        epoch = getattr(sampler, "epoch", None)
        sampler_epoch = epoch if isinstance(epoch, int) else None
        epoch_set = isinstance(sampler, DistributedSampler) and sampler in RECORD.epoch_set
        number = self.passes_begun
        self.passes.append(
            Pass(self, number, in_cell, run, where, sampler_epoch, epoch_set, self.made)
        )
        if isinstance(sampler, DistributedSampler) and sampler.shuffle:
            self.passes[-1].resume(checkpoints.RECORD.resumed())
        return self.passes[-1]


class LoaderRecord:
    """The loaders of this rank that were iterated, oldest first."""

    def __init__(self) -> None:
        self.logs: list[LoaderLog] = []
        #: Samplers on which ``set_epoch`` was called at least once.
        self.epoch_set: weakref.WeakSet[DistributedSampler[Any]] = weakref.WeakSet()
        self.run = 0
        #: The lines that made loaders, samplers and subsets.
        self.made_at: weakref.WeakKeyDictionary[Any, Position] = weakref.WeakKeyDictionary()
        #: The files of libraries that made samplers.
        self.made_in: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        #: The epoch that gave the last batch of this run.
        self.latest: Pass | None = None
        #: Whether a library is reading a batch before the program has used the one before.
        self.reading_ahead = False
        #: Whether a library takes batches to evaluate the model.
        self.evaluating = False

    def begin_run(self) -> None:
        """Begin a cell, and forget loaders that no longer exist."""
        self.run += 1
        self.latest, self.evaluating = None, False
        self.logs = [log for log in self.logs if log.loader() is not None]

    def end_run(self, *, well: bool) -> None:
        """End a cell; if it raised, incomplete epochs count as broken off."""
        for log in self.logs:
            last = log.passes[-1] if log.passes else None
            if last is not None and last.run == self.run:
                last.broken_off = not well and not last.complete

    def begin_pass(self, loader: DataLoader[Any], frame: FrameType | None) -> Pass:
        """Note that a loop over a loader has begun."""
        where = user_line(frame)
        return self._log_of(loader, where).begin(loader, self.run, where)

    def _log_of(self, loader: DataLoader[Any], where: Position | None) -> LoaderLog:
        for log in self.logs:
            if log.loader() is loader:
                return log
        for log in self.logs:  # the program may make a new loader for each epoch
            same = log.where == where and log.about.dataset == _name(loader)
            if same and log.loader() is None and _alike(log, new_log(loader, None)):
                log.loader = weakref.ref(loader)
                log.made += 1
                return log
        log = new_log(loader, where)
        log.about = _with_held(log.about, loader)
        self.logs = [*self.logs, log][-_MAX_LOADERS:]
        return log


def _with_held(about: LoaderPartition, loader: DataLoader[Any]) -> LoaderPartition:
    """The loader with what its data set holds, if a sampler divides it.

    Samples of an undivided data set are compared by index and content as they come.
    """
    dataset: Any = loader.dataset
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    holds = held(dataset, about.dataset_size) if about.replicas is not None else None
    if holds is None:
        return about
    return replace(
        about,
        held_order=holds.order,
        held=holds.contents,
        held_repeated=holds.repeated,
        held_values={name: values for name, (values, _) in holds.parts},
        held_patterns={name: pattern for name, (_, pattern) in holds.parts},
    )


def _alike(log: LoaderLog, new: LoaderLog) -> bool:
    """Whether a loader has subsets as long as those of an earlier one, and divides them alike."""
    one, other = (
        (x.about.sampler, x.about.replicas, x.about.padding, [len(s) for s in x.subsets])
        for x in (log, new)
    )
    return one == other


#: The iterators of DataLoaders.
_ITERATORS: weakref.WeakSet[Any] = weakref.WeakSet()
#: How long an interrupted iterator waits for its workers, in seconds.
_GRACE_S = 0.1
#: The record of this process.
RECORD = LoaderRecord()


def end_workers_soon() -> None:
    """Let workers end soon when their iterators are dropped, as after an interrupt.

    A DataLoader waits 5 s for each worker that is busy, one after the other, before it ends it.
    """
    for iterator in list(_ITERATORS):
        for worker in torch_private.workers_of(iterator):
            worker.join = functools.partial(_join, worker, type(worker).join)


def _join(worker: Any, join: Callable[..., None], timeout: float | None = None) -> None:
    join(worker, _GRACE_S)
    if worker.is_alive():
        worker.terminate()
        join(worker, timeout)


def install() -> None:
    """Record every DataLoader of this process."""
    if not torch_private.available(LOADERS):
        return
    iterator = torch_private.LoaderIterator
    original_iter, original_next = DataLoader.__iter__, iterator.__next__
    original_index, original_reset = torch_private.next_index, torch_private.reset_iterator

    @functools.wraps(original_iter)
    def begin(loader: DataLoader[Any]) -> Any:
        made = original_iter(loader)
        current = RECORD.begin_pass(loader, sys._getframe(1))
        current.follow(made)
        made.__dict__["_ddt_pass"] = current
        _ITERATORS.add(made)
        return made

    @functools.wraps(original_next)
    def take(self: Any) -> Any:
        __tracebackhide__ = True
        current = self.__dict__.get("_ddt_pass")
        if current is not None:
            current.adds_up(sys._getframe(1))
        asked_at = time.monotonic()
        try:
            batch = original_next(self)
        except StopIteration:
            if current is not None:
                current.complete = True
                current.close()
            raise
        got_at = time.monotonic()
        if current is not None:
            RECORD.latest = current
            evaluations.RECORD.exchanges_at_input = evaluations.RECORD.exchanges
            evaluations.RECORD.loaded = True
            waiting = self.__dict__.get("_ddt_indices")
            try:
                current.took(waiting.popleft() if waiting else None, batch, asked_at, got_at)
            except Exception as error:  # noqa: BLE001  (a batch may be of any class)
                let_through(error)
                current.log.problem = f"{type(error).__name__}: {error}"
        return batch

    @functools.wraps(original_index)
    def next_index(self: Any) -> Any:
        indices = original_index(self)
        self.__dict__.setdefault("_ddt_indices", deque()).append(indices)
        return indices

    @functools.wraps(original_reset)
    def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        # indices that a broken-off epoch had drawn in advance were never delivered
        self.__dict__.get("_ddt_indices", deque()).clear()
        return original_reset(self, *args, **kwargs)

    for kind in (DataLoader, DistributedSampler, Subset, SubsetRandomSampler):
        kind.__init__ = _noting_line(kind.__init__)  # type: ignore[method-assign]
    _count_epochs()
    tracebacks.MADE_AT.append(_loader_made_at)
    DataLoader.__iter__ = begin
    iterator.__next__ = take
    torch_private.replace_iterator_methods(next_index, reset)


def _count_epochs() -> None:
    original = DistributedSampler.set_epoch

    @functools.wraps(original)
    def set_epoch(self: Any, epoch: int) -> None:
        original(self, epoch)
        left_states.RECORD.counts(epoch)
        RECORD.epoch_set.add(self)

    DistributedSampler.set_epoch = set_epoch  # type: ignore[method-assign]


def _noting_line(original: Any) -> Any:
    @functools.wraps(original)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        original(self, *args, **kwargs)
        where = user_line(sys._getframe())
        with contextlib.suppress(TypeError):  # a class of the user may not be hashable
            if where is not None:
                RECORD.made_at[self] = where
            if isinstance(self, DistributedSampler):
                RECORD.made_in[self] = calling_package(sys._getframe())

    return construct


def _loader_made_at(made: object) -> Position | None:
    return _made_at(made) if isinstance(made, DataLoader) else None


def _made_at(made: Any) -> Position | None:
    try:
        return RECORD.made_at.get(made)
    except TypeError:
        return None


def _made_in(sampler: Any) -> str:
    try:
        return RECORD.made_in.get(sampler, "")
    except TypeError:
        return ""


def new_log(loader: DataLoader[Any], where: Position | None) -> LoaderLog:
    """An empty log for a loader."""
    dataset: Any = loader.dataset
    subsets = []
    while isinstance(dataset, Subset):  # indices are reported for the whole dataset
        subsets.append(dataset.indices)
        dataset = dataset.dataset
    selection = _selection(loader)
    return LoaderLog(
        where=where,
        about=replace(
            describe(loader, subsets, dataset),
            made_at=_made_at(loader),
            sampled_at=_made_at(loader.sampler),
            sampled_in=_made_in(loader.sampler),
            seeded_at=seeds.SEEDED_AT.get(getattr(loader.sampler, "seed", None)),  # type: ignore[arg-type]
            split_at=_made_at(loader.dataset if subsets else selection),
        ),
        loader=weakref.ref(loader),
        has_index=not isinstance(loader.dataset, IterableDataset),
        indexed=not isinstance(loader.dataset, IterableDataset),
        collates=loader.batch_size is not None or loader.batch_sampler is not None,
        subsets=subsets,
        selected=sorted(selection.indices) if selection is not None else None,
    )


def _selection(loader: DataLoader[Any]) -> SubsetRandomSampler | None:
    """The program's sampler of some of the samples, if a library divides these among the ranks.

    Lightning makes a data set of the sampler, and accelerate wraps the sampler of its batches.
    """
    divided = next((x for x in (loader.batch_sampler, loader.sampler) if _part(x)[0]), None)
    inner: Any = divided
    for _ in range(_MOST_WRAPPERS if divided is not None else 0):
        if isinstance(inner, SubsetRandomSampler):
            return inner
        held = (getattr(inner, name, None) for name in ("batch_sampler", "sampler", "_sampler"))
        inner = next((one for one in held if one is not None), getattr(inner, "dataset", None))
    return None


def users_sampler(loader: DataLoader[Any]) -> Any:
    """The sampler of a loader, or of its batch sampler; None for an IterableDataset."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    batches = loader.batch_sampler
    return loader.sampler if batches is None else getattr(batches, "sampler", batches)


def describe(loader: DataLoader[Any], subsets: list[Any], dataset: Any) -> LoaderPartition:
    """Properties of a loader that has no name yet."""
    sampler = users_sampler(loader)
    batches = getattr(loader, "batch_sampler", None)
    divider = batches if _part(batches)[0] is not None else sampler
    replicas, replica = _part(divider)
    seed = getattr(sampler, "seed", None)
    divided = loader.dataset if replicas is not None else None
    before = subsets[1] if subsets[1:] else dataset
    return LoaderPartition(
        name="",
        dataset=_name(loader),
        dataset_size=_size(dataset),
        universe=_size(before if divided is None else divided),
        sampler=type(sampler).__name__ if sampler is not None else "",
        shuffles=isinstance(sampler, _RANDOM) or getattr(sampler, "shuffle", False) is True,
        with_replacement=isinstance(sampler, WeightedRandomSampler | RandomSampler)
        and bool(getattr(sampler, "replacement", False)),
        replicas=replicas,
        replica=replica,
        seed=seed if isinstance(seed, int) else None,
        padding=_padding(divider, _size(loader.dataset)),
        drop_last=any(getattr(one, "drop_last", False) for one in (loader, batches, sampler)),
        workers=loader.num_workers,
        batch_size=loader.batch_size,
        expected_batches=_size(loader),
    )


def _part(sampler: Any) -> tuple[int | None, int | None]:
    """For how many ranks a sampler divides the data, and for which of them it selects samples.

    A `DistributedSampler` deals out samples; accelerate's ``BatchSamplerShard`` deals out batches,
    and names both numbers after processes.
    """
    for many, which in (("num_replicas", "rank"), ("num_processes", "process_index")):
        replicas, replica = getattr(sampler, many, None), getattr(sampler, which, None)
        if isinstance(replicas, int):
            return replicas, replica if isinstance(replica, int) else None
    return None, None


def _padding(sampler: Any, size: int | None) -> int | None:
    """How many samples accelerate's ``BatchSamplerShard`` repeats to fill the last batches.

    None for other samplers. Batches of unknown size may repeat any of the samples.
    """
    even = getattr(sampler, "even_batches", None)
    if not isinstance(even, bool) or size is None:
        return None
    if not even or getattr(sampler, "drop_last", False):
        return 0
    batch_size = getattr(sampler, "batch_size", None)
    if not isinstance(batch_size, int):
        return size
    ranks = 1 if getattr(sampler, "split_batches", False) else sampler.num_processes
    return -size % (batch_size * ranks)


def _name(loader: DataLoader[Any]) -> str:
    return type(loader.dataset).__name__


def _size(sized: Any) -> int | None:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def _length(batch: Any, collates: bool) -> int:
    """How many samples a batch has."""
    if not collates:
        return 1
    if isinstance(batch, Mapping):
        return _length(next(iter(batch.values())), collates) if batch else 0
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.ndim else 1
    if isinstance(batch, (list, tuple)):
        first = batch[0] if batch else None
        return _length(first, collates) if isinstance(first, torch.Tensor) else len(batch)
    return 1


def _contents(batch: Any, collates: bool, limit: int) -> list[int]:
    """Sketches of the first samples of a batch; empty if it holds no tensors."""
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if isinstance(batch, torch.Tensor):
        parts = [batch]
    elif not isinstance(batch, (list, tuple, Mapping)):
        return []
    tensors = [t for t in on_cpu(parts) if t.ndim or not collates]
    if not tensors:
        return []
    if not collates:
        return [joint_content(tensors[:1])]
    count = min(limit, *(len(t) for t in tensors))
    return [joint_content(t[at] for t in tensors) for at in range(count)]
