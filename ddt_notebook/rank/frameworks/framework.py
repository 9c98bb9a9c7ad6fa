"""What a rank does for a framework; a module of this folder overrides what its framework needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..probes.calls import CallLog


class Framework:
    """A framework that trains in the ranks.

    Nothing here imports the framework: a rank whose cells do not use it must not pay for it.
    """

    def install(self, calls: CallLog) -> None:
        """Prepare for an import of the framework by the user's code.

        Parameters
        ----------
        calls
            The rank's call log, for calls that do not pass through ``torch.distributed``.
        """

    def begin_script(self) -> None:
        """Forget what an earlier script has left in this process."""

    def forget_groups(self) -> list[str]:
        """Forget the groups that have ended; returns notes for the user."""
        return []

    def take_notes(self) -> list[str]:
        """Notes for the user since the last call."""
        return []
