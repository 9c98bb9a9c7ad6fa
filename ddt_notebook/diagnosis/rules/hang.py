"""Rules about ranks that wait in a call that another rank never entered."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ddt_notebook import faults
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.silent_partings import have_own_lines
from ddt_notebook.diagnosis.wording import to_change
from ddt_notebook.model import Call, Fact, Finding
from ddt_notebook.model.finding import Confidence, Values
from ddt_notebook.model.frameworks import is_meeting, meets_by_tensor
from ddt_notebook.model.operations import RECEIVES, SENDS
from ddt_notebook.program.escape_paths import Reason
from ddt_notebook.program.iterations import have_fixed_rounds

from .facts import (
    awaited_files,
    awaited_threads,
    blocked_in,
    did_instead,
    functions_inside,
    gone_on,
    nobody_makes_them,
    of_call,
    of_wait,
    reasons,
)
from .groups import hung_by_skip

#: States in which a rank can no longer enter a call, and those in which it still could.
_SETTLED = frozenset({"finished", "idle", "stopped", "recorded", "unknown"})
_MOVING = frozenset({"running", "silent"})
#: In an interrupted run, a wait for a rank at work is reported if it has lasted this long, in
#: seconds. Shorter waits are ordinary, and from this time on a running cell shows them, too.
_LONG_WAIT_S = 2.0
#: A hang while data or model are prepared.
_PREPARATION = "C.4"
_CAUSES = {
    "idle": "cell-ran-on-some-ranks",
    "stopped": "rank-suspended",
    "silent": "rank-silent",
    "running": "rank-too-slow",
    "recorded": "rank-not-at-collective",
}


@dataclass
class _Absence:
    """Ranks that never entered, and the calls in which others wait for them."""

    ranks: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    calls: dict[int, Call] = field(default_factory=dict)


def missing_ranks(context: Context) -> Iterator[Finding]:
    """Report, for each call that cannot complete, the ranks that never entered it."""
    if hung_by_skip(context) or context.thread_clash is not None or context.given_apart:
        return
    for (_, state), absence in sorted(_absences(context).items(), key=lambda item: item[0]):
        if not _is_consequence(context, absence):
            yield _finding(context, absence, state)


def _absences(context: Context) -> dict[tuple[tuple[int, ...], str], _Absence]:
    """Return absences by culprits and their state, so that each culprit yields one finding."""
    by_call: dict[tuple[object, ...], dict[str, _Absence]] = defaultdict(dict)
    for waiter, wait in context.waits.items():
        if _interrupted_early(context, waiter):
            continue
        roots = {
            rank: context.reports[rank].state if rank in context.reports else "unknown"
            for rank in wait.missing - wait.mismatched
            if rank not in context.halted and not context.strayed(rank, wait.call)
        }
        settled = {r: state for r, state in roots.items() if state in _SETTLED}
        if wait.anyone and len(settled) < len(wait.missing):
            continue
        culprits = settled
        failed = any(
            state in ("raised", "died") or rank in context.exhausted
            for rank, state in roots.items()
        )
        # after a failure, it is unknown whether the other ranks would have entered in time
        if not settled and not failed and context.snapshot.outcome in ("hung", "interrupted"):
            culprits = {r: state for r, state in roots.items() if state in _MOVING}
        call = wait.call
        if is_meeting(call.op) and context.discord is not None:
            continue  # they called it, but their arguments disagree
        key: tuple[object, ...] = (call.kind, call.group, call.op, call.sequence)
        if call.kind == "p2p":
            key = (waiter, call.index)
        for culprit, state in culprits.items():
            absence = by_call[key].setdefault(state, _Absence())
            absence.ranks.add(culprit)
            absence.waiting.add(waiter)
            absence.calls[waiter] = call
    merged: dict[tuple[tuple[int, ...], str], _Absence] = {}
    for states in by_call.values():
        for state, absence in states.items():
            known = merged.setdefault((tuple(sorted(absence.ranks)), state), absence)
            known.waiting |= absence.waiting
            known.calls |= absence.calls
    return merged


def _interrupted_early(context: Context, waiter: int) -> bool:
    """Whether the user stopped the run while a rank had just begun a wait that could still end."""
    if context.snapshot.outcome != "interrupted" or waiter in context.endless:
        return False
    return (context.reports[waiter].blocked_s or 0.0) < _LONG_WAIT_S


def _is_consequence(context: Context, absence: _Absence) -> bool:
    """Whether the ranks are missing only because an earlier mismatch put them out of step."""
    silent = context.parted_in_silence
    mismatches = [*context.matching.mismatches, *([] if silent is None else [silent])]
    return all(
        any(
            mismatch.out_of_step
            and mismatch.group == call.group
            and call.kind == "collective"
            and call.sequence is not None
            and mismatch.sequence < call.sequence
            and absence.ranks <= set(mismatch.ranks)
            for mismatch in mismatches
        )
        for call in absence.calls.values()
    )


def _finding(context: Context, absence: _Absence, state: str) -> Finding:
    ranks, direct = sorted(absence.ranks), sorted(absence.waiting)
    waiting = context.victims(ranks)
    call = absence.calls[direct[0]]
    locks, awaited = _locks(context, ranks), awaited_files(context, ranks)
    threads, exits = awaited_threads(context, ranks), _exits(context, ranks)
    found: dict[int, Reason] = {}
    if threads:
        cause, explained = "thread-ended", threads
    elif locks:
        cause, explained = "file-lock-held-at-collective", locks
    elif nobody_makes_them(context, awaited):
        cause, explained = "file-never-appears", awaited
    elif exits:
        cause, explained = "process-exit", exits
    elif found := _reasons(context, ranks, direct[0], call, state):
        cause = min(found.values(), key=lambda reason: reason.priority).cause
        explained = reasons(found.values())
    else:
        cause, explained = _cause(context, ranks, direct[0], call, state)
        explained = [*explained, *awaited]
    if is_meeting(call.op) and state == "finished":
        cause = "rank-missing-at-setup"  # `explained` holds the reason
    facts = functions_inside(context, ranks) + blocked_in(context, direct)
    facts += gone_on(context, direct)
    if state != "idle":
        at_locks = {rank for lock in locks for rank in lock.ranks}
        others = [rank for rank in ranks if rank not in at_locks]
        facts += did_instead(context, others, _group(call)) if others else []
    facts += explained
    places = context.places([*ranks, *waiting])
    if state == "finished":  # at this place they went past the call
        places |= {rank: reason.place for rank, reason in found.items()}
    in_turn = [rank for rank in waiting if rank not in direct]
    if in_turn:
        values = {"for_rank": direct[0]} if len(direct) == 1 else {}
        facts.append(Fact(kind="waits-in-turn", ranks=tuple(in_turn), values=values))
        facts += blocked_in(context, in_turn)
    kind, values = _what_happened(context, ranks, waiting, call, state)
    return conclude(
        "B.2" if call.kind == "setup" else "D.2.1",
        kind,
        cause=cause,
        ranks=ranks,
        waiting=waiting,
        values=of_call(context, call) | of_wait(context, waiting) | values,
        places=dict(sorted(places.items())),
        facts=facts + _stage(context, cause),
        confidence=_confidence(context, state),
        op=to_change(call),
        case=_case(context, cause, call, found.values()),
    )


def _case(context: Context, cause: str | None, call: Call, found: Iterable[Reason]) -> str:
    """Return the case of the advice.

    DDP communicates where the user calls the model; and a condition on the place in one group may
    be right for a collective of another group.
    """
    if cause != "collective-under-rank-condition":
        return ""
    if call.caller == "DistributedDataParallel" and call.op != "all_gather":
        return "ddp-buffers" if call.op == "broadcast" else "ddp"
    statements = [context.program.statement_at(reason.place) for reason in found]
    tests = [one.test for one in statements if isinstance(one, (ast.If, ast.While))]
    in_group = map(context.program.conditions.reads_place_in_group, tests)
    return "in-group" if any(in_group) else ""


def _locks(context: Context, ranks: list[int]) -> list[Fact]:
    """Return the files' locks that keep ranks from the call, if a rank that waits holds them."""
    facts = []
    for rank in ranks:
        holder, report = context.lock_holders.get(rank), context.reports.get(rank)
        if holder in context.halted and report is not None and report.activity is not None:
            values = {"file": report.activity.file, "holder": holder}
            facts.append(Fact(kind="file-lock-held", ranks=(rank,), values=values))
    return facts


