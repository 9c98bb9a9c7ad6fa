"""Observes which way ranks go in functions that a library's trainer calls, on Python 3.11.

There, observing all of the user's code would slow it. Between two steps of a trainer, its callbacks
take little time, and a condition in one of them may end the trainer's loop on one rank alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .after_import import AfterImport
from .branch_events import ALWAYS_ON, BranchEvents

#: The module of each library, and the function in it, or the method, that calls callbacks.
_CALLING = (
    ("transformers.trainer_callback", "CallbackHandler.call_event"),
    ("lightning.pytorch.trainer.call", "_call_callback_hooks"),
    ("pytorch_lightning.trainer.call", "_call_callback_hooks"),
)


def observe_callbacks(events: BranchEvents) -> None:
    """Let trainers observe their callbacks, as soon as a library has been imported."""
    if ALWAYS_ON:
        return
    for module, path in _CALLING:
        AfterImport(module, functools.partial(_wrap, events, path)).install()


def _wrap(events: BranchEvents, path: str, module: ModuleType) -> None:
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
        began = events.begin_callbacks()
        try:
            return original(*args, **kwargs)
        finally:
            if began:
                events.end_callbacks()

    setattr(owner, name, call)
