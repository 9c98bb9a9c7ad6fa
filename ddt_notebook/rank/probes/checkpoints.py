"""Records which files a rank saves and loads, to find two ranks that use the same file."""

from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Literal

import torch
from torch.optim import Optimizer, lr_scheduler

from ...model.checkpoints import CheckpointUse, RankCheckpoints, StateLoad
from ..after_import import AfterImport
from . import kept_states, left_states
from .frames import user_line

_MOST_USES = 100
_MOST_TENSORS = 1000
_PREFIX = "module."


class CheckpointRecord:
    """The files that this process has saved and loaded while the current cell runs."""

    def __init__(self) -> None:
        self.uses: list[CheckpointUse] = []
        #: The last state dict without any key of a model, by the ``id`` of the model.
        self.states: dict[int, StateLoad] = {}
        self.more = 0
        #: How often each kind of object took over a state in this run.
        self.restored: Counter[str] = Counter()
        #: The epoch in the last loaded file that holds the state of an optimizer.
        self._loaded_epoch: int | None = None
        #: That epoch with the optimizer that has taken over a state since, until a sampler begins.
        self._resumed: tuple[int, weakref.ref[Any]] | None = None

    def begin_run(self) -> None:
        """Begin a cell."""
        self.uses, self.more = [], 0
        left_states.RECORD.begin_run()
        self._loaded_epoch = self._resumed = None
        self.states.clear()
        self.restored.clear()

    def add(self, use: CheckpointUse) -> None:
        """Keep a use; beyond `_MOST_USES`, only count it."""
        if "optimizer" in use.holds:
            self._loaded_epoch = use.epoch
        if len(self.uses) < _MOST_USES:
            self.uses.append(use)
        else:
            self.more += 1

    def renamed(self, old: Any, new: Any) -> None:
        """Note that a file that was saved has got another name, as in a save in two steps."""
        path = _path(old)
        for number in reversed(range(len(self.uses))):
            use = self.uses[number]
            if use.action == "save" and use.path == path:
                self.uses[number] = replace(use, renamed=_path(new))
                return

    def restores(self, kind: str, owner: Any) -> None:
        """Count that an object took over a state."""
        self.restored[kind] += 1
        if kind == "optimizer" and self._loaded_epoch is not None:
            self._resumed, self._loaded_epoch = (self._loaded_epoch, weakref.ref(owner)), None

    def resumed(self) -> tuple[int, weakref.ref[Any]] | None:
        """The epoch of the file from which an optimizer was just restored; None the next time."""
        found, self._resumed = self._resumed, None
        return found

    def observed(self, rank: int) -> RankCheckpoints:
        """What this rank has saved and loaded."""
        return RankCheckpoints(
            rank=rank,
            uses=tuple(self.uses),
            more=self.more,
            restored=dict(self.restored),
            states=tuple(self.states.values())[:_MOST_USES],
            left=left_states.RECORD.observed(),
        )


#: The record of this process.
RECORD = CheckpointRecord()


def install() -> None:
    """Record calls that save and load files, and ``Module.load_state_dict``."""
    actions: tuple[tuple[Literal["save", "load"], int], ...] = (("save", 1), ("load", 0))
    for action, file_at in actions:
        original = getattr(torch, action)
        wrapper = functools.wraps(original)(_recording(original, action, file_at))
        for module in (torch, torch.serialization):
            setattr(module, action, wrapper)
    AfterImport("safetensors.torch", _record_tensors).install()
    load_state = torch.nn.Module.load_state_dict
    torch.nn.Module.load_state_dict = functools.wraps(load_state)(_taking_over(load_state))  # type: ignore[method-assign]
    for name in ("replace", "rename"):
        setattr(os, name, _renaming(getattr(os, name)))
    left_states.install()
    _restoring(Optimizer, "optimizer")
    _restoring(torch.amp.GradScaler, "scaler")
    for value in list(vars(lr_scheduler).values()):
        is_scheduler = isinstance(value, type) and issubclass(value, lr_scheduler.LRScheduler)
        if is_scheduler and "load_state_dict" in vars(value):
            _restoring(value, "scheduler")


def _record_tensors(module: ModuleType) -> None:
    """Record files of tensors only, in which most libraries save models."""
    files: tuple[tuple[str, Literal["save", "load"], int], ...] = (
        ("save_file", "save", 1),
        ("load_file", "load", 0),
    )
    for name, action, file_at in files:
        original = getattr(module, name, None)
        if original is not None:
            wrapper = functools.wraps(original)(_recording(original, action, file_at))
            setattr(module, name, wrapper)