def _exits(context: Context, ranks: list[int]) -> list[Fact]:
    """Return where ranks ended their script by ``sys.exit``, unless that is its usual end."""
    exits = {rank: context.reports[rank].exited_at for rank in ranks if rank in context.reports}
    if len(exits) < len(ranks):
        return []
    lines = {at for at in exits.values() if at is not None and not context.program.is_last(at)}
    if len(lines) != 1 or None in exits.values():
        return []
    place = context.place(next(iter(lines)), "passed")
    return [Fact(kind="ended-itself", place=place, ranks=tuple(ranks))]


def _confidence(context: Context, state: str) -> Confidence:
    """Return ``"likely"`` if the awaited ranks could still have come when the user interrupted."""
    could_come = context.snapshot.outcome == "interrupted" and state in _MOVING
    return "likely" if could_come else "certain"


def _stage(context: Context, cause: str) -> list[Fact]:
    """Return a note that the study may use another stage: the calls alone do not show it."""
    if cause not in faults.card_ids() or _PREPARATION not in faults.card(cause).symptoms:
        return []
    snapshot = context.snapshot
    # Megatron-core calls the autograd engine itself
    trained = snapshot.trained_before or any(
        one.backwards or any(optimizer.steps for optimizer in one.optimizers)
        for one in snapshot.training
    )
    if trained or snapshot.origin == "dumps" or snapshot.framework:
        return []
    return [Fact(kind="before-training", values={"symptom": _PREPARATION})]


