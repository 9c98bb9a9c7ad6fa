"""Rules about failed runs without a recorded cause: they report what was seen."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import is_timeout
from ddt_notebook.model import Finding
from ddt_notebook.model.waits import gives_up

from .connecting import unconnected
from .exception import of_error
from .facts import awaited_files, blocked_in, did_instead, nobody_makes_them, of_call

#: In an interrupted run, a call that all members have entered is reported if it has lasted this
#: long, in seconds. On gloo, three ranks on two busy cores reduce 1 GB in 2 s.
_STALLED_S = 10.0


def lost_connection(context: Context) -> Iterator[Finding]:
    """Report broken connections or timeouts if the records show no cause of them."""
    if context.snapshot.outcome == "interrupted":
        return
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
    apart = unconnected(context) if setup else None
    cause = "rank-missing-at-setup" if setup else "connection-lost"
    yield conclude(
        symptom,
        "connection-lost",
        cause=cause if apart is None else apart.cause,
        ranks=errors,
        values=of_error(error),
        places=context.places(errors),
        facts=[
            *blocked_in(context, sorted(errors)),
            *did_instead(context, (rank for rank in context.reports if rank not in errors)),
        ],
        confidence="likely" if apart is None else apart.confidence,
        op=call.op if call else "the collective",
    )


def stalled_transfer(context: Context) -> Iterator[Finding]:
    """Report a call that does not end although no member is known to be missing."""
    ranks = sorted(context.halted)
    blocked_s = context.blocked_for(ranks)
    stopped_late = context.snapshot.outcome == "interrupted" and (blocked_s or 0.0) >= _STALLED_S
    ends = any(gives_up(context.reports[rank], call) for rank, call in context.halted.items())
    if not ranks or not (context.snapshot.outcome == "hung" or (stopped_late and not ends)):
        return
    call = context.halted[ranks[0]]
    kind = "transfer-stalled"
    cause: str | None = "transfer-stalled"
    if call.kind == "setup":
        cause = "rank-missing-at-setup"
    elif call.kind == "collective" and not call.members:  # of a library, in a group it made itself
        kind, cause = "members-unknown", None
    yield conclude(
        "B.2" if call.kind == "setup" else "D.2.1",
        kind,
        cause=cause,
        ranks=ranks,
        values=of_call(context, call) | ({} if blocked_s is None else {"blocked_s": blocked_s}),
        places=context.places(ranks),
        facts=[
            *blocked_in(context, ranks),
            *did_instead(context, (rank for rank in context.reports if rank not in ranks)),
        ],
        confidence="likely",
        op=call.op,
    )


def time_limit(context: Context) -> Iterator[Finding]:
    """Report a run that was ended while ranks ran code and no rank is known to wait for them."""
    snapshot = context.snapshot
    if snapshot.outcome != "hung" or snapshot.origin == "dumps":  # no limit is known to have passed
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
    awaited = awaited_files(context, ranks)
    if over and nobody_makes_them(context, awaited):
        cause = "file-never-appears"
    yield conclude(
        "D.2.1",
        "time-limit" if over else "made-no-progress",
        cause=cause,
        ranks=ranks,
        values={"passed_s": passed},
        places=context.places(ranks),
        facts=[*did_instead(context, ranks), *awaited],
        confidence="certain" if cause else "likely",
    )


#: These rules run in this order, only if no other rule has a finding.
RULES = (lost_connection, stalled_transfer, time_limit)
