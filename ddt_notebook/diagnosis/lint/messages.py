"""Rules about ranks that wait for each other, or for a message that is never sent."""

from __future__ import annotations

from collections.abc import Iterator

from .machine import Stuck, stuck
from .note import Note
from .program import Program

#: A program with messages may be meant for any of these numbers of ranks.
_WORLDS = (2, 3, 4)
_TITLES = {
    "both-sides-wait": "all ranks receive before any of them sends",
    "wait-cycle": "ranks wait for a message and for a collective at the same time",
    "message-tags-differ": "a receive asks for another tag than the message has",
    "message-without-partner": "a receive waits for a message that is never sent",
    "groups-in-opposite-order": "the ranks use their groups in opposite order",
}


def waits(program: Program) -> Iterator[Note]:
    """Receives and collectives in which ranks stay for ever."""
    if not program.passages:
        return
    found: Stuck | None = None
    if program.mentions(r"\b(recv|recv_object_list)\("):
        for world in _WORLDS:
            stuck_here = _played(program, world)
            if stuck_here is None or stuck_here.cause not in _TITLES:
                return
            found = found or stuck_here
    elif program.mentions(r"new_group\("):
        found = stuck(program.passages[0].walks)
        if found is not None and found.cause != "groups-in-opposite-order":
            return
    if found is None:
        return
    lines = sorted({(call.line, rank) for rank, call in found.at.items()})
    first, others = lines[0], {line for line, _ in lines[1:]} - {lines[0][0]}
    yield Note(
        symptom="D.2.1",
        title=_TITLES[found.cause],
        cause=found.cause,
        line=first[0],
        also=tuple((line, "is where others stand then") for line in sorted(others)),
        op=found.at[first[1]].op,
    )


def _played(program: Program, world: int) -> Stuck | None:
    if world != program.world:
        program = Program(program.tree, program.source, world)
    return stuck(program.passages[0].walks) if program.passages else None
