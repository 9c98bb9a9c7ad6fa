"""Rewrites the user's cell if the change follows from a finding and the source.

A rewrite returns None if it could change anything else that the cell does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ddt_notebook.model import Finding, Snapshot
from ddt_notebook.program.parse import Document, parse
from ddt_notebook.program.tree import tree_of

from .agreement import agree_on_end
from .calls import (
    ask_the_group,
    divide_data,
    form_group_once,
    keep_no_graph,
    leave_shuffling,
    reduce_for_all,
)
from .condition import new_group_for_all, out_of_condition
from .fault import Correction, Fault
from .sampler import set_epoch
from .wrapper import below_wrapper, through_wrapper, without_device_ids, wrap

__all__ = ["CORRECTED", "Correction", "correction"]

_MAKERS: dict[str, Callable[[Fault], Correction | None]] = {
    "collective-under-rank-condition": out_of_condition,
    "new-group-on-some-ranks": new_group_for_all,
    "set-epoch-forgotten": set_epoch,
    "model-not-wrapped": wrap,
    "module-called-past-ddp": through_wrapper,
    "wrapped-by-ddp": below_wrapper,
    "device-ids-on-cpu": without_device_ids,
    "no-distributed-sampler": divide_data,
    "sampler-for-wrong-rank": ask_the_group,
    "sampler-with-shuffle": leave_shuffling,
    "reduce-read-on-wrong-rank": reduce_for_all,
    "group-initialized-twice": form_group_once,
    "loss-keeps-graph": keep_no_graph,
    "loop-ends-by-clock": agree_on_end,
}
#: The causes for which a cell can be corrected.
CORRECTED = frozenset(_MAKERS)


def correction(finding: Finding, snapshot: Snapshot) -> Correction | None:
    """Return the corrected cell of a run, None if the change cannot be derived."""
    make = _MAKERS.get(finding.cause or "")
    tree = tree_of(Document.of(snapshot.cell))
    if make is None or tree is None:
        return None
    if snapshot.framework and make is not out_of_condition:
        return None  # the others write calls of torch
    made = make(Fault(finding, snapshot, tree))
    if made is None or made.source == snapshot.cell.source:
        return None
    changed = replace(snapshot.cell, source=made.source)
    return made if parse(Document.of(changed)) is not None else None
