"""Sentences that several rules need."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.words import agree, ranks_text, seconds
from ddt_notebook.model import Call, Position

#: What users call a library, where it is not its class.
_OWNERS = {"DistributedDataParallel": "DDP"}
_PLACE = re.compile(r"(cell\[\d+\]) line (\d+)")


def wait_clause(context: Context, waiting: Iterable[int]) -> str:
    """``; ranks 0, 2 wait for it since 2.1 s``, empty if nobody waits."""
    victims = list(waiting)
    if not victims:
        return ""
    since = context.blocked_for(victims)
    blocked = any(context.reports[rank].state == "blocked" for rank in victims)
    verb = agree(victims, "waits", "wait") if blocked else "waited"
    age = f" since {seconds(since)}" if since is not None and blocked else ""
    return f"; {ranks_text(victims)} {verb} for it{age}"


def by_call(context: Context, waiting: Iterable[int]) -> Iterator[tuple[list[int], Call]]:
    """Victims grouped by the call and the line in which they stand."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank in waiting:
        if rank in context.halted:
            call = context.halted[rank]
            groups[(_name(context, call), context.label(call.where))].append(rank)
    for ranks in groups.values():
        yield ranks, context.halted[ranks[0]]


def victims_evidence(context: Context, waiting: Iterable[int]) -> list[str]:
    """One line for each call in which victims stand."""
    lines = []
    for ranks, call in by_call(context, waiting):
        issuer = f", issued by {call.caller}" if call.caller else ""
        what, place = _name(context, call), context.label(call.where)
        if call.asynchronous:
            verb = agree(ranks, "waits", "wait")
            lines.append(f"{ranks_text(ranks)} {verb} for {what}, issued at {place}")
        else:
            verb = agree(ranks, "stands", "stand")
            lines.append(f"{ranks_text(ranks)} {verb} in {what}{issuer}, at {place}")
    return lines


def message(call: Call) -> str:
    """The label of a send or receive, with its tag."""
    return f"{call.label}, tag {call.tag}" if call.tag else call.label


def to_change(call: Call) -> str:
    """What the user has to change: the call, or the library's work that issues it."""
    if call.caller == "DistributedDataParallel":
        if call.op == "all_gather":  # it compares the models' parameters
            return "the constructor of the DDP model"
        return "forward and backward of the DDP model (to evaluate on one rank: its `.module`)"
    if call.caller == "FSDP":
        return "forward, backward and `full_tensor` of the sharded model"
    return call.op


def owner(call: Call) -> str:
    """`` of DDP`` after the name of a call that the user never wrote; else empty."""
    return f" of {_OWNERS.get(call.caller, call.caller)}" if call.caller else ""


def name(context: Context, call: Call) -> str:
    """The call's label; with its group where there are several, with the peer of a message.

    A library's own call is named as such: ``all_reduce #17 (10 × float32) of DDP``.
    """
    return _name(context, call, owner(call))


def _name(context: Context, call: Call, whose: str = "") -> str:
    text = call.label + whose
    if call.kind == "p2p":
        peer = "anyone" if call.peer is None else f"rank {call.peer}"
        text += f" {'to' if 'send' in call.op else 'from'} {peer}"
        if call.tag:
            text += f", tag {call.tag}"
    elif call.kind == "collective" and call.group and context.matching.groups > 1:
        text += f" on group {call.group}"
    return text


def last_lines(context: Context, ranks: Iterable[int], group: str | None = None) -> list[str]:
    """What ranks did instead: their state, and their last collective on a group.

    One line for all ranks of which the same is to be told.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for rank in ranks:
        alike[_instead(context, rank, [], group)].append(rank)
    return [
        f"{ranks_text(same)} {_instead(context, same[0], same, group)}"
        if same[0] in context.reports
        else f"nothing is known of {ranks_text(same)}"
        for same in alike.values()
    ]


def _instead(context: Context, rank: int, ranks: list[int], group: str | None) -> str:
    """What a rank did instead, as it is said of ``ranks``; empty if nothing is known of it."""
    if rank not in context.reports:
        return ""
    report = context.reports[rank]
    place = f" at {context.label(report.position)}" if report.position else ""
    status = f"exit code {report.exit_code}" if report.exit_signal is None else "a signal"
    be, was = agree(ranks, "is", "are"), agree(ranks, "was", "were")
    its, s = agree(ranks, "its", "their"), agree(ranks, "", "s")
    state = {
        "finished": "finished the cell",
        "raised": "raised an exception",
        "died": f"ended with {status}",
        "blocked": f"{be} blocked{place}",
        "running": f"{be} still running{place}",
        "stopped": f"{be} suspended by the operating system{place}",
        "silent": f"{agree(ranks, 'does', 'do')} not answer: C code holds {its} "
        f"interpreter{s}{place}",
        "idle": f"{was} not asked to run this cell",
        "recorded": f"had not entered it when {its} record{s} {was} written",
    }[report.state]
    calls = [c for c in report.calls if c.kind == "collective" and group in (None, c.group)]
    if not calls:
        return state
    last = calls[-1]
    called_at = f" at {context.label(last.where)}" if last.where else ""
    return f"{state}; {its} last collective was {last.label}{called_at}"


def line_at(context: Context, place: str) -> str:
    """``cell[3] line 5: for x in loader:`` for ``cell[3] line 5``."""
    match = _PLACE.fullmatch(place)
    return context.label(Position(file=match[1], line=int(match[2]))) if match else place
