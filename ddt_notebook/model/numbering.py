"""Translates ranks that a cell numbered itself into the session's ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from .collective import Call
from .rank import RankReport

#: Number in the group -> number in the session.
_Numbers = Mapping[int, int]
#: The number of the init_process_group call, and the address of the rendezvous.
_World = tuple[int, str]


def in_session_numbers(reports: tuple[RankReport, ...]) -> tuple[RankReport, ...]:
    """The reports, with the session's ranks in their calls.

    A cell that forms the group itself may number the ranks in another way, or form several groups
    that each count from 0. Then members, roots and peers are not the session's ranks, and groups of
    the same name may be different groups.
    """
    worlds = _worlds(reports)
    if all(number == rank for numbers in worlds.values() for number, rank in numbers.items()):
        return reports
    return tuple(replace(report, calls=_renumbered(report, worlds)) for report in reports)


def _worlds(reports: tuple[RankReport, ...]) -> dict[_World, _Numbers]:
    """For each group that formed, the session's rank of each rank in the group."""
    came: dict[_World, dict[int, int]] = defaultdict(dict)
    sizes: dict[_World, int] = {}
    for report in reports:
        for call in (*_before(report), *report.calls):
            world = _world(call)
            if world is None or call.status != "done" or call.rendezvous is None:
                continue
            if call.rendezvous.rank is not None:
                came[world][call.rendezvous.rank] = report.rank
                sizes[world] = call.rendezvous.world_size or 0
    return {world: who for world, who in came.items() if len(who) == sizes[world]}


def _before(report: RankReport) -> tuple[Call, ...]:
    return (report.joined,) if report.joined is not None else ()


def _world(call: Call) -> _World | None:
    if call.op != "init_process_group" or call.rendezvous is None or call.sequence is None:
        return None
    return call.sequence, call.rendezvous.address


def _renumbered(report: RankReport, worlds: Mapping[_World, _Numbers]) -> tuple[Call, ...]:
    several = len({sequence for sequence, _ in worlds}) < len(worlds)
    numbers: _Numbers = {}
    suffix = ""
    calls = []
    before = _before(report)
    for call in (*before, *report.calls):
        world = _world(call)
        if world is not None:
            numbers = worlds.get(world, {})
            suffix = f" at {world[1]}" if several and world in worlds else ""
        calls.append(_renumbered_call(call, numbers, suffix))
    return tuple(calls[len(before) :])


def _renumbered_call(call: Call, numbers: _Numbers, suffix: str) -> Call:
    def there(rank: int | None) -> int | None:
        return rank if rank is None else numbers.get(rank, rank)

    return replace(
        call,
        group=f"{call.group}{suffix}" if call.kind != "setup" else call.group,
        members=tuple(sorted(numbers.get(member, member) for member in call.members)),
        root=there(call.root),
        peer=there(call.peer),
    )
