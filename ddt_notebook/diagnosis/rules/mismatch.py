"""Rules about ranks whose calls of one collective or one message do not fit."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import is_peer_error
from ddt_notebook.diagnosis.left_turns import LEFT_OUT, left_out
from ddt_notebook.diagnosis.matched_calls import Mismatch, Side
from ddt_notebook.diagnosis.matched_messages import MessageMismatch, message_bytes
from ddt_notebook.diagnosis.parting_reasons import ASKS_LIBRARY, IN_CALLBACK, REPORTED
from ddt_notebook.diagnosis.silent_partings import have_own_lines
from ddt_notebook.diagnosis.stopped_loops import stopped_alone
from ddt_notebook.diagnosis.wording import to_change
from ddt_notebook.model import Call, Fact, Finding, Position, RankReport
from ddt_notebook.model.finding import Values
from ddt_notebook.model.frameworks import is_barrier
from ddt_notebook.program.branch_arms import decision_at, function_at, in_other_order
from ddt_notebook.program.escape_paths import LEAVES_LOOP, Reason
from ddt_notebook.program.nodes import covers, end

from .crash import deaths
from .exception import of_error
from .facts import blocked_in, gone_on, of_call, reasons

#: Field that differs -> id of the cause; the first field that differs determines the cause.
_FIELDS = {
    "root": "root-differs",
    "reduce_op": "reduce-op-differs",
    "dtype": "dtype-differs",
    "shape": "shape-differs",
}
#: Causes that a condition on the rank shows; then no other comparison is needed.
_BY_RANK = frozenset({"collective-under-rank-condition", "early-exit-on-rank-condition"})


def mismatches(context: Context) -> Iterator[Finding]:
    """Report collectives that their members entered with different calls."""
    if context.thread_clash is not None or context.given_apart:
        return
    for mismatch in context.matching.mismatches:
        if not (mismatch.out_of_step and context.handled.keys() & set(mismatch.minority)):
            yield _mismatch(context, mismatch)
    if context.parted_in_silence is not None:
        yield _mismatch(context, context.parted_in_silence)


def _mismatch(context: Context, mismatch: Mismatch) -> Finding:
    ranks = list(mismatch.minority)
    reason, passed, why = _reason(context, mismatch)
    by_rank = reason is not None and not reason.other_branch and reason.cause in _BY_RANK
    left = by_rank or (reason is not None and reason.priority == LEFT_OUT)
    waiting = [rank for rank in _stuck(context, mismatch) if rank not in ranks]
    entered = [
        Fact(
            kind="entered",
            place=context.place(mismatch.place(side.call), "called"),
            ranks=side.ranks,
            values=_of_side(context, side.call),
        )
        for side in mismatch.sides
    ]
    facts = [*why, *entered] if left else [*entered, *why]
    facts += _returned(context, mismatch)
    if mismatch.later:
        facts.append(Fact(kind="later-mismatches", values={"collectives": mismatch.later}))
    facts += _consequences(context, mismatch)
    facts += gone_on(context, _stuck(context, mismatch))
    facts += blocked_in(
        context, [r for r in waiting if r not in mismatch.ranks or _later(context, mismatch, r)]
    )
    symptom = _symptom(context, mismatch, reason)
    if symptom == "D.2.4":
        facts.append(Fact(kind="wrong-in-silence"))
    stuck = _stuck(context, mismatch)
    values: Values = {
        "sequence": mismatch.sequence,
        "fields": tuple(field for field in _FIELDS if field in mismatch.fields),
    }
    blocked_s = context.blocked_for(stuck)
    if stuck and blocked_s is not None:
        values |= {"blocked": tuple(stuck), "blocked_s": blocked_s}
    kind = "different-collectives" if mismatch.fields == ("op",) else "arguments-differ"
    if kind == "arguments-differ" and _takes_turns(context, mismatch):
        values["varied"] = True
    return conclude(
        symptom,
        "out-of-step" if (left and kind == "arguments-differ") or not mismatch.fields else kind,
        cause=_cause(context, mismatch, reason),
        ranks=ranks,
        waiting=waiting,
        values=values,
        places={
            rank: context.place(call.where, "waits" if rank in context.halted else "called")
            for rank, call in sorted(mismatch.calls.items())
        },
        facts=facts,
        op=to_change(passed),
        case="objects" if passed.dtypes == ("object",) else "",
    )


def _takes_turns(context: Context, mismatch: Mismatch) -> bool:
    """Whether the line of a mismatch sends one tensor after another, as a helper does.

    The ranks may be out of step there, although they are at one line. Batches of several sizes are
    no other tensors.
    """
    for rank, call in mismatch.calls.items():
        sent = {
            tuple(shape[1:] if len(shape) > 1 else shape for shape in one.shapes)
            for one in context.reports[rank].calls
            if one.where == call.where and one.index <= call.index and one.caller is None
        }
        if call.where is not None and len(sent) > 1:
            return True
    return False


def _of_side(context: Context, call: Call) -> Values:
    """Return the values of a call, with those on which the ranks of a collective must agree."""
    values = of_call(context, call)
    if call.reduce_op:
        values["reduce_op"] = call.reduce_op
    if call.root is not None:
        values["root"] = call.root
    return values


def _symptom(context: Context, mismatch: Mismatch, reason: Reason | None) -> str:
    if mismatch in context.consequences.values():
        return "D.1.1"
    if _stuck(context, mismatch):
        # If a rank left the common order, the calls are right, but one is in the wrong place.
        left = reason is not None and not reason.other_branch
        return "D.2.1" if left else "D.1.1"
    return "D.2.4"


def _cause(context: Context, mismatch: Mismatch, reason: Reason | None) -> str:
    if reason is not None and not reason.other_branch:
        return reason.cause
    if mismatch.fields == ("op",) or _reordered(context, mismatch):
        return "different-collectives"
    known = (cause for field, cause in _FIELDS.items() if field in mismatch.fields)
    return next(known, "different-collectives")


def _reordered(context: Context, mismatch: Mismatch) -> bool:
    """Whether both arms of a condition make the calls that met, in other orders.

    Then no argument is wrong, although those of the two calls differ.
    """
    if len(mismatch.sides) != 2:
        return False
    one, two = (side.call for side in mismatch.sides)
    here = context.ways.apart(one, two) or one.where
    there = context.ways.apart(two, one) or two.where
    return here is not None and there is not None and in_other_order(context.program, here, there)


def _reason(context: Context, mismatch: Mismatch) -> tuple[Reason | None, Call, list[Fact]]:
    """Return why the sides were at different lines, and the call that one side went past.

    Last comes the fact about the reason, with all ranks that the same line led past the call.
    """
    one, *others = mismatch.sides
    earlier = _parted_before(context, mismatch) if len(others) == 1 else None
    if earlier is not None:
        reason, call = earlier
        return reason, call, reasons([reason])
    found: list[tuple[Reason | None, Side]] = [(None, one)]
    for other in others:
        for here, there in ((one, other), (other, one)):
            found.append((_why_absent(context, mismatch, here, there.ranks[0]), here))
    best, side = min(found, key=_rank)
    tied = [one for one in found if _rank(one) == _rank((best, side))]
    best, side = _first_on_the_way(context, mismatch, tied) or (best, side)
    if best is None:
        met = {side.ranks[0]: side.call for side in mismatch.sides}
        turn = left_out(context.escape_paths, context.reports, met)
        return (*turn, reasons([turn[0]])) if turn is not None else (None, side.call, [])
    absent = [rank for rank in mismatch.ranks if rank not in side.ranks]
    known = [_why_absent(context, mismatch, side, rank) for rank in absent]
    alike = [reason for reason in known if reason and _shown(reason) == _shown(best)]
    return best, side.call, reasons(alike)


def _parted_before(context: Context, mismatch: Mismatch) -> tuple[Reason, Call] | None:
    """Return why the ranks parted before, if their last calls fitted and were made at other lines.

    A rank that skipped a barrier enters the next one, and both fit; the calls after it do not.
    """
    ranks = [side.ranks[0] for side in mismatch.sides]
    calls = [
        {
            one.sequence: one
            for one in context.reports[rank].calls
            if one.kind == "collective" and one.group == mismatch.group
        }
        for rank in ranks
    ]
    first = mismatch.sequence
    while (before := [made.get(first - 1) for made in calls]) and None not in before:
        mine, theirs = before
        if mine is None or theirs is None or mine.where is None or theirs.where is None:
            break
        if context.ways.meet(mine, theirs):
            break
        if have_own_lines(context, dict(zip(ranks, (mine, theirs), strict=True)), *ranks):
            break
        first -= 1
    if first == mismatch.sequence:
        return None
    for here, there in ((0, 1), (1, 0)):
        call, other = calls[here][first], calls[there][first]
        caller, absent = context.reports[ranks[here]], context.reports[ranks[there]]
        at = context.ways.apart(other, call) or other.where
        reason = context.why_absent(call, caller, absent, at)
        if reason is None or reason.other_branch:
            continue
        if reason.cause in _BY_RANK or reason.kind == "parted" or _is_behind(context, reason, at):
            return reason, call
    return None


def _is_behind(context: Context, reason: Reason, at: Position | None) -> bool:
    """Whether a condition ends a loop, and the call of the rank that left it lies outside."""
    if reason.kind not in LEAVES_LOOP or at is None:
        return False
    loop = next(iter(context.program.loops(reason.place)), None)
    return loop is not None and not (at.file == reason.place.file and covers(loop, at.line))


def _shown(reason: Reason) -> tuple[object, ...]:
    return reason.place, reason.kind, reason.values


def _why_absent(context: Context, mismatch: Mismatch, side: Side, rank: int) -> Reason | None:
    caller, absent = context.reports[side.ranks[0]], context.reports[rank]
    at = mismatch.place(mismatch.calls[rank])
    if mismatch.out_of_step:
        return context.why_absent(side.call, caller, absent, at)
    # Ranks may come to one line, such as that of a helper, from different collectives.
    seen = context.where_parted(side.call, caller, absent, at)
    if seen is not None:
        in_library = seen.priority in (IN_CALLBACK, ASKS_LIBRARY)
        others = mismatch.fields == ("op",) or _made_by_others(mismatch)
        led = seen.priority in (0, REPORTED) or (in_library and others)
        if led and seen.cause != "uneven-iterations":
            return seen
    stopped = stopped_alone(context.program, caller, absent)
    if stopped is not None:
        return stopped
    if seen is not None:
        return None
    reason = context.why_inferred(side.call, caller, absent, at)
    if reason is not None and reason.kind == "loaders-differ" and mismatch.fields == ("op",):
        return reason
    kept_out = (
        reason is not None
        and reason.cause == "collective-under-rank-condition"
        and not reason.other_branch
        and _is_condition_of_one_side(context, reason, side.ranks[0], rank)
        and mismatch.fields == ("shape",)
        and _fits_if_skipped(caller, absent, side.call, mismatch.calls[rank])
    )
    return reason if kept_out else None


def _made_by_others(mismatch: Mismatch) -> bool:
    """Whether the sides' calls come from different libraries, or DDP made one of them alone."""
    return len({(call.caller, call.called_from) for call in mismatch.calls.values()}) > 1


