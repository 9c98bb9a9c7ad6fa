"""What was concluded: findings with their evidence, and the report that holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from . import codec

Confidence = Literal["certain", "likely", "possible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """What to change.

    Attributes
    ----------
    pattern
        The study's name for this kind of fix, such as ``"fix behavior logic"``.
    advice
        What to change here, in one sentence.
    share
        Frequency of the pattern among the study's faults with this symptom, 0 to 1
        (Liu et al., TOSEM 2023).
    """

    pattern: str
    advice: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault, or one thing that may be intended (``confidence == "possible"``).

    Attributes
    ----------
    symptom
        Code in the taxonomy, such as ``"D.2.1"``.
    stage
        Name of its stage, such as ``"training & evaluation"``.
    title
        One line, lower case, no full stop: what happened.
    cause
        Id of a fault card, None if the cause could not be told.
    ranks
        The culprits. In a hang: those that never entered the collective in which ``waiting`` are
        blocked; in a mismatch: the minority (all of them when no side is smaller); else: who
        raised or died.
    waiting
        Their victims.
    where
        For each rank the line at which it stood, ``"cell[3] line 6: dist.all_reduce(loss)"``.
    evidence
        Observed facts, each one line.
    confidence
        ``"certain"``, ``"likely"`` or ``"possible"`` (hints only).
    fixes
        What to change, best first.
    """

    symptom: str
    stage: str
    title: str
    cause: str | None = None
    ranks: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    where: dict[int, str] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    confidence: Confidence = "certain"
    fixes: list[Fix] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The diagnosis of one run.

    Attributes
    ----------
    ok
        True if nothing failed, hung or was found.
    findings
        Faults, cause first; empty for a healthy run.
    hints
        What may be intended.
    checked
        One line: what was looked at ("4 ranks, 12 collectives on 1 group").
    """

    ok: bool
    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)
    checked: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data in the published form: every key is always present."""
        return {
            "ok": self.ok,
            "findings": [_finding_to_json(finding) for finding in self.findings],
            "hints": [_finding_to_json(finding) for finding in self.hints],
            "checked": self.checked,
        }

    @classmethod
    def from_json(cls, plain: Any) -> Report:
        """The inverse of `to_json`; raises `FormatError` for anything else."""
        return codec.from_plain(cls, plain)


def _finding_to_json(finding: Finding) -> dict[str, Any]:
    return {
        "symptom": finding.symptom,
        "stage": finding.stage,
        "title": finding.title,
        "cause": finding.cause,
        "ranks": list(finding.ranks),
        "waiting": list(finding.waiting),
        "where": {str(rank): place for rank, place in finding.where.items()},
        "evidence": list(finding.evidence),
        "confidence": finding.confidence,
        "fixes": [
            {"pattern": fix.pattern, "advice": fix.advice, "share": fix.share}
            for fix in finding.fixes
        ],
    }
