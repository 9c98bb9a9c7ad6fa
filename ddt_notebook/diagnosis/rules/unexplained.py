"""A run that went wrong without a cause that the records show: say what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import is_timeout
from ddt_notebook.diagnosis.words import agree, ranks_text, seconds
from ddt_notebook.model import Finding

from .exception import headline
from .wording import last_lines, name, victims_evidence


def lost_connection(context: Context) -> Iterator[Finding]:
    """Only consequences are on record: broken connections or time-outs."""
    errors = {
        rank: report.error
        for rank, report in context.reports.items()
        if report.state == "raised" and report.error is not None and not report.error.released
    }
    if not errors:
        return
    first = min(errors, key=lambda rank: errors[rank].at_s or inf)
    error, call = errors[first], context.last_call(first)
    setup = call is not None and call.kind == "setup"
    stalled = is_timeout(error)
    symptom = ("B.2" if stalled else "B.1") if setup else ("D.2.1" if stalled else "D.1.1")
    yield conclude(
        symptom,
        f"{ranks_text(errors)} raised {headline(error)}; no rank is known to have failed before",
        cause="rank-missing-at-setup" if setup else "connection-lost",
        ranks=errors,
        where=context.places(errors),
        evidence=[
            *victims_evidence(context, sorted(errors)),
            *last_lines(context, (rank for rank in context.reports if rank not in errors)),
        ],
        confidence="likely",
        op=call.op if call else "the collective",
    )


def stalled_transfer(context: Context) -> Iterator[Finding]:
    """All members are inside a call that does not end."""
    if context.snapshot.outcome != "hung" or not context.halted:
        return
    ranks = sorted(context.halted)
    call = context.halted[ranks[0]]
    since = context.blocked_for(ranks)
    age = f" since {seconds(since)}" if since is not None else ""
    yield conclude(
        "B.2" if call.kind == "setup" else "D.2.1",
        f"{ranks_text(ranks)} {agree(ranks, 'is', 'are')} in {name(context, call)}{age}; "
        "every member has entered it, and it does not end",
        cause="rank-missing-at-setup" if call.kind == "setup" else "transfer-stalled",
        ranks=ranks,
        where=context.places(ranks),
        evidence=[
            *victims_evidence(context, ranks),
            *last_lines(context, (rank for rank in context.reports if rank not in ranks)),
        ],
        confidence="likely",
        op=call.op,
    )


def time_limit(context: Context) -> Iterator[Finding]:
    """The run was ended while ranks still ran code, and nobody is known to have waited for them."""
    snapshot = context.snapshot
    if snapshot.outcome != "hung":
        return
    ranks = [r for r, report in context.reports.items() if report.state not in ("finished", "idle")]
    if not ranks:
        return
    state = context.reports[ranks[0]].state
    passed = snapshot.duration_s or snapshot.timeout_s
    over = passed >= snapshot.timeout_s
    cause = {"stopped": "rank-suspended", "silent": "rank-silent"}.get(
        state, "rank-too-slow" if over else None
    )
    yield conclude(
        "D.2.1",
        f"{ranks_text(ranks)} had not ended when the time limit was over, after {seconds(passed)}"
        if over
        else f"{ranks_text(ranks)} did not go on, and the cell was ended after {seconds(passed)}",
        cause=cause,
        ranks=ranks,
        where=context.places(ranks),
        evidence=last_lines(context, ranks),
        confidence="certain" if cause else "likely",
    )


#: Tried in this order, only when no other rule found anything.
RULES = (lost_connection, stalled_transfer, time_limit)
