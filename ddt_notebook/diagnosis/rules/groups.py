"""Rules about process groups: calls by ranks outside a group, and ``new_group`` on some ranks only.

A rank that skips a ``new_group`` may block others in a later one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Place, Position
from ddt_notebook.model.finding import Values

from .facts import blocked_in, of_call, of_wait, reasons

#: Line and ranks of a new group; the ranks are empty if they were not recorded.
_Made = tuple[str, int, tuple[int, ...]]


def skipped_new_groups(context: Context) -> Iterator[Finding]:
    """Report skipped ``new_group`` calls: the names of groups count them and no longer match."""
    if not hung_by_skip(context) or context.given_apart:
        return
    ranks, callers = _skipped(context)
    call = callers[min(callers)]
    came_to = {rank: _came_to(context, rank) for rank in ranks}
    waiting = [rank for rank in sorted(context.halted) if rank not in ranks]
    blocked_s = context.blocked_for(context.halted)
    found = [
        reason
        for rank in ranks
        if (
            reason := context.why_absent(
                call, context.reports[min(callers)], context.reports[rank], came_to[rank]
            )
        )
    ]
    called = of_call(context, call)
    yield conclude(
        "B.2",
        "new-group-skipped",
        cause="new-group-on-some-ranks",
        ranks=ranks,
        waiting=waiting,
        values=called
        | {"callers": tuple(callers)}
        | ({} if blocked_s is None else {"blocked_s": blocked_s}),
        places=context.places([*ranks, *waiting]),
        facts=[
            Fact(
                kind="called",
                place=context.place(call.where, "called"),
                ranks=tuple(callers),
                values=called,
            ),
            *_members(callers),
            *(
                Fact(kind="came-without-it", place=context.place(where, "passed"), ranks=(rank,))
                for rank, where in came_to.items()
                if where is not None
            ),
            *reasons(found)[:1],
            *blocked_in(context, sorted(context.halted)),
        ],
        op=call.op,
    )


def hung_by_skip(context: Context) -> bool:
    """Whether all blocked ranks wait for a group about which the ranks disagree."""
    if context.snapshot.outcome != "hung" or not context.halted:
        return False
    forming = any(call.op == "new_group" for call in context.halted.values())
    return forming and bool(_skipped(context)[0])


def _skipped(context: Context) -> tuple[list[int], dict[int, Call]]:
    """Return the ranks that left out a ``new_group``, and the other ranks' calls of it."""
    made = {rank: _new_groups(context, rank) for rank in context.reports}
    own_groups = all(c.op == "new_group" or c.group != "0" for c in context.halted.values())
    keys = {rank: [_made(call) for call in calls] for rank, calls in made.items()}
    own_groups = own_groups or _met_at_lower_number(context, keys)
    for index in range(max(map(len, made.values()), default=0) if own_groups else 0):
        here = {rank: calls[index] for rank, calls in made.items() if index < len(calls)}
        for rank in here:
            key = keys[rank][index]
            ahead = [
                other
                for other in here
                if keys[other][index] != key
                and key in keys[other][index + 1 :]
                and key not in keys[other][:index]
            ]
            if ahead:
                skipped = keys[ahead[0]][index]
                callers = {r: call for r, call in here.items() if keys[r][index] == skipped}
                absent = [r for r in here if r not in callers and skipped not in keys[r]]
                return absent or [r for r in here if keys[r][index] == key], callers
    return _absent_members(context, keys)


def _met_at_lower_number(context: Context, keys: dict[int, list[_Made]]) -> bool:
    """Whether a rank waits in a ``new_group`` that others made as an earlier one, and left."""
    return any(
        _made(call) in theirs and theirs.index(_made(call)) < keys[rank].index(_made(call))
        for rank, call in context.halted.items()
        if call.op == "new_group" and _made(call) in keys[rank]
        for theirs in keys.values()
    )