def _group(call: Call) -> str | None:
    return call.group if call.kind == "collective" else None


def _what_happened(
    context: Context, ranks: list[int], waiting: list[int], call: Call, state: str
) -> tuple[str, Values]:
    """Return the kind of the finding and the title's values besides the call and the wait."""
    if state == "idle":
        return "not-asked", {}
    if state == "stopped":
        return "suspended", {}
    if state == "unknown":
        if context.snapshot.origin == "dumps":
            return "no-dump", {}
        return ("no-record" if ranks[0] < context.snapshot.world_size else "no-such-rank"), {}
    if state in _MOVING and not any(context.reports[rank].waits_for_ever for rank in ranks):
        limit_s = context.blocked_for(waiting)
        if limit_s is None and context.snapshot.origin == "dumps":
            return "never-entered", {}  # for how long the others wait is not in dumps
        limit_s = limit_s or context.snapshot.timeout_s
        return ("silent" if state == "silent" else "late"), {"limit_s": limit_s}
    if call.kind == "p2p":
        other = next(rank for rank in waiting if context.halted.get(rank) == call)
        return ("never-received" if call.op in SENDS else "never-sent"), {"partner": other}
    return "never-entered", {}


def _cause(
    context: Context, ranks: list[int], waiter: int, call: Call, state: str
) -> tuple[str, list[Fact]]:
    """Return the cause, as far as the records show it, and the facts that show it."""
    if state in ("idle", "stopped", "silent"):
        return _CAUSES[state], []
    if state == "unknown" and context.snapshot.origin == "dumps":
        return "rank-without-dump", []
    if state == "unknown":  # without these ranks, the group would not have come so far
        met = call.kind == "collective" and (call.sequence or 0) > 1
        return "rank-not-recorded" if met else "rank-missing-at-setup", []
    if call.kind == "p2p":
        return _message_cause(context, ranks, waiter, call)
    for rank in ranks:
        elsewhere = _other_group(context, rank, call)
        if elsewhere is not None:
            groups = {"op": elsewhere.op, "group": elsewhere.group, "awaited_group": call.group}
            at = context.place(elsewhere.where, "called")
            return "different-groups", [
                Fact(kind="called-on-other-group", place=at, ranks=(rank,), values=groups)
            ]
    ahead = context.escape_paths.still_ahead
    if state == "running" and all(ahead(call, context.reports[rank]) for rank in ranks):
        return _CAUSES[state], []
    if call.caller is not None and any(_made_such(context, rank, call) for rank in ranks):
        gradients = call.op == "all_reduce" and call.caller == "DistributedDataParallel"
        frames = context.escape_paths.frames(call, context.reports[waiter])
        if gradients and (passes := _not_exchanged(context, [*ranks, waiter])):
            return "uneven-backward-passes", passes
        if gradients and have_fixed_rounds(context.program, frames):
            return "unused-parameter-in-last-step", [
                Fact(kind="last-backward-incomplete", ranks=tuple(ranks))
            ]
        every = {"issued_by": call.caller, "op": call.op}
        return "uneven-iterations", [Fact(kind="issued-every-iteration", values=every)]
    if state in ("running", "recorded"):
        return _CAUSES[state], []
    return ("rank-missing-at-setup" if call.kind == "setup" else "rank-skips-collective"), []


def _not_exchanged(context: Context, ranks: list[int]) -> list[Fact]:
    """Return how often each rank left out DDP's exchange, if that differs between the ranks."""
    left_out = {
        one.rank: (sum(model.unsynchronised for model in one.models), one)
        for one in context.snapshot.training
        if one.rank in ranks
    }
    if set(left_out) != set(ranks) or len({number for number, _ in left_out.values()}) == 1:
        return []
    return [
        Fact(
            kind="passes-not-exchanged",
            ranks=(rank,),
            place=context.place(
                next((m.no_sync_where for m in one.models if m.no_sync_where), None), "called"
            ),
            values={"passes": number, "backwards": one.backwards},
        )
        for rank, (number, one) in sorted(left_out.items())
    ]