def _is_condition_of_one_side(context: Context, reason: Reason, caller: int, absent: int) -> bool:
    """Whether a condition holds on the rank that made the call, and perhaps not on the other."""
    decision = decision_at(context.program, reason.place)
    if decision is None or decision.test is None:
        return False
    truth = context.program.truth
    return truth(decision.test, caller) is True and truth(decision.test, absent) is not True


def _fits_if_skipped(caller: RankReport, absent: RankReport, call: Call, other: Call) -> bool:
    """Whether the calls of one line fit if ``absent`` skipped ``call``, as far as they are known.

    Calls of the line fitted before, so its shapes do not differ by rank as such, and the caller
    made the other rank's call next, unless it came no further.
    """
    mine, theirs = (
        [one for one in report.calls if one.where == call.where and one.group == call.group]
        for report in (caller, absent)
    )
    fitted = [one for one in mine if one.index < call.index]
    later = [one for one in mine if one.index > call.index]
    same = all(not one.differences(two) for one, two in zip(fitted, theirs, strict=False))
    return bool(fitted) and same and (not later or not later[0].differences(other))


def _first_on_the_way(
    context: Context, mismatch: Mismatch, tied: list[tuple[Reason | None, Side]]
) -> tuple[Reason, Side] | None:
    """Return the first of two conditions to which the ranks came after their last common call.

    The rank that is in the first one has not come to the other one yet, so it skipped nothing.
    """
    supposed = [one for one, _ in tied if one is not None and one.kind == "decided-by-each-rank"]
    places = [one.place for one in supposed]
    if len(places) != 2 or len(mismatch.sides) != 2 or places[0].file != places[1].file:
        return None
    nodes = [context.program.statement_at(place) for place in places]
    blocks = [context.program.blocks(node)[:1] for node in nodes]
    if not all(blocks) or blocks[0][0].statements is not blocks[1][0].statements:
        return None
    ranks = [side.ranks[0] for side in mismatch.sides]
    call = mismatch.calls[ranks[0]]
    before = [c for c in context.reports[ranks[0]].calls if c.index < call.index]
    met = next((c for c in reversed(before) if context.counterpart(c, ranks[1])), None)
    within = function_at(context.program, places[0])
    came = [
        one.line
        for one in ((met.where, *met.callers) if met is not None else ())
        if one is not None and function_at(context.program, one) is within
    ]
    start = came[0] if came else 0
    if any(node is not None and node.lineno <= start <= end(node) for node in nodes):
        return None  # it may have been the same one
    line = min(places, key=lambda place: (place.line < start, place.line)).line
    return next((r, side) for r, side in tied if r is not None and r.place.line == line)


