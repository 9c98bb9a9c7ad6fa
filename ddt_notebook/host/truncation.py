"""Keeps the records of a long cell bounded without losing what disagrees."""

from __future__ import annotations

from .recorder import KEEP, RankRecorder


def thin(recorders: dict[int, RankRecorder]) -> None:
    """Drop the oldest calls that agree on all ranks concerned, where a rank has too many."""
    if all(len(recorder) < recorder.thin_at for recorder in recorders.values()):
        return
    old = {
        rank: dict(list(recorder.matchable(rank).items())[:-KEEP])
        for rank, recorder in recorders.items()
    }
    for rank, records in old.items():
        droppable = []
        for key, (index, fields) in records.items():
            others = [old[other].get(key) for other in key[1] if other in old]
            if all(theirs is not None and theirs[1] == fields for theirs in others):
                droppable.append(index)
        recorders[rank].drop(droppable)
    for recorder in recorders.values():
        # what never matches (receives from anyone) is bounded, too
        recorder.drop_oldest(max(0, len(recorder) - 4 * KEEP))
        recorder.thin_at = len(recorder) + KEEP
