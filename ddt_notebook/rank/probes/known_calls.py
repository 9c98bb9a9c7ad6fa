"""What is kept of a call to ``torch.distributed``, for those that are like it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from ...model.operations import BARRIERS, SENDS
from ...wire.records import CallRecord
from .call_arguments import MAX_TENSORS

#: Calls that bring a rank no data of the others.
_CARRY_NOTHING = BARRIERS | SENDS
#: Collectives in which the root gets nothing.
_FROM_ROOT = frozenset({"broadcast", "broadcast_object_list"})


@dataclass(slots=True, eq=False)
class KnownCall:
    """A call that was made before, or will be, with what is the same each time.

    Attributes
    ----------
    record
        Its record, without what differs from call to call.
    shared
        Its encoded form in the ring.
    brings_data
        Whether it brings this rank data of other ranks.
    sums
        Whether it adds up what may be activations, over ranks.
    is_direct
        Whether the user's code makes a call of a framework itself.
    process_group, count
        Its group, and what returns how many operations that has been given; None if not known.
    numbers
        Counts calls; None if they have no numbers of their own. Messages with the same group,
        direction, peer and tag share it.
    of_user, asynchronous, blocking
        Of its record: whether one of the user's lines makes it, whether it returns a handle, and
        whether the rank is blocked in it.
    operations
        Of how many operations of its group's backend the last call consisted, if `steady`.
    steady
        Whether the last two calls consisted of as many.
    """

    record: CallRecord
    shared: bytes
    brings_data: bool
    sums: bool = False
    is_direct: bool = False
    process_group: Any = None
    count: Callable[[], int] | None = None
    numbers: Iterator[int] | None = None
    operations: int = -1
    steady: bool = False
    of_user: bool = field(init=False)
    asynchronous: bool = field(init=False)
    blocking: bool = field(init=False)

    def __post_init__(self) -> None:
        record = self.record
        self.of_user, self.asynchronous = record.library is None, record.asynchronous
        self.blocking = not record.asynchronous and not record.outside

    def counts(self, before: int, after: int) -> None:
        """Note the counts of operations before a call and after it."""
        operations = after - before if before >= 0 and after >= 0 else -1
        # of a long list of tensors, the record has the first ones only
        varies = len(self.record.shapes) >= MAX_TENSORS or self.record.kind != "collective"
        self.steady = operations == self.operations >= 0 and not varies
        self.operations = operations


def brings_data(record: CallRecord) -> bool:
    """Whether a call brings this rank data of other ranks."""
    if record.kind == "setup" or record.op in _CARRY_NOTHING:
        return False
    return record.op not in _FROM_ROOT or record.root != dist.get_rank()