def _renaming(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def rename(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        original(*args, **kwargs)
        if RECORD.uses and len(args) == 2 and not kwargs:
            RECORD.renamed(*args)

    return rename


def _restoring(owner: Any, kind: str) -> None:
    """Count how often an object of a class takes over a state."""
    original = owner.load_state_dict

    @functools.wraps(original)
    def load_state_dict(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = original(*args, **kwargs)
        RECORD.restores(kind, args[0])
        left_states.RECORD.takes(args[1] if len(args) > 1 else kwargs.get("state_dict"))
        return result

    owner.load_state_dict = load_state_dict


def observe(
    rank: int, namespace: Mapping[str, Any], names: list[str] | None = None
) -> RankCheckpoints:
    """What this rank has saved and loaded while the last cell ran."""
    return RECORD.observed(rank)


def _recording(
    function: Callable[..., Any], action: Literal["save", "load"], file_at: int
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        named = kwargs.get("f", kwargs.get("filename"))
        given = args[file_at] if len(args) > file_at else named
        path = _path(given)
        if not path:
            return function(*args, **kwargs)
        where = user_line(sys._getframe(1))
        saves = action == "save"
        saved = args[0] if args else kwargs.get("obj", kwargs.get("tensors"))
        wrapped = _wrapped(saved) if saves else ""
        devices: tuple[str, ...] = ()
        holds: tuple[str, ...] = ()
        epoch: int | None = None
        began_s, done = time.monotonic(), False
        try:
            result = function(*args, **kwargs)
            done = True
            if not saves:
                devices = tuple(sorted(_devices(result)))
                holds = tuple(sorted(_states(result)))
                epoch = _epoch(result)
                left_states.RECORD.loads(path, where, result)
            else:
                left_states.RECORD.saves(saved)
                kept_states.RECORD.saves(saved, where)
            return result
        finally:
            use = CheckpointUse(
                action=action,
                path=path,
                where=where,
                began_s=began_s,
                ended_s=time.monotonic(),
                done=done,
                wrapped=wrapped,
                devices=devices,
                holds=holds,
                epoch=epoch,
            )
            RECORD.add(use)

    return call


def _taking_over(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(model: torch.nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        result = function(model, state_dict, *args, **kwargs)
        RECORD.restored["model"] += 1
        left_states.RECORD.takes(state_dict)
        missing, unexpected = result if isinstance(result, tuple) else ((), ())
        RECORD.states.pop(id(model), None)
        if unexpected and len(unexpected) == len(state_dict):
            RECORD.states[id(model)] = StateLoad(
                model=type(model).__name__,
                where=user_line(sys._getframe(1)),
                keys=len(state_dict),
                unexpected=str(unexpected[0]),
                missing=str(missing[0]) if missing else "",
            )
        return result

    return call


def _states(loaded: Any) -> set[str]:
    """The kinds of objects whose states a checkpoint holds, at the top or one level below."""
    if not isinstance(loaded, dict):
        return set()
    parts = [loaded, *loaded.values()]
    return {kind for part in parts if isinstance(part, dict) and (kind := _kind(part))}


def _epoch(loaded: Any) -> int | None:
    """The number of the epoch in a checkpoint: the key of such a number says so."""
    if not isinstance(loaded, dict):
        return None
    for key, value in loaded.items():
        if isinstance(key, str) and "epoch" in key.lower() and type(value) is int:
            return value
    return None


def _kind(state: dict[Any, Any]) -> str:
    """The kind of object that has such a state; an optimizer's only if it is not empty."""
    if isinstance(state.get("param_groups"), list) and "state" in state:
        return "optimizer" if state["state"] else ""
    if "last_epoch" in state and ("_step_count" in state or "_last_lr" in state):
        return "scheduler"
    return "scaler" if {"scale", "growth_factor"} <= state.keys() else ""


def _devices(loaded: Any, left: int = _MOST_TENSORS) -> set[str]:
    """The devices of the first tensors of a checkpoint."""
    found: set[str] = set()
    waiting = [loaded]
    while waiting and left:
        value = waiting.pop()
        if isinstance(value, torch.Tensor):
            found.add(str(value.device))
            left -= 1
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return found


def _path(file: Any) -> str:
    """The path of a path or an open file; empty for anything else, such as a buffer."""
    name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    if not isinstance(name, str | os.PathLike):
        return ""
    path = os.path.realpath(os.fspath(name))
    return path if isinstance(path, str) and not path.startswith("/dev/") else ""


def _wrapped(saved: Any) -> str:
    """The first key of a saved state dict if a wrapper has prefixed all keys, else empty."""
    parts = [saved, *saved.values()] if isinstance(saved, dict) else []
    for part in parts:
        if not isinstance(part, dict) or not part:
            continue
        keys = [key for key in part if isinstance(key, str)]
        tensors = all(isinstance(part[key], torch.Tensor) for key in keys)
        if len(keys) == len(part) and tensors and all(k.startswith(_PREFIX) for k in keys):
            return keys[0]
    return ""