def _rank(found: tuple[Reason | None, Side]) -> tuple[bool, bool, int]:
    reason, _ = found
    if reason is None:
        return True, True, 0
    return False, not reason.other_branch, reason.priority


def _stuck(context: Context, mismatch: Mismatch) -> list[int]:
    """Return the ranks that the mismatch blocks, or that left it through a peer error."""
    inside = {
        rank
        for rank, call in context.halted.items()
        if call.kind == "collective"
        and call.group == mismatch.group
        and call.sequence is not None
        and (
            call.sequence == mismatch.sequence
            or (call.sequence > mismatch.sequence and mismatch.out_of_step)
        )
    }
    doomed = {rank for rank, cause in context.consequences.items() if cause == mismatch}
    return sorted(inside | set(context.victims(inside | doomed)) - doomed)


def _returned(context: Context, mismatch: Mismatch) -> list[Fact]:
    """Return a fact about ranks that left the mismatch and now wait elsewhere."""
    ranks = [
        rank
        for rank, call in mismatch.calls.items()
        if call.status == "done"
        and call.root is None
        and not is_barrier(call.op)
        and context.reports[rank].state == "blocked"
        and context.halted.get(rank, call).index > call.index
    ]
    if not ranks:
        return []
    values = {"op": mismatch.calls[ranks[0]].op, "sequence": mismatch.sequence}
    return [Fact(kind="returned-wrong", ranks=tuple(sorted(ranks)), values=values)]


