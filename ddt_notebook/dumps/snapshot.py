"""Converts the dumps of a job's ranks to one `Snapshot` that every rule and view can read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..formatting import ranks_text
from ..model import Call, Cell, Position, RankReport, Snapshot, flight
from ..model.codec import FormatError
from .files import Dump, read

_MESSAGE = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")
_WORLD = ("default_pg", "default")


def load(path: str | Path) -> Snapshot:
    """Read a folder of dumps, or one dump.

    Parameters
    ----------
    path
        A folder with one file for each rank, pickled or JSON, as a job writes it; or one such file.

    Returns
    -------
    Snapshot
        Its ``origin`` is ``"dumps"``. It does not show where a rank was outside its collectives,
        and contains nothing about a rank without a dump.

    Raises
    ------
    FormatError
        If there is no dump, there are two of one rank, or one has other content.
    OSError
        If the path cannot be read.
    """
    dumps, notes = read(path)
    try:
        return _snapshot(_of_last_formation(dumps), notes)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise FormatError(
            f"the dumps in {path} hold what the Flight Recorder does not write ({error})"
        ) from error


def _snapshot(dumps: Sequence[Dump], notes: list[str]) -> Snapshot:
    groups, guessed = _groups(dumps)
    reports = tuple(_report(dump, groups) for dump in dumps)
    world = 1 + max([d.rank for d in dumps] + [r for ranks in groups.values() for r in ranks])
    lost = sorted(set(range(world)) - {dump.rank for dump in dumps})
    if lost:
        notes.append(f"no dump of {ranks_text(lost)}: killed, or not able to write one")
    if guessed:
        notes.append(
            f"the dumps do not say who belongs to {', '.join(f'group {g}' for g in guessed)}; "
            "taken to be the ranks that used it"
        )
    limits = [e["timeout_ms"] for d in dumps for e in d.entries if e.get("timeout_ms")]
    return Snapshot(
        cell=Cell(number=0, source=""),
        origin="dumps",
        outcome="hung" if any(r.state == "blocked" for r in reports) or lost else "ok",
        ranks=reports,
        groups=groups,
        world_size=world,
        backend=_backend(dumps),
        timeout_s=max(limits, default=0) / 1000,
        notes=tuple(notes),
    )


def _of_last_formation(dumps: Sequence[Dump]) -> list[Dump]:
    """Drop the entries from before a process formed a group of the same name again."""
    formed: dict[int, dict[str, list[Any]]] = {dump.rank: {} for dump in dumps}
    for dump in dumps:
        for entry in dump.entries:
            known = formed[dump.rank].setdefault(str(entry["process_group"][0]), [])
            if entry.get("pg_id") not in known:
                known.append(entry.get("pg_id"))
    whole = not any(dump.dropped for dump in dumps)
    most: Counter[str] = Counter()
    for groups in formed.values():
        most |= Counter({name: len(known) for name, known in groups.items()})

    def is_last(entry: dict[str, Any], rank: int) -> bool:
        name = str(entry["process_group"][0])
        known = formed[rank][name]
        # a rank without calls in the last group has fewer; not known if entries were overwritten
        return known.index(entry.get("pg_id")) == (most[name] if whole else len(known)) - 1

    return [
        replace(dump, entries=tuple(e for e in dump.entries if is_last(e, dump.rank)))
        for dump in dumps
    ]


def _groups(dumps: Sequence[Dump]) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Members by name, and the groups whose members no dump contains."""
    members: dict[str, tuple[int, ...]] = {}
    used: dict[str, set[int]] = {}
    whole = set()
    for dump in dumps:
        members |= dump.members
        for entry in dump.entries:
            name, *description = map(str, entry["process_group"])
            used.setdefault(name, set()).add(dump.rank)
            if description and description[0] in _WORLD:
                whole.add(name)
    known = {dump.rank for dump in dumps} | {rank for ranks in members.values() for rank in ranks}
    everyone = tuple(range(1 + max(known)))
    groups, guessed = {}, []
    for name, ranks in sorted(used.items()):
        if name in members and ranks <= set(members[name]):
            groups[name] = members[name]
        elif name in whole:
            groups[name] = everyone
        else:
            groups[name] = tuple(sorted(ranks))
            guessed.append(name)
    return groups, guessed


def _report(dump: Dump, groups: dict[str, tuple[int, ...]]) -> RankReport:
    calls: list[Call] = []
    seen: set[tuple[str, int]] = set()
    messages: Counter[tuple[object, ...]] = Counter()
    for index, entry in enumerate(dump.entries):
        if entry.get("is_p2p"):
            call = _message(index, entry, groups, messages)
        else:
            key = (str(entry["process_group"][0]), int(entry["collective_seq_id"]))
            # the parts of a coalesced collective have the same number
            call = None if key in seen else _collective(index, entry, groups)
            seen.add(key)
        if call is not None:
            calls.append(call)
    blocked = next((call for call in calls if call.status == "pending"), None)
    return RankReport(
        rank=dump.rank,
        state="recorded" if blocked is None else "blocked",
        blocked_in=None if blocked is None else blocked.index,
        position=None if blocked is None else blocked.where,
        calls=tuple(calls),
        calls_dropped=dump.dropped,
    )


def _collective(index: int, entry: dict[str, Any], groups: dict[str, tuple[int, ...]]) -> Call:
    name = str(entry["process_group"][0])
    return Call(
        index=index,
        op=flight.operation(entry),
        members=groups[name],
        sequence=int(entry["collective_seq_id"]),
        **_common(entry, name),
    )


def _message(
    index: int,
    entry: dict[str, Any],
    groups: dict[str, tuple[int, ...]],
    messages: Counter[tuple[object, ...]],
) -> Call | None:
    """A send or receive; the recorder numbers ranks within the group."""
    name = str(entry["process_group"][0])
    found = _MESSAGE.search(str(entry["profiling_name"]))
    members = groups[name]
    if found is None or int(found[3]) >= len(members):
        return None
    op, peer = found[1], members[int(found[3])]
    messages[name, op, peer] += 1
    return Call(
        index=index,
        op=op,
        kind="p2p",
        members=members,
        peer=peer,
        sequence=messages[name, op, peer],
        **_common(entry, name),
    )


def _common(entry: dict[str, Any], group: str) -> dict[str, Any]:
    """Fields of every call; there are no times, since the clocks of several hosts do not agree."""
    frames = [
        (str(f.get("filename", "")), int(f.get("line", 0)), str(f.get("name", "")))
        for f in entry.get("frames") or ()
    ]
    frame, caller = flight.user_frame(frames)
    return {
        "group": group,
        "status": "done"
        if entry.get("retired") or entry.get("state") == "completed"
        else "pending",
        "shapes": flight.shapes(entry.get("input_sizes") or ()),
        "dtypes": flight.dtypes(entry.get("input_dtypes") or ()),
        "output_shapes": flight.shapes(entry.get("output_sizes") or ()),
        "where": Position(file=frame[0], line=frame[1], function=frame[2]) if frame else None,
        "source": "flight recorder",
        "caller": caller,
    }


def _backend(dumps: Sequence[Dump]) -> str:
    names = (str(e["profiling_name"]) for dump in dumps for e in dump.entries)
    return next((name.partition(":")[0] for name in names if ":" in name), "")
