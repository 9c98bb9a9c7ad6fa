"""Runs the rules and puts their findings in order, the cause first."""

from __future__ import annotations

from dataclasses import asdict, replace

from ddt_notebook.formatting import count, ranks_text
from ddt_notebook.model import Fact, Finding, Report, Snapshot
from ddt_notebook.model.numbering import in_session_numbers

from .context import Context
from .rules import HINTS, RULES, unexplained
from .wording import worded


def diagnose(snapshot: Snapshot) -> Report:
    """Return what went wrong in a run, the cause first.

    Parameters
    ----------
    snapshot
        What was observed; the diagnosis uses nothing else.

    Returns
    -------
    Report
        For a healthy run, it has no findings and no hints.
    """
    context = Context(replace(snapshot, ranks=in_session_numbers(snapshot.ranks)))
    told = [finding for rule in RULES for finding in rule(context)]
    findings = [finding for finding in told if finding.confidence != "possible"]
    if not findings and snapshot.outcome != "ok":
        found = (list(rule(context)) for rule in unexplained.RULES)
        findings = next((result for result in found if result), [])
    hints = [finding for finding in told if finding.confidence == "possible"]
    hints += [hint for rule in HINTS for hint in rule(context)]
    findings = [_with_what_was_not_seen(finding, snapshot) for finding in findings]
    ok = snapshot.outcome == "ok" and not findings
    return Report(
        ok=ok,
        findings=[worded(finding) for finding in findings],
        hints=[worded(hint) for hint in hints],
        checked=_checked(context, ok),
    )


def _with_what_was_not_seen(finding: Finding, snapshot: Snapshot) -> Finding:
    """Return a finding with a note on evidence that is missing because of the PyTorch version."""
    lacking = [
        Fact(kind="not-seen", values=asdict(missing))
        for missing in snapshot.missing_features
        if missing.concerns(finding.symptom)
    ]
    return replace(finding, facts=[*finding.facts, *lacking]) if lacking else finding


def _checked(context: Context, ok: bool) -> str:
    """Return ``4 ranks, 12 collectives on 1 group agree``."""
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
    for missing in snapshot.missing_features:
        text += f"; {missing}"
    if snapshot.outcome == "interrupted":
        stood = context.places(context.reports)
        text += "; interrupted: " + "; ".join(f"rank {r} at {p.label}" for r, p in stood.items())
    return text
