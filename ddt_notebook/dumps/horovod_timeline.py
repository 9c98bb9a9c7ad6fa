"""Reads the file that Horovod writes if ``HOROVOD_TIMELINE`` is set, as a snapshot.

Rank 0 writes it. For each tensor, it shows when the negotiation of a collective began and ended,
when each rank became ready, and what rank 0 did then. From the second time on, Horovod remembers a
tensor and does not write when each rank became ready. The file of a job that was ended has no end.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..formatting import agree, ranks_text
from ..model import Call, Cell, FormatError, RankReport, Snapshot
from ..model.collective import Shape
from ..model.timeline import RankTimeline

#: In the first event of the file.
_MARK = b"start_time_since_epoch_in_micros"
_NEGOTIATES = "NEGOTIATE_"
_NUMBER = re.compile(r"\d+")


@dataclass
class _Collective:
    """One operation on one tensor; times are microseconds since the file began."""

    op: str
    tensor: str
    number: int
    begun_us: int
    ready_us: dict[int, int] = field(default_factory=dict)  # by rank
    negotiated: bool = False
    ran_us: int | None = None
    ended_us: int | None = None
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()


def is_timeline(path: Path) -> bool:
    """Whether a file is a timeline of Horovod."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _MARK in file.read(300)


def snapshot_of_timeline(path: Path) -> Snapshot:
    """The snapshot of a job from its timeline.

    Raises
    ------
    FormatError
        If it holds no collective.
    """
    found = list(_collectives(_events(path.read_text(encoding="utf-8", errors="replace"))))
    if not found:
        raise FormatError(f"{path} holds no collective of Horovod")
    size = 1 + max((rank for one in found for rank in one.ready_us), default=0)
    members = tuple(range(size))
    done = [one for one in found if one.negotiated]
    begun, ended = found[0].begun_us, max(one.ended_us or one.begun_us for one in found)
    notes = [f"{path.name} is a timeline of Horovod, written by rank 0"]
    if any(not one.ready_us for one in done):
        notes.append("ranks became ready at known times for the first use of a tensor only")
    awaited = next((one for one in found if one.ready_us and not one.negotiated), None)
    if awaited is not None:
        notes.append(_open_at_the_end(awaited, members))
    return Snapshot(
        cell=Cell(number=0, source=""),
        origin="dumps",
        framework="horovod",
        ranks=tuple(_report(rank, done, members) for rank in members),
        world_size=size,
        backend="gloo",
        timeline=(_of_rank_0(done, begun, ended),),
        notes=tuple(notes),
    )


def _events(text: str) -> list[dict[str, Any]]:
    """The events, also of a file without an end."""
    text = text.rstrip().rstrip(",")
    while text:
        try:
            read = json.loads(text if text.endswith("]") else text + "]")
        except (ValueError, RecursionError):
            text = text[: text.rfind("}", 0, len(text) - 1) + 1]  # without what was half written
        else:
            return [event for event in read if isinstance(event, dict) and "ph" in event]
    return []


def _collectives(events: list[dict[str, Any]]) -> Iterator[_Collective]:
    """Yield the operations in the order in which their negotiations began."""
    names: dict[int, str] = {}
    open_: dict[int, list[str]] = defaultdict(list)  # what has begun, by tensor
    latest: dict[int, _Collective] = {}
    numbers: dict[tuple[int, str], int] = defaultdict(int)
    for event in events:
        kind, name, tensor = event["ph"], str(event.get("name", "")), event.get("pid")
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if not isinstance(tensor, int):
            continue
        if kind == "M" and name == "process_name" and "name" in args:
            names[tensor] = str(args["name"])
            continue
        at, stack = event.get("ts"), open_[tensor]
        if not isinstance(at, int):
            continue
        one = latest.get(tensor)
        if kind == "B":
            if not stack and name.startswith(_NEGOTIATES):
                op = name.removeprefix(_NEGOTIATES).lower()
                numbers[tensor, op] += 1
                one = _Collective(op, names.get(tensor, ""), numbers[tensor, op], at)
                latest[tensor] = one
                yield one
            elif not stack and one is not None:
                one.ran_us = at
            stack.append(name)
        elif kind == "X" and one is not None and name.isdecimal():
            one.ready_us[int(name)] = at
        elif kind == "E" and stack:
            ended = stack.pop()
            if one is None or stack:
                continue
            if ended.startswith(_NEGOTIATES):
                one.negotiated = True
                continue
            one.ended_us = at
            if "shape" in args and "dtype" in args:
                one.shapes = (tuple(map(int, _NUMBER.findall(str(args["shape"])))),)
                one.dtypes = (str(args["dtype"]),)


def _open_at_the_end(one: _Collective, members: tuple[int, ...]) -> str:
    """Who is awaited; the file of a job that hangs is like that of one which still runs."""
    ready, absent = sorted(one.ready_us), sorted(set(members) - one.ready_us.keys())
    what = f"{one.op} of {one.tensor.removeprefix(f'{one.op}.')}"
    return (
        f"at the end of the file, {ranks_text(ready)} {agree(ready, 'was', 'were')} ready for "
        f"{what} and {ranks_text(absent)} {agree(absent, 'was', 'were')} not: if the job hangs, "
        f"it waits for {agree(absent, 'this rank', 'these ranks')}"
    )


def _report(rank: int, done: list[_Collective], members: tuple[int, ...]) -> RankReport:
    calls: list[Call] = []
    for one in done:
        ready = one.ready_us.get(rank)
        entered = one.begun_us if ready is None and rank == 0 else ready
        calls.append(
            Call(
                index=len(calls),
                op=one.op,
                group=one.tensor,
                members=members,
                sequence=one.number,
                shapes=one.shapes,
                dtypes=one.dtypes,
                entered_s=None if entered is None else entered / 1e6,
                left_s=one.ended_us / 1e6 if one.ended_us is not None and rank == 0 else None,
            )
        )
    return RankReport(rank=rank, state="recorded", calls=tuple(calls))


def _of_rank_0(found: list[_Collective], begun_us: int, ended_us: int) -> RankTimeline:
    """What rank 0 ran; tensors that Horovod fused run together and are one span."""
    spans: dict[tuple[int, int], str] = {}
    for one in found:
        if one.ran_us is not None and one.ended_us is not None:
            spans.setdefault((one.ran_us, one.ended_us), f"gloo:{one.op}")
    names = tuple(dict.fromkeys(spans.values()))
    ordered = sorted(spans.items())
    return RankTimeline(
        rank=0,
        started_s=begun_us / 1e6,
        ended_s=ended_us / 1e6,
        names=names,
        name=tuple(names.index(name) for _, name in ordered),
        start_us=tuple(start - begun_us for (start, _), _ in ordered),
        duration_us=tuple(end - start for (start, end), _ in ordered),
    )
