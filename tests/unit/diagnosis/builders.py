"""Small builders of snapshots: a rank is a list of calls and the state in which it ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from ddt_notebook.model import (
    Call,
    Cell,
    Fact,
    Finding,
    Position,
    RankError,
    RankReport,
    Report,
    Snapshot,
)

CELL = 3
GLOO_PEER = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
    "Connection closed by peer [127.0.0.1]:4711"
)
GLOO_TIMEOUT = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] "
    "Timed out waiting 6000ms for recv operation to complete"
)


def at(line: int, cell: int = CELL, function: str = "<module>") -> Position:
    return Position(file=f"cell[{cell}]", line=line, function=function)


def call(op: str, line: int | None = 2, **fields: Any) -> Call:
    """A collective, by default of 4 × float32; ``kind`` and numbers follow from the rank."""
    kind = "collective"
    if op in ("send", "recv", "isend", "irecv"):
        kind = "p2p"
    elif op in ("init_process_group", "new_group"):
        kind = "setup"
    if kind != "setup" and not op.endswith("barrier"):
        fields = {"shapes": ((4,),), "dtypes": ("float32",), **fields}
    if op == "all_reduce":
        fields = {"reduce_op": "SUM", **fields}
    where = at(line) if line is not None else None
    return Call(**{"index": 0, "op": op, "kind": kind, "where": where, **fields})


def all_reduce(line: int | None = 2, **fields: Any) -> Call:
    return call("all_reduce", line, **fields)


def rank(number: int, *calls: Call, blocked: bool = False, **fields: Any) -> RankReport:
    """One rank; with ``blocked`` it stands in its last call."""
    counts: Counter[tuple[object, ...]] = Counter()
    numbered = []
    for index, one in enumerate(calls):
        key: tuple[object, ...] = (one.kind, one.group)
        if one.kind == "p2p":
            key += (one.op[-4:], one.peer, one.tag)
        if one.kind == "setup":
            key += (one.op,)
        counts[key] += 1
        outside = one.sequence == -1  # marks a call on a group that the rank is not in
        sequence = None if outside else one.sequence or counts[key]
        numbered.append(replace(one, index=index, sequence=sequence))
    if blocked:
        numbered[-1] = replace(numbered[-1], status="pending")
        fields = {
            "state": "blocked",
            "blocked_in": len(calls) - 1,
            "blocked_s": 2.1,
            "position": calls[-1].where,
            **fields,
        }
    return RankReport(rank=number, calls=tuple(numbered), **fields)


def raised(number: int, *calls: Call, error: RankError, **fields: Any) -> RankReport:
    return rank(number, *calls, state="raised", error=error, **fields)


def peer_error(index: int | None, message: str = GLOO_PEER, **fields: Any) -> RankError:
    return RankError(type="RuntimeError", message=message, call=index, **fields)


def snapshot(*ranks: RankReport, source: str = "", outcome: str = "ok", **fields: Any) -> Snapshot:
    members = tuple(report.rank for report in ranks)

    def with_members(one: Call) -> Call:
        known = one.members or fields.get("groups", {}).get(one.group, members)
        return replace(one, members=() if one.sequence is None else known)

    reports = tuple(
        replace(report, calls=tuple(map(with_members, report.calls))) for report in ranks
    )
    return Snapshot(
        **{
            "cell": Cell(number=CELL, source=source),
            "ranks": reports,
            "world_size": len(ranks),
            "outcome": outcome,
            **fields,
        }
    )


def facts(finding: Finding) -> dict[str, Fact]:
    """The facts of a finding by kind; of several of one kind, the first."""
    return {fact.kind: fact for fact in reversed(finding.facts)}


def fact(finding: Finding, kind: str) -> Fact:
    """The one fact of a kind."""
    found = [fact for fact in finding.facts if fact.kind == kind]
    assert len(found) == 1, [fact.kind for fact in finding.facts]
    return found[0]


def sides(finding: Finding, name: str) -> list[tuple[tuple[int, ...], Any]]:
    """The sides of a mismatch: ranks, and one of the values of their call."""
    return [(f.ranks, f.values.get(name)) for f in finding.facts if f.kind == "entered"]


def only(report: Report) -> Finding:
    """The one finding of a report."""
    assert len(report.findings) == 1, [finding.title for finding in report.findings]
    assert not report.ok
    return report.findings[0]
