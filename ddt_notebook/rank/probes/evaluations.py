"""Notes what evaluations are fed, and when ranks exchanged data; other probes report to it.

The notes are a few counters, so that they cost nothing in a training step.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import torch

from ...model.shown import EvaluatedInput
from .fingerprints import joint_content, on_cpu
from .frames import user_frames

_MAX_INPUTS = 16


class EvaluationRecord:
    """The forward passes without gradients and the exchanges of data of this process."""

    def __init__(self) -> None:
        #: Calls of ``torch.distributed`` that carried data so far, and before the last input.
        self.exchanges = 0
        self.exchanges_at_input = 0
        #: Whether the last forward pass through DDP had gradients; None before the first. For those
        #: that had, the record of training sets this and ``exchanges_at_input``.
        self.graded: bool | None = None
        #: Is called with what is given at the next exchange; None if that is not known.
        self.on_exchange: Callable[[tuple[Any, ...] | None], None] | None = None
        #: Tensors that are known to hold no values of other ranks, by the place of their elements.
        self.own: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        #: Whether there may be such tensors.
        self.has_own = False
        self.begin_run()

    def begin_run(self) -> None:
        """Begin a cell."""
        self.exchanges_at_input = self.exchanges
        self.graded = None
        self.on_exchange = None
        #: Whether a loader has brought a batch.
        self.loaded = False
        self.evaluated = 0
        #: The user's instruction that made the last of these passes.
        self.fed_by: tuple[CodeType, int] | None = None
        self.inputs: list[EvaluatedInput] = []

    def exchanges_data(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Called before each call that gives this rank data of other ranks."""
        self.exchanges += 1
        if self.has_own or self.on_exchange is not None:  # `CallLog` makes the same test itself
            self.gives(args, kwargs)

    def gives(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Look at what such a call is given, which will hold values of other ranks."""
        self.has_own = bool(self.own)
        if self.has_own:
            for given in (*args, *kwargs.values()):
                for one in given if isinstance(given, (list, tuple)) else (given,):
                    if isinstance(one, torch.Tensor):
                        self.own.pop(one.data_ptr(), None)
        if self.on_exchange is not None:
            self.on_exchange((*args, *kwargs.values()))

    def computes(self, result: Any) -> None:
        """Called with what a metric computed from this rank's own state."""
        for part in result.values() if isinstance(result, dict) else (result,):
            if type(part) is torch.Tensor:
                self.has_own = True
                self.own[part.data_ptr()] = part

    def reads_data(self) -> None:
        """Called when this rank reads what other ranks have written."""
        self.exchanges += 1
        if self.on_exchange is not None:
            self.on_exchange(None)

    def evaluates(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Called for each forward pass without gradients through DDP."""
        self.graded = False
        self.exchanges_at_input = self.exchanges
        self.evaluated += 1
        caller = next(user_frames(sys._getframe(1)), None)
        self.fed_by = (caller.f_code, caller.f_lasti) if caller is not None else None
        if self.evaluated > _MAX_INPUTS:
            return
        tensors = on_cpu((*inputs, *named.values()))
        if not tensors:
            return
        first = tensors[0]
        whole = first.untyped_storage().nbytes()
        is_part = whole > first.numel() * first.element_size()
        self.inputs.append(
            EvaluatedInput(
                content=joint_content(tensors),
                storage_bytes=whole if is_part else 0,
                offset=int(first.storage_offset()) if is_part else 0,
            )
        )


#: The record of this process.
RECORD = EvaluationRecord()
