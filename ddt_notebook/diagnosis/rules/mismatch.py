"""Ranks met in one collective, or one message, with calls that do not fit."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.cells.ways import Reason, told
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import is_peer_error
from ddt_notebook.diagnosis.match import Mismatch, Side
from ddt_notebook.diagnosis.messages import MessageMismatch, message_bytes
from ddt_notebook.diagnosis.words import agree, count, listing, ranks_text, seconds
from ddt_notebook.model import Call, Finding

from .crash import deaths
from .exception import headline
from .wording import owner, to_change, victims_evidence

#: Field -> (what differs, in words, id of the cause); the first that differs names the cause.
_FIELDS = {
    "root": ("roots", "root-differs"),
    "reduce_op": ("reduce operations", "reduce-op-differs"),
    "dtype": ("data types", "dtype-differs"),
    "shape": ("shapes", "shape-differs"),
}
#: Causes that a condition on the rank shows: nothing else need be compared.
_BY_RANK = frozenset({"collective-under-rank-condition", "early-exit-on-rank-condition"})


def mismatches(context: Context) -> Iterator[Finding]:
    """Collectives that their members entered with different calls."""
    for mismatch in context.matching.mismatches:
        if not (mismatch.out_of_step and context.handled.keys() & set(mismatch.minority)):
            yield _mismatch(context, mismatch)


def _mismatch(context: Context, mismatch: Mismatch) -> Finding:
    ranks = list(mismatch.minority)
    reason, passed, why = _reason(context, mismatch)
    by_rank = reason is not None and not reason.other_branch and reason.cause in _BY_RANK
    waiting = [rank for rank in _stuck(context, mismatch) if rank not in ranks]
    evidence = [
        f"{ranks_text(side.ranks)} entered {_full_label(side.call)} at "
        f"{context.label(side.call.where)}"
        for side in mismatch.sides
    ]
    evidence = [*why, *evidence] if by_rank else [*evidence, *why]
    evidence += _returned(context, mismatch)
    if mismatch.later:
        later = count(mismatch.later, "later collective")
        evidence.append(
            f"{later} of the group {'do' if mismatch.later > 1 else 'does'} not fit either"
        )
    evidence += _consequences(context, mismatch)
    evidence += victims_evidence(
        context, [r for r in waiting if r not in mismatch.ranks or _later(context, mismatch, r)]
    )
    symptom = _symptom(context, mismatch, reason)
    if symptom == "D.2.4":
        evidence.append("no rank raised: the results are wrong in silence")
    return conclude(
        symptom,
        _title(context, mismatch, by_rank),
        cause=_cause(mismatch, reason),
        ranks=ranks,
        waiting=waiting,
        where={r: context.label(call.where) for r, call in sorted(mismatch.calls.items())},
        evidence=evidence,
        op=to_change(passed),
    )


def _symptom(context: Context, mismatch: Mismatch, reason: Reason | None) -> str:
    if mismatch in context.consequences.values():
        return "D.1.1"
    if _stuck(context, mismatch):
        # A rank that left the common order: the calls are right, one of them does not belong here.
        left = reason is not None and not reason.other_branch
        return "D.2.1" if left else "D.1.1"
    return "D.2.4"


def _title(context: Context, mismatch: Mismatch, by_rank: bool) -> str:
    """What met; where a condition on the rank parted the lines, they go before what differs."""
    sides = mismatch.sides
    if mismatch.fields == ("op",):
        entered = [
            f"{ranks_text(side.ranks)} entered {side.call.label}{owner(side.call)}"
            for side in reversed(sides)
        ]
        title = f"different collectives meet: {listing(entered)}"
    elif by_rank:
        entered = [
            f"{ranks_text(side.ranks)} at {_line(side.call)} ({_value(side, mismatch)})"
            for side in reversed(sides)
        ]
        title = f"out of step in {sides[0].call.op} #{mismatch.sequence}: {listing(entered)}"
    else:
        what = listing(_FIELDS[field][0] for field in _FIELDS if field in mismatch.fields)
        values = "; ".join(
            f"{_value(side, mismatch)} on {ranks_text(side.ranks)}" for side in sides
        )
        whose = {owner(side.call) for side in sides}
        call = f"{sides[0].call.op} #{mismatch.sequence}{whose.pop() if len(whose) == 1 else ''}"
        title = f"{what} differ in {call}: {values}"
    stuck = _stuck(context, mismatch)
    since = context.blocked_for(stuck)
    if stuck and since is not None:
        title += f"; {ranks_text(stuck)} {agree(stuck, 'is', 'are')} blocked since {seconds(since)}"
    return title


def _line(call: Call) -> str:
    return call.where.place if call.where is not None else "an unknown line"


def _value(side: Side, mismatch: Mismatch) -> str:
    call = side.call
    values = {
        "root": f"rank {call.root}",
        "reduce_op": str(call.reduce_op),
        "dtype": ", ".join(dict.fromkeys(call.dtypes)),
        "shape": ", ".join("×".join(map(str, shape)) or "scalar" for shape in call.shapes),
    }
    chosen = [field for field in _FIELDS if field in mismatch.fields]
    if len(chosen) == 1:
        return values[chosen[0]]
    return ", ".join(f"{field.replace('_', ' ')} {values[field]}" for field in chosen)


def _full_label(call: Call) -> str:
    extra = [call.reduce_op] if call.reduce_op else []
    extra += [f"root rank {call.root}"] if call.root is not None else []
    return ", ".join([call.label, *extra])


def _cause(mismatch: Mismatch, reason: Reason | None) -> str:
    if reason is not None and not reason.other_branch:
        return reason.cause
    if mismatch.fields == ("op",):
        return "different-collectives"
    return next(cause for field, (_, cause) in _FIELDS.items() if field in mismatch.fields)


def _reason(context: Context, mismatch: Mismatch) -> tuple[Reason | None, Call, list[str]]:
    """Why the sides stood at different lines, as the source tells; also the call passed by.

    Last comes what to say of it, with all ranks that the same line took past the call.
    """
    one, *others = mismatch.sides
    found: list[tuple[Reason | None, Side]] = [(None, one)]
    for other in others if mismatch.out_of_step else ():
        for here, there in ((one, other), (other, one)):
            found.append((_why_absent(context, mismatch, here, there.ranks[0]), here))
    best, side = min(found, key=_rank)
    if best is None:
        return None, side.call, []
    absent = [rank for rank in mismatch.ranks if rank not in side.ranks]
    reasons = [_why_absent(context, mismatch, side, rank) for rank in absent]
    alike = [r for r in reasons if r and (r.place, r.says) == (best.place, best.says)]
    return best, side.call, told(alike)


def _why_absent(context: Context, mismatch: Mismatch, side: Side, rank: int) -> Reason | None:
    return context.sources.why_absent(
        side.call,
        context.reports[side.ranks[0]],
        context.reports[rank],
        mismatch.calls[rank].where,
    )


def _rank(found: tuple[Reason | None, Side]) -> tuple[bool, bool, int]:
    reason, _ = found
    if reason is None:
        return True, True, 0
    return False, not reason.other_branch, reason.priority


def _stuck(context: Context, mismatch: Mismatch) -> list[int]:
    """Ranks that the mismatch keeps blocked, or that a peer error threw out of it."""
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


def _returned(context: Context, mismatch: Mismatch) -> list[str]:
    """Ranks that came out of the mismatch and went on to wait elsewhere."""
    ranks = [
        rank
        for rank, call in mismatch.calls.items()
        if call.status == "done"
        and call.root is None
        and "barrier" not in call.op
        and context.reports[rank].state == "blocked"
        and context.halted.get(rank, call).index > call.index
    ]
    if not ranks:
        return []
    what = f"{mismatch.calls[ranks[0]].op} #{mismatch.sequence}"
    return [f"{what} returned on {ranks_text(ranks)}, but the result is not to be trusted"]


def _later(context: Context, mismatch: Mismatch, rank: int) -> bool:
    call = context.halted.get(rank)
    return call is not None and (call.group, call.sequence) != (mismatch.group, mismatch.sequence)


def _consequences(context: Context, mismatch: Mismatch | MessageMismatch) -> list[str]:
    ranks = [rank for rank, cause in context.consequences.items() if cause == mismatch]
    lines = deaths(context, ranks)
    thrown_out = []
    for rank in ranks:
        error = context.reports[rank].error
        if error is None or context.reports[rank].state != "raised":
            continue
        if is_peer_error(error):
            thrown_out.append(rank)
        else:
            lines.append(f"rank {rank} raised {headline(error)}")
    if thrown_out:
        lines.append(f"{ranks_text(thrown_out)} lost the connection to the others")
    return lines


def message_mismatches(context: Context) -> Iterator[Finding]:
    """Sends whose receive has another size or data type."""
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
    evidence = [
        f"rank {rank} called {call.label} at {context.label(call.where)}"
        for rank, call in ((mismatch.sender, send), (mismatch.receiver, receive))
    ]
    evidence += _consequences(context, mismatch) + victims_evidence(context, waiting)
    hurt = bool(doomed or stuck)
    if not hurt:
        evidence.append("no rank raised: what was received is wrong in silence")
    differs = "size" if "size" in mismatch.fields else "dtype"
    return conclude(
        "D.1.1" if hurt else "D.2.4",
        f"rank {mismatch.sender} sends {_content(send)}, but rank {mismatch.receiver} receives "
        f"{_content(receive)}",
        cause=f"message-{differs}-differs",
        ranks=mismatch.ranks,
        waiting=waiting,
        where={
            mismatch.sender: context.label(send.where),
            mismatch.receiver: context.label(receive.where),
        },
        evidence=evidence,
        op=send.op,
    )


def _content(call: Call) -> str:
    size = message_bytes(call)
    return call.tensor_label + (f" ({size:,} bytes)" if size is not None else "")
