"""What is kept of a call to ``torch.distributed``, for those that are like it."""

from __future__ import annotations

from dataclasses import dataclass

from ...wire.records import CallRecord
from .call_arguments import MAX_TENSORS


@dataclass(slots=True)
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
    operations
        Of how many operations of its group's backend the last call consisted, if `steady`.
    steady
        Whether the last two calls consisted of as many.
    """

    record: CallRecord
    shared: bytes
    brings_data: bool
    sums: bool
    is_direct: bool = False
    operations: int = -1
    steady: bool = False

    def counts(self, before: int, after: int) -> None:
        """Note the counts of operations before a call and after it."""
        operations = after - before if before >= 0 and after >= 0 else -1
        # of a long list of tensors, the record has the first ones only
        varies = len(self.record.shapes) >= MAX_TENSORS or self.record.kind != "collective"
        self.steady = operations == self.operations >= 0 and not varies
        self.operations = operations
