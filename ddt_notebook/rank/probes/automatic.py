"""Observes a rank without a request, at the end of a run in which something trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...model import Observation
from . import (
    checkpoints,
    drawn,
    early_reads,
    exchanged,
    kept_states,
    loaders,
    performance,
    registry,
    shown,
    training,
)
from .objects import buffers, find, local_bytes, optimizer_state
from .simulated import simulated_gpus

#: With more bytes of tensors than this, fingerprints would delay the end of a cell: they read
#: tensors at the speed of memory, several GB/s.
_MOST_BYTES = 1 << 30


def observe(
    rank: int, namespace: Mapping[str, Any], *, well: bool
) -> tuple[Observation | None, tuple[str, ...]]:
    """The records of the run and the tensors at its end, and notes on what was left out.

    Parameters
    ----------
    rank
        Global rank.
    namespace
        The user's variables.
    well
        Whether the cell ended without exception; if not, tensors are not read.
    """
    record = training.RECORD
    notes = []
    what = ["performance"] if performance.RECORD.is_long else []
    if checkpoints.RECORD.uses or checkpoints.RECORD.states:
        what.append("checkpoints")
    if shown.RECORD.active:
        what.append("shown")
    early_reads.RECORD.leave()
    drawn.RECORD.leave()
    if exchanged.RECORD.values or early_reads.RECORD.reads:
        what.append("exchanged")
    if not record.active and not _loaders_used():
        return registry.observe(rank, what, namespace, None, {}).observed, ()
    what += ["partition", "training"]
    if torch.cuda.is_initialized() or simulated_gpus():
        what.append("placement")
    if well:
        size = _bytes(namespace)
        if size <= _MOST_BYTES:
            what.append("parity")
        else:
            notes.append(
                f"{size / (1 << 30):.1f} GiB of tensors were not compared between the ranks; "
                "the view parity compares them"
            )
    for name, problem in (
        ("training is", record.problem),
        ("printed values are", shown.RECORD.problem),
        ("exchanged values are", exchanged.RECORD.problem),
        ("early reads are", early_reads.RECORD.problem),
        ("random numbers of a step are", drawn.RECORD.problem),
        ("what DDP does not keep equal is", kept_states.RECORD.problem),
    ):
        if problem:
            notes.append(f"{name} not recorded any more: {problem}")
    seen = registry.observe(rank, what, namespace, None, {})
    return seen.observed, (*notes, *seen.failed.values())


def _loaders_used() -> bool:
    record = loaders.RECORD
    return any(log.passes and log.passes[-1].run == record.run for log in record.logs)


def _bytes(namespace: Mapping[str, Any]) -> int:
    found = find(namespace)
    parameters = [p for m in found.modules.values() for p in (*m.parameters(), *buffers(m))]
    states = [
        value
        for optimizer in found.optimizers.values()
        for _, value, _ in optimizer_state(optimizer, {})
        if hasattr(value, "element_size")
    ]
    gradients = [p.grad for p in parameters if p.grad is not None]
    return local_bytes(t for t in (*parameters, *states, *gradients) if not t.is_meta)
