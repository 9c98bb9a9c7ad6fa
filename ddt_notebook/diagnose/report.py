"""Runs the rules and puts their findings in order, the cause first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ddt_notebook.model import Finding, Report, Snapshot

from .context import Context
from .rules import crash, cycle, exception, hang, mismatch, silent, unexplained
from .words import count, ranks_text

Rule = Callable[[Context], Iterable[Finding]]

#: The order of verdicts. A rule leaves out what another rule's finding explains.
RULES: tuple[Rule, ...] = (
    crash.crashes,
    exception.exceptions,
    mismatch.mismatches,
    mismatch.message_mismatches,
    silent.blocking_outsiders,
    hang.missing_ranks,
    cycle.wait_cycles,
    silent.unnoticed_absences,
    silent.outsiders,
)
HINTS: tuple[Rule, ...] = (silent.swaps, silent.unanswered_handles, silent.partial_new_groups)


def diagnose(snapshot: Snapshot) -> Report:
    """What went wrong in a run, the cause first.

    Parameters
    ----------
    snapshot
        What was observed; nothing else is looked at.

    Returns
    -------
    Report
        Without findings and hints for a healthy run.
    """
    context = Context(snapshot)
    findings = [finding for rule in RULES for finding in rule(context)]
    if not findings and snapshot.outcome in ("failed", "hung"):
        found = (list(rule(context)) for rule in unexplained.RULES)
        findings = next((result for result in found if result), [])
    hints = [hint for rule in HINTS for hint in rule(context)]
    ok = snapshot.outcome == "ok" and not findings
    return Report(ok=ok, findings=findings, hints=hints, checked=_checked(context, ok))


def _checked(context: Context, ok: bool) -> str:
    """``4 ranks, 12 collectives on 1 group agree``."""
    matching, snapshot = context.matching, context.snapshot
    parts = [count(len(snapshot.ranks), "rank")]
    if matching.collectives:
        seen = count(matching.collectives, "collective")
        parts.append(f"{seen} on {count(matching.groups, 'group')}")
    else:
        parts.append("no collectives")
    if matching.messages:
        parts.append(count(matching.messages, "message"))
    text = ", ".join(parts)
    if ok and (matching.collectives or matching.messages):
        several = matching.collectives + matching.messages > 1
        text += " agree" if several else " agrees"
    dropped = max((report.calls_dropped for report in snapshot.ranks), default=0)
    if dropped:
        text += f"; {count(dropped, 'earlier call')} of a rank matched and were not kept"
    idle = [report.rank for report in snapshot.ranks if report.state == "idle"]
    if idle:
        text += f"; {ranks_text(idle)} did not run the cell"
    if not snapshot.flight_recorder:
        text += "; collectives that DDP issues itself were not visible (no Flight Recorder)"
    if snapshot.outcome == "interrupted":
        stood = context.places(context.reports)
        text += "; interrupted: " + "; ".join(f"rank {r} at {p}" for r, p in stood.items())
    return text
