"""Whether a process group can be used on after a cell."""

from __future__ import annotations

from .watch import RankRun, groups_seen


def group_is_damaged(runs: list[RankRun], *, group: bool, well: bool) -> bool:
    """Whether ranks no longer stand at the same place of their groups.

    Parameters
    ----------
    runs
        Each rank's part in the run that ended.
    group
        Whether the session formed the group.
    well
        Whether the run ended without failure.
    """
    recorders = [run.handle.recorder for run in runs if run.handle.recorder is not None]
    if not well and any(recorder.failed for recorder in recorders):
        return True
    if len({recorder.new_groups for recorder in recorders}) > 1:
        return True
    if group and any(run.ended is not None and not run.ended.formed for run in runs):
        return True
    members = groups_seen(runs)
    reached: dict[str, set[int]] = {}
    for run in runs:
        if run.handle.recorder is None:
            continue
        numbers = run.handle.recorder.reached()
        for name, ranks in members.items():
            if run.handle.rank in ranks:
                reached.setdefault(name, set()).add(numbers.get(name, 0))
    pending = any(recorder.pending_flight() is not None for recorder in recorders)
    return any(len(numbers) > 1 for numbers in reached.values()) or (pending and not well)