def _absent_members(
    context: Context, keys: dict[int, list[_Made]]
) -> tuple[list[int], dict[int, Call]]:
    """Return the members of a new group that are blocked elsewhere and that passed its call by."""
    for rank, call in context.halted.items():
        if call.op != "new_group" or call.where is None or not call.members:
            continue
        absent = [
            member
            for member in call.new_members
            if (theirs := context.halted.get(member)) is not None
            and theirs.op != "new_group"
            and _made(call) not in keys[member]
            and context.why_absent(
                call, context.reports[rank], context.reports[member], theirs.where
            )
        ]
        if absent:
            alike = {r: c for r, c in context.halted.items() if c.op == call.op}
            return absent, {r: c for r, c in alike.items() if _made(c) == _made(call)}
    return [], {}


def _came_to(context: Context, rank: int) -> Position | None:
    """Return where a rank was that had left out a ``new_group``."""
    later = _new_groups(context, rank)
    halted = context.halted.get(rank)
    return later[0].where if later else halted.where if halted is not None else None


def _members(callers: dict[int, Call]) -> list[Fact]:
    """Return a fact about the ranks of the group that some ranks did not form."""
    call = callers[min(callers)]
    if not call.new_members:
        return []
    values: Values = {"group": str(call.sequence), "members": call.new_members}
    return [Fact(kind="group-has-members", ranks=tuple(callers), values=values)]


def _new_groups(context: Context, rank: int) -> list[Call]:
    return [
        call
        for call in context.reports[rank].calls
        if call.op == "new_group" and call.members and call.where is not None
    ]


def _made(call: Call) -> _Made:
    assert call.where is not None
    return call.where.file, call.where.line, call.new_members


def blocking_outsiders(context: Context) -> Iterator[Finding]:
    """Report calls by non-members of a group for which members of other groups wait."""
    return (finding for finding in _outsiders(context) if finding.waiting)


def outsiders(context: Context) -> Iterator[Finding]:
    """Report calls by non-members of a group, which have no effect."""
    return (finding for finding in _outsiders(context) if not finding.waiting)


def _outsiders(context: Context) -> Iterator[Finding]:
    together: dict[tuple[str, Place | None], dict[int, list[Call]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for single in context.matching.outsiders:
        key = (single.call.op, context.place(single.call.where, "called"))
        together[key][single.rank].append(single.call)
    for (op, place), calls in together.items():
        first = next(iter(calls.values()))[0]
        values: Values = {"op": op, "group": first.group}
        members = first.members or context.snapshot.groups.get(first.group, ())
        times = max(map(len, calls.values()))
        missed = [
            rank
            for rank in calls
            if any(rank in w.missing and w.call.op == op for w in context.waits.values())
        ]
        waiting = [rank for rank in context.victims(missed) if rank not in calls]
        yield conclude(
            "D.2.1" if waiting else "D.2.4",
            "caller-not-in-group",
            cause="caller-not-in-group",
            ranks=calls,
            waiting=waiting,
            values=values | of_wait(context, waiting),
            places=context.places(waiting) | dict.fromkeys(sorted(calls), place),
            facts=[
                Fact(
                    kind="called-as-outsider",
                    place=place,
                    ranks=tuple(sorted(calls)),
                    values=values | {"members": tuple(members)},
                ),
                *([Fact(kind="repeated", values={"times": times})] if times > 1 else []),
                *blocked_in(context, waiting),
            ],
            op=op,
        )


def partial_new_groups(context: Context) -> Iterator[Finding]:
    """Report, as a hint, ``new_group`` calls that not every rank of the default group made."""
    if context.snapshot.outcome != "ok":
        return
    made: dict[int | None, dict[int, Call]] = defaultdict(dict)
    for rank, report in context.reports.items():
        for call in report.calls:
            # without members: only its own ranks formed it (use_local_synchronization)
            if call.op == "new_group" and call.members and call.status == "done":
                made[call.sequence][rank] = call
    for callers in made.values():
        first = next(iter(callers.values()))
        absent = [rank for rank in first.members if rank in context.reports.keys() - callers.keys()]
        if absent:
            yield conclude(
                "B.1",
                "new-group-on-some-ranks",
                cause="new-group-on-some-ranks",
                ranks=absent,
                values=of_call(context, first) | {"callers": tuple(callers)},
                places={rank: context.place(c.where, "called") for rank, c in callers.items()},
                confidence="possible",
                op=first.op,
            )
            return


RULES = (blocking_outsiders, skipped_new_groups, outsiders)
HINTS = (partial_new_groups,)
