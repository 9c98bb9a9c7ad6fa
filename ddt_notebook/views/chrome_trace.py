"""Traces in the Chrome format, for Perfetto and for Holistic Trace Analysis."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..model import RankReport, Snapshot
from ..model.meetings import Meeting
from ..model.shares import open_waits

Event = dict[str, Any]
#: Threads of a rank in the trace.
_MAIN, _COLLECTIVES, _STEPS = 1, 2, 3


def chrome_trace(snapshot: Snapshot, met: list[Meeting], path: str | Path) -> Path:
    """Write one trace of all ranks."""
    target = Path(path)
    events = [e for report in snapshot.ranks for e in _events(snapshot, met, report)]
    target.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return target


def hta_folder(snapshot: Snapshot, met: list[Meeting], folder: str | Path) -> Path:
    """Write one trace for each rank."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for report in snapshot.ranks:
        about = {"rank": report.rank, "world_size": snapshot.world_size}
        trace = {
            "schemaVersion": 1,
            "distributedInfo": about | {"backend": snapshot.backend},
            "traceEvents": _events(snapshot, met, report),
        }
        path = target / f"rank_{report.rank}.json"
        path.write_text(json.dumps(trace), encoding="utf-8")
    return target


def _events(snapshot: Snapshot, met: list[Meeting], report: RankReport) -> list[Event]:
    rank, open_wait = report.rank, open_waits(snapshot).get(report.rank)
    events: list[Event] = [
        _name(
            "process_name", rank, 0, f"rank {rank}" + (f" · {report.host}" if report.host else "")
        ),
        _name("thread_name", rank, _MAIN, "main thread"),
        _name("thread_name", rank, _COLLECTIVES, "collectives"),
        _name("thread_name", rank, _STEPS, "steps"),
    ]
    start = _start(snapshot, met)
    for timeline in snapshot.timeline:
        if timeline.rank != rank:
            continue
        for span in timeline.spans():
            if span.kind != "collective":  # collectives are added below, with their details
                times = (span.start_s - start, span.end_s - start)
                events.append(_span(span.name, span.kind, rank, _MAIN, times, {}))
        # the profiler's name for a step, which the tools search for
        for number, (begin, end) in enumerate(pairwise((timeline.started_s, *timeline.steps_s))):
            step = (begin - start, end - start)
            events.append(_span(f"ProfilerStep#{number}", "user", rank, _STEPS, step, {}))
    for meeting in met:
        arrived, ended = meeting.arrivals_s.get(rank), meeting.ends_s.get(rank)
        waited = meeting.wait_s(rank) or 0.0
        if arrived is None:
            continue
        call = meeting.calls[rank]
        if ended is None and open_wait is not None and call.index == report.blocked_in:
            ended = open_wait[1]
            waited = ended - arrived
        if ended is None:
            continue
        about = {
            "sequence": meeting.sequence,
            "group": meeting.group,
            "bytes": meeting.bytes,
            "tensors": call.tensor_label,
            "label": meeting.label,
            "line": call.where.label if call.where is not None else "",
            "last_rank": meeting.straggler,
            "waited_us": round(1e6 * waited),
        }
        times = (arrived - start, ended - start)
        name = f"gloo:{call.op}" if snapshot.backend == "gloo" else call.op
        events.append(_span(name, "collective", rank, _COLLECTIVES, times, about))
    return events


def _start(snapshot: Snapshot, met: list[Meeting]) -> float:
    starts = [timeline.started_s for timeline in snapshot.timeline]
    starts += [at for meeting in met for at in meeting.arrivals_s.values()]
    return min(starts, default=0.0)


def _name(what: str, rank: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "ts": 0, "args": {"name": name}}


def _span(
    name: str,
    kind: str,
    rank: int,
    thread: int,
    times: tuple[float, float],
    about: dict[str, Any],
) -> Event:
    start, end = times
    return {
        "ph": "X",
        "cat": "user_annotation" if kind in ("collective", "user") else "cpu_op",
        "name": name,
        "pid": rank,
        "tid": thread,
        "ts": round(1e6 * start, 3),
        "dur": round(1e6 * max(0.0, end - start), 3),
        "args": about,
    }
