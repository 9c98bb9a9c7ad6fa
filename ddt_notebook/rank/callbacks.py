"""Observes which way ranks go in functions that a library's trainer calls, on Python 3.11.

There, observing all of the user's code would slow it. Between two steps of a trainer, its callbacks
take little time, and a condition in one of them may end the trainer's loop on one rank alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..model.frameworks import known_frameworks
from .after_import import AfterImport
from .branch_events import ALWAYS_ON, BranchEvents


def observe_callbacks(events: BranchEvents) -> None:
    """Let trainers observe their callbacks, as soon as a library has been imported."""
    if ALWAYS_ON:
        return
    for framework in known_frameworks().values():
        for module, path in framework.callbacks:
            AfterImport(module, functools.partial(_wrap, events, path, _always)).install()
        for module, path in framework.hooks:
            AfterImport(module, functools.partial(_wrap, events, path, _of_epoch)).install()


def _always(arguments: tuple[Any, ...]) -> bool:
    return True


def _of_epoch(arguments: tuple[Any, ...]) -> bool:
    """Whether a hook is called once an epoch, so that observing it takes no time of steps."""
    return len(arguments) > 1 and "epoch" in str(arguments[1])


def _wrap(
    events: BranchEvents,
    path: str,
    observes: Callable[[tuple[Any, ...]], bool],
    module: ModuleType,
) -> None:
    *owners, name = path.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part, None)
    original: Callable[..., Any] | None = getattr(owner, name, None)
    if original is None:
        return  # another version of the library

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        began = observes(args) and events.begin_callbacks()
        try:
            return original(*args, **kwargs)
        finally:
            if began:
                events.end_callbacks()

    setattr(owner, name, call)
