"""Runs the rules and puts their findings in order, the cause first."""

from __future__ import annotations

from dataclasses import asdict, replace

from ddt_notebook.formatting import naming_hosts
from ddt_notebook.model import Fact, Finding, Report, Snapshot
from ddt_notebook.model.finding import Scope
from ddt_notebook.model.frameworks import meets_by_tensor
from ddt_notebook.model.numbering import in_session_numbers

from . import of_frameworks
from .advice import in_framework
from .context import Context
from .rules import HINTS, RULES, unexplained
from .rules.checkpoints import READ_BEFORE_WRITTEN
from .rules.stage_data import SHAPES, STAGES_APART
from .wording import checked, worded

#: Causes for which each rank's own values decide.
_BY_VALUES = frozenset({"uneven-iterations", "collective-under-local-condition"})


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
    if (asked := snapshot.running) is not None:
        # running ranks answered one after the other, so that differences may be those of time
        snapshot = replace(snapshot, placement=(), memory=(), parity=())
        if not asked.stood:
            snapshot = replace(snapshot, partition=())
    context = Context(replace(snapshot, ranks=in_session_numbers(snapshot.ranks)))
    concluded = [finding for rule in RULES for finding in rule(context)]
    findings = _stages_first(
        _read_first([one for one in concluded if one.confidence != "possible"])
    )
    if not findings and snapshot.outcome != "ok":
        found = (list(rule(context)) for rule in unexplained.RULES)
        findings = next((result for result in found if result), [])
    hints = [finding for finding in concluded if finding.confidence == "possible"]
    hints += [hint for rule in HINTS for hint in rule(context)]
    for module in of_frameworks.rule_modules():
        explained = getattr(module, "explained", None)
        if explained is not None:
            findings = [explained(context, finding) for finding in findings]
    findings = [in_framework(finding, snapshot.framework) for finding in findings]
    findings = [_with_what_was_not_seen(finding, snapshot) for finding in findings]
    ok = snapshot.outcome == "ok" and not findings
    scope = _scope(context, ok)
    with naming_hosts(snapshot.hosts):
        return Report(
            ok=ok,
            findings=[worded(finding) for finding in findings],
            hints=[worded(hint) for hint in hints],
            checked=checked(scope),
            scope=scope,
        )


def _read_first(findings: list[Finding]) -> list[Finding]:
    """Put a file that a rank read too early before the loop that took other rounds afterwards.

    What a rank has read decides where it goes on from, so the loop is a consequence.
    """
    read = [one for one in findings if one.kind == READ_BEFORE_WRITTEN]
    ranks = {rank for one in read for rank in one.ranks}
    rounds = [one.cause in _BY_VALUES and ranks & {*one.ranks, *one.waiting} for one in findings]
    if not any(rounds):
        return findings
    return [*read, *(one for one in findings if one not in read)]


def _stages_first(findings: list[Finding]) -> list[Finding]:
    """Put other samples of the stages of one model before tensors that then do not fit.

    One stage computes with the tokens of a batch, and another one with the labels.
    """
    apart = [one for one in findings if one.kind == STAGES_APART]
    ranks = {rank for one in apart for rank in one.ranks}
    if not any(one.symptom == SHAPES and ranks & {*one.ranks} for one in findings):
        return findings
    return [*apart, *(one for one in findings if one not in apart)]


def _with_what_was_not_seen(finding: Finding, snapshot: Snapshot) -> Finding:
    """Return a finding with a note on evidence that is missing because of the PyTorch version."""
    lacking = [
        Fact(kind="not-seen", values=asdict(missing))
        for missing in snapshot.missing_features
        if missing.concerns(finding.symptom)
    ]
    return replace(finding, facts=[*finding.facts, *lacking]) if lacking else finding


def _scope(context: Context, ok: bool) -> Scope:
    matching, snapshot = context.matching, context.snapshot
    return Scope(
        ranks=len(snapshot.ranks),
        collectives=matching.collectives,
        groups=matching.groups,
        messages=matching.messages,
        by_tensor=meets_by_tensor(snapshot.framework),
        agree=ok and bool(matching.collectives or matching.messages),
        calls_dropped=max((report.calls_dropped for report in snapshot.ranks), default=0),
        idle=tuple(report.rank for report in snapshot.ranks if report.state == "idle"),
        missing_features=tuple(snapshot.missing_features),
        interrupted_at=(
            context.places(context.reports) if snapshot.outcome == "interrupted" else {}
        ),
    )
