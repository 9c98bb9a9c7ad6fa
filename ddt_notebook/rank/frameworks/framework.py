"""What a rank does for a framework; a module of this folder overrides what its framework needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...model import Observation
    from ...model.agreements import RankAgreements
    from ...wire.messages import RankSpec
    from ..probes.calls import CallLog
    from ..probes.pieces import Piece


class Framework:
    """A framework that trains in the ranks.

    Nothing here imports the framework: a rank whose cells do not use it must not pay for it.
    """

    def watch(self, calls: CallLog) -> None:
        """Prepare to record what the framework does, once the user's code imports it.

        What the framework does stays as it is: this is for recorded jobs, too.

        Parameters
        ----------
        calls
            The rank's call log, for calls that do not pass through ``torch.distributed``.
        """

    def watch_job(self, calls: CallLog, become_rank: Callable[[dict[str, Any]], object]) -> None:
        """Record a process of a job that forms no group of torch; see `Description.job_begin`.

        Parameters
        ----------
        calls
            See `watch`.
        become_rank
            Is called when the process becomes a rank, with what a rank of ``torch.distributed``
            would give ``init_process_group``.
        """
        self.watch(calls)

    def install(self) -> None:
        """Prepare to change what the framework does, in a rank of a session only."""

    def begin_script(self) -> None:
        """Forget what an earlier script has left in this process."""

    def forget_groups(self) -> list[str]:
        """Forget the groups that have ended; returns notes for the user."""
        return []

    def join(self, spec: RankSpec, store: Any) -> list[str]:
        """Meet the other ranks of a session that prepares its ranks for this framework.

        Parameters
        ----------
        spec
            The rank.
        store
            A store with which all ranks of the session are connected; its keys are new.

        Returns
        -------
        list of str
            Notes for the user.
        """
        return []

    def begin_run(self) -> None:
        """Begin to observe another cell or script."""

    def begin_trace(self) -> None:
        """Begin to time what the run does; `completed` adds it to the rank's timeline."""

    def observed(self, rank: int, namespace: Mapping[str, Any]) -> Observation | None:
        """What was observed since the run began; None if nothing was.

        Parameters
        ----------
        rank
            Global rank.
        namespace
            The user's variables.
        """
        return None

    def given(self, rank: int) -> RankAgreements | None:
        """What the ranks of a run were given and need equal, as far as this rank has come.

        Any thread may call it, also while the rank waits in a collective.
        """
        return None

    def parts(self, module: Any) -> Mapping[int, str]:
        """Which part of a whole each parameter or buffer of a module is, by its ``id``.

        Ranks compare equal parts only. What is not listed is the whole.
        """
        return {}

    def pieces(self, module: Any) -> tuple[str, list[Piece]] | None:
        """What this rank holds of each parameter of a module that the framework divides.

        Returns
        -------
        tuple or None
            The framework's name and the parameters; None for any other module.
        """
        return None

    def completed(
        self, seen: Observation, namespace: Mapping[str, Any], names: list[str] | None = None
    ) -> Observation:
        """What probes observed, with what objects of the framework add to it.

        Parameters
        ----------
        seen
            What the probes observed of torch's objects.
        namespace, names
            The user's variables, and which of them to describe.
        """
        return seen

    def free(self) -> None:
        """End this rank's wait in a collective of the framework; the monitor's thread calls it."""

    def take_notes(self) -> list[str]:
        """Notes for the user since the last call."""
        return []