def _reasons(
    context: Context, ranks: list[int], waiter: int, call: Call, state: str
) -> dict[int, Reason]:
    """Return why ``ranks`` never entered the call, as far as the source shows."""
    if call.kind == "p2p":
        return _left_messages(context, ranks, waiter, call) if state == "finished" else {}
    if state not in ("finished", "running"):
        return {}
    if any(_other_group(context, rank, call) for rank in ranks):
        return {}
    if state == "running":  # no condition keeps a rank away that is on its way to the call
        ahead = context.escape_paths.still_ahead
        ranks = [rank for rank in ranks if not ahead(call, context.reports[rank])]
    found = {rank: _why_absent(context, rank, waiter, call) for rank in ranks}
    return {rank: reason for rank, reason in found.items() if reason is not None}


def _left_messages(
    context: Context, ranks: list[int], waiter: int, call: Call
) -> dict[int, Reason]:
    """Return why ranks ended a loop whose one line, of a library's method, exchanges messages."""
    answers = RECEIVES if call.op in SENDS else SENDS
    found: dict[int, Reason] = {}
    for rank in ranks:
        absent = context.reports.get(rank)
        if absent is None or call.where is None or call.called_from is None:
            continue
        last = next((c for c in reversed(absent.calls) if c.op in answers), None)
        if last is not None and last.peer == waiter and last.where == call.where:
            reason = context.why_absent(call, context.reports[waiter], absent, None)
            if reason is not None and reason.cause != "uneven-iterations":
                found[rank] = reason
    return found


def _why_absent(context: Context, rank: int, waiter: int, call: Call) -> Reason | None:
    """Read the reason from the source at the line of the call or at the first differing lines."""
    caller, absent = context.reports[waiter], context.reports[rank]
    at = absent.position if absent.state == "running" else None
    reason = context.why_absent(call, caller, absent, at)
    if reason is not None:
        return reason
    for mine in caller.calls:
        if mine.kind != "collective" or mine.group != call.group or mine.where is None:
            continue
        theirs = context.counterpart(mine, rank)
        if theirs is None or theirs.where is None or context.ways.meet(theirs, mine):
            continue
        if have_own_lines(context, {waiter: mine, rank: theirs}, waiter, rank):
            continue
        at = context.ways.apart(theirs, mine) or theirs.where
        reason = context.why_absent(mine, caller, absent, at)
        # A correct program may issue one collective from two lines, one for each side.
        here = context.ways.apart(mine, theirs) or mine.where
        back = context.why_absent(theirs, absent, caller, here)
        if reason is None or reason.other_branch:
            continue
        if back is None or (back.kind == "parted" and reason.priority < back.priority):
            return reason
    return None


def _made_such(context: Context, rank: int, call: Call) -> bool:
    return any(
        c.caller == call.caller and c.group == call.group for c in context.reports[rank].calls
    )


def _other_group(context: Context, rank: int, call: Call) -> Call | None:
    """Return a call of the same operation from the same line on another group.

    Where ranks meet by the name of a tensor, a line may make calls of many names; one that a peer
    has called, too, is right.
    """
    return next(
        (
            c
            for c in context.reports[rank].calls
            if (c.kind, c.op) == (call.kind, call.op)
            and c.group != call.group
            and c.where is not None
            and c.where == call.where
            and not (meets_by_tensor(context.snapshot.framework) and _was_met(context, rank, c))
        ),
        None,
    )


def _was_met(context: Context, rank: int, call: Call) -> bool:
    """Whether another rank has entered a collective, too."""
    met = context.matching.meetings.get(call.group, {}).get(call.sequence or 0, {})
    return bool(met.keys() - {rank})


def _message_cause(
    context: Context, ranks: list[int], waiter: int, call: Call
) -> tuple[str, list[Fact]]:
    answers = RECEIVES if call.op in SENDS else SENDS
    for lone in context.matching.lone_messages:
        theirs = lone.call
        if lone.rank in ranks and theirs.op in answers and theirs.peer == waiter:
            tags = {"op": theirs.op, "tag": theirs.tag, "awaited_tag": call.tag}
            at = context.place(theirs.where, "called")
            return "message-tags-differ", [
                Fact(kind="called-with-other-tag", place=at, ranks=(lone.rank,), values=tags)
            ]
    return "message-without-partner", []


RULES = (missing_ranks,)
