"""Records which states in a loaded file nothing has taken over when training begins.

A program may take a state over in its own way. So before the first backward pass, the objects of
the process are searched for what the file holds: an optimizer with a state, a scheduler that does
not begin, a tensor with the same content, or something else that still refers to the state.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ...model import Position
from ...model.checkpoints import LeftState
from ..user_signals import let_through
from .fingerprints import sketch

#: Files, entries of a file, tensors of an entry, and its tensors that are compared. They bound the
#: record and were chosen, not measured.
_MAX_FILES, _MAX_ENTRIES, _MAX_TENSORS, _COMPARED = 8, 64, 1000, 3
_Kind = Literal["optimizer", "scheduler", "tensors", "random"]
_TENSORS = (torch.Tensor, torch.nn.Parameter)


@dataclass(slots=True)
class _Entry:
    """One state in a file."""

    kind: _Kind
    #: ``id`` of the object, and memory of its first tensors.
    identity: int
    memory: set[int] = field(default_factory=set)
    contents: list[tuple[torch.Size, int]] = field(default_factory=list)
    tensors: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    settings: frozenset[str] = frozenset()
    taken: bool = False
    #: Whether the program has saved a state with the same key since.
    saved: bool = False


@dataclass(slots=True)
class _File:
    """A file that was loaded."""

    path: str
    where: Position | None
    entries: dict[str, _Entry]
    numbers: dict[str, int]
    #: Whether the program counts on from a number in the file.
    goes_on: bool = False
    examined: bool = False


class LeftStatesRecord:
    """The loaded files of this run."""

    def __init__(self) -> None:
        self.begin_run()

    def begin_run(self) -> None:
        """Begin a cell."""
        self.files: list[_File] = []
        #: Whether a file was loaded since the last backward pass.
        self.waits = False

    def loads(self, path: str, where: Position | None, loaded: Any) -> None:
        """Note the states in a loaded file, at its top."""
        if not isinstance(loaded, dict) or len(self.files) == _MAX_FILES:
            return
        try:
            entries = {
                key: entry
                for key, value in islice(loaded.items(), _MAX_ENTRIES)
                if isinstance(key, str) and (entry := _entry(value)) is not None
            }
            numbers = {k: v for k, v in loaded.items() if isinstance(k, str) and type(v) is int}
            if len(entries) > 1 and numbers:
                self.files.append(_File(path, where, entries, numbers))
                self.waits = True
        except Exception as error:  # noqa: BLE001  (an object of the user may raise anything)
            self._stop(error)

    def takes(self, state: Any) -> None:
        """Note that ``load_state_dict`` of an object was given a state."""
        if not self.files:
            return
        try:
            memory = {tensor.data_ptr() for tensor in _tensors(state)}
            for file in self.files:
                for entry in file.entries.values():
                    entry.taken |= entry.identity == id(state) or bool(entry.memory & memory)
        except Exception as error:  # noqa: BLE001
            self._stop(error)

    def sets_random(self) -> None:
        """Note that the program sets torch's random state, perhaps to a part of what it loaded."""
        for file in self.files:
            for entry in file.entries.values():
                entry.taken |= entry.kind == "random"

    def counts(self, epoch: Any) -> None:
        """Note an epoch that a sampler is given."""
        for file in self.files:
            if type(epoch) is int and epoch > 0:
                file.goes_on |= any(epoch in (n, n + 1) for n in file.numbers.values())

    def saves(self, saved: Any) -> None:
        """Note what the program saves."""
        if not self.files or not isinstance(saved, dict):
            return
        for file in self.files:
            for key, entry in file.entries.items():
                entry.saved |= key in saved
            file.goes_on |= file.entries.keys() <= saved.keys() and any(
                type(saved.get(key)) is int and saved[key] > number > 0
                for key, number in file.numbers.items()
            )

    def begins(self) -> None:
        """Called before a backward pass: search for what has taken the states over."""
        self.waits = False
        try:
            for file in self.files:
                if not file.examined:
                    file.examined = True
                    _examine(file.entries)
        except Exception as error:  # noqa: BLE001
            self._stop(error)

    def _stop(self, error: Exception) -> None:
        let_through(error)
        self.files, self.waits = [], False

    def observed(self) -> tuple[LeftState, ...]:
        """The states that were left in files of which others were taken over."""
        return tuple(
            LeftState(
                path=file.path,
                where=file.where,
                key=key,
                kind=entry.kind,
                saved=entry.saved,
                counts_on=file.goes_on,
            )
            for file in self.files
            if file.examined and any(one.taken for one in file.entries.values())
            for key, entry in file.entries.items()
            if not entry.taken
        )