def _later(context: Context, mismatch: Mismatch, rank: int) -> bool:
    call = context.halted.get(rank)
    return call is not None and (call.group, call.sequence) != (mismatch.group, mismatch.sequence)


def _consequences(context: Context, mismatch: Mismatch | MessageMismatch) -> list[Fact]:
    ranks = [rank for rank, cause in context.consequences.items() if cause == mismatch]
    facts = deaths(context, ranks)
    thrown_out = []
    for rank in ranks:
        error = context.reports[rank].error
        if error is None or context.reports[rank].state != "raised":
            continue
        if is_peer_error(error):
            thrown_out.append(rank)
        else:
            at = context.place(error.where, "raised")
            facts.append(Fact(kind="raised", place=at, ranks=(rank,), values=of_error(error)))
    if thrown_out:
        facts.append(Fact(kind="lost-connection", ranks=tuple(sorted(thrown_out))))
    return facts


def _lost(context: Context, rank: int) -> bool:
    """Whether a rank died, or lost its connection to another rank."""
    report = context.reports[rank]
    return report.state == "died" or (report.error is not None and is_peer_error(report.error))


def message_mismatches(context: Context) -> Iterator[Finding]:
    """Report sends whose receive has another size or data type."""
    if context.given_apart:
        return
    seen: dict[tuple[object, ...], int] = {}
    for mismatch in context.matching.message_mismatches:
        key = (mismatch.ranks, mismatch.send.where, mismatch.receive.where, mismatch.fields)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 1:
            yield _message(context, mismatch)


def _message(context: Context, mismatch: MessageMismatch) -> Finding:
    send, receive = mismatch.send, mismatch.receive
    doomed = [rank for rank, cause in context.consequences.items() if cause == mismatch]
    stuck = [
        rank
        for rank, call in ((mismatch.sender, send), (mismatch.receiver, receive))
        if context.halted.get(rank) == call
    ]
    waiting = [rank for rank in context.victims(mismatch.ranks) if rank not in mismatch.ranks]
    facts = [
        Fact(
            kind="called",
            place=context.place(call.where, "called"),
            ranks=(rank,),
            values=of_call(context, call, issuer=False),
        )
        for rank, call in ((mismatch.sender, send), (mismatch.receiver, receive))
    ]
    facts += _consequences(context, mismatch) + blocked_in(context, waiting)
    # one of them may have failed in a later call, since the message spoiled the connection
    hurt = bool(doomed or stuck) or any(_lost(context, rank) for rank in mismatch.ranks)
    if not hurt:
        facts.append(Fact(kind="received-wrong-in-silence"))
    differs = "size" if "size" in mismatch.fields else "dtype"
    return conclude(
        "D.1.1" if hurt else "D.2.4",
        "message-differs",
        cause=f"message-{differs}-differs",
        ranks=mismatch.ranks,
        waiting=waiting,
        values={
            "sender": mismatch.sender,
            "receiver": mismatch.receiver,
            "sent_shapes": send.shapes,
            "sent_dtypes": send.dtypes,
            "sent_bytes": message_bytes(send),
            "room_shapes": receive.shapes,
            "room_dtypes": receive.dtypes,
            "room_bytes": message_bytes(receive),
        },
        places={
            mismatch.sender: context.place(send.where, "called"),
            mismatch.receiver: context.place(receive.where, "called"),
        },
        facts=facts,
        op=send.op,
    )


RULES = (mismatches, message_mismatches)