def install() -> None:
    """Note when the program sets torch's random state."""
    torch.set_rng_state = torch.random.set_rng_state = _setting(torch.random.set_rng_state)


def _setting(original: Any) -> Any:
    @functools.wraps(original)
    def set_rng_state(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        original(*args, **kwargs)
        RECORD.sets_random()

    return set_rng_state


def _is_random_state(value: Any) -> bool:
    return (
        type(value) is torch.Tensor
        and value.dtype is torch.uint8
        and value.shape == torch.get_rng_state().shape
    )


def _entry(value: Any) -> _Entry | None:
    if _is_random_state(value):
        return _Entry("random", id(value))
    if not isinstance(value, dict) or not value:
        return None
    groups = value.get("param_groups")
    if isinstance(groups, list) and groups and value.get("state"):
        return _Entry("optimizer", id(value), settings=_settings(groups[0]))
    last = value.get("last_epoch")
    if type(last) is int and last > 0 and "_step_count" in value:
        return _Entry("scheduler", id(value))
    if not all(isinstance(one, torch.Tensor) for one in value.values()):
        return None
    entry = _Entry("tensors", id(value))
    for tensor in _tensors(value):
        entry.memory.add(tensor.data_ptr())
        if len(entry.contents) < _COMPARED and _is_distinct(tensor):
            entry.contents.append((tensor.shape, sketch(tensor)))
            entry.tensors.append(weakref.ref(tensor))
    return entry if entry.contents else None


def _settings(group: Any) -> frozenset[str]:
    return frozenset(group) - {"params", "initial_lr", "param_names"}


def _tensors(state: Any) -> Iterator[torch.Tensor]:
    """The first tensors of a state dict."""
    values = state.values() if isinstance(state, dict) else ()
    return (
        one
        for one in islice(values, _MAX_TENSORS)
        if type(one) in _TENSORS and one.is_cpu and one.layout is torch.strided
    )


def _is_distinct(tensor: torch.Tensor) -> bool:
    """Whether no other tensor has the same content by chance, as those have that hold zeros."""
    first = tensor.detach().reshape(-1)[:64]
    return tensor.is_floating_point() and len(first) > 1 and bool((first != first[0]).any())


def _examine(entries: dict[str, _Entry]) -> None:
    """Search for what has taken the states of a file over."""
    left = [entry for entry in entries.values() if not entry.taken]
    shapes = {shape for entry in left for shape, _ in entry.contents}
    optimizers: list[Any] = []
    schedulers: list[Any] = []
    contents: set[tuple[torch.Size, int]] = set()
    own = {id(one()) for entry in left for one in entry.tensors}
    for one in gc.get_objects() if left else ():
        kind = type(one)
        if kind in _TENSORS:
            if one.shape in shapes and one.is_cpu and id(one) not in own:
                contents.add((one.shape, sketch(one)))
        elif issubclass(kind, Optimizer):
            optimizers.append(one)
        elif issubclass(kind, LRScheduler):
            schedulers.append(one)
    for entry in left:
        if entry.kind == "optimizer":
            alike = [
                one
                for one in optimizers
                if one.param_groups and _settings(one.param_groups[0]) == entry.settings
            ]
            entry.taken = not alike or any(one.state for one in alike)
        elif entry.kind == "scheduler":
            # one that is made at a later epoch than the first is as far without its state
            entry.taken = not schedulers or any(getattr(s, "last_epoch", 1) for s in schedulers)
        elif entry.kind == "tensors":
            entry.taken = any(one in contents for one in entry.contents) or _is_held(entry)


def _is_held(entry: _Entry) -> bool:
    """Whether more than the loaded dictionary refers to a state, such as an attribute."""
    for reference in entry.tensors:
        tensor = reference()
        if tensor is None:
            continue
        holders = gc.get_referrers(tensor)
        if len(holders) != 1 or len(gc.get_referrers(holders[0])) > 2:  # the file's, and `holders`
            return True
    return False


#: The record of this process.
RECORD = LeftStatesRecord()
