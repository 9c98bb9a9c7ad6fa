"""The diagnosis of a run: findings as data, their text, and the report that holds them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from . import codec
from .log_facts import LogFacts
from .position import Place
from .torch_features import MissingFeature

Confidence = Literal["certain", "likely", "possible"]
#: The values of a finding or a fact besides its ranks and its line. Names have their unit
#: (``waited_s``, ``size_bytes``); values are plain JSON, with lists as tuples.
Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that was observed, or read from the source.

    Attributes
    ----------
    kind
        The kind of fact, from the closed list `ddt_notebook.diagnosis.wording.FACTS`, such as
        ``"blocked-in"``.
    place
        The line that shows it, or None.
    ranks
        The ranks that it concerns, ascending; empty if it concerns no rank or all of them.
    values
        Its numbers and names, such as ``{"op": "all_reduce", "sequence": 17}``.
    """

    kind: str
    place: Place | None = None
    ranks: tuple[int, ...] = ()
    values: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _with_tuples(self.values))


def _with_tuples(value: Any) -> Any:
    """Turn the lists of JSON into tuples, so that a loaded fact equals the one that was saved."""
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, (list, tuple)) else value


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
    """One fault, or something that may be intended (``confidence == "possible"``).

    Attributes
    ----------
    symptom
        Code in the taxonomy, such as ``"D.2.1"``.
    stage
        Name of its stage, such as ``"training & evaluation"``.
    kind
        What happened, from the closed list `ddt_notebook.diagnosis.wording.TITLES`, such as
        ``"never-entered"``. Empty in a report of an older version, which has text only.
    values
        The numbers and names of what happened, such as ``{"op": "all_reduce", "waited_s": 2.1}``.
    cause
        Id of a fault card, None if the cause is not known.
    ranks
        The culprits. In a hang, the ranks that never entered the collective in which the ranks of
        ``waiting`` are blocked; in a mismatch, the minority (all ranks if no side is smaller);
        otherwise the ranks that raised or died.
    waiting
        The victims of the culprits.
    places
        For each rank, the line that shows what it did.
    facts
        What was observed.
    title
        ``kind`` and ``values`` in words: one line, lower case, no full stop.
    where
        ``places`` in words: ``{1: "cell[3] line 6: dist.all_reduce(loss)"}``.
    evidence
        ``facts`` in words, one line for each, in the same order.
    confidence
        ``"certain"``, ``"likely"`` or ``"possible"`` (hints only).
    fixes
        What to change, best first.
    """

    symptom: str
    stage: str
    kind: str = ""
    cause: str | None = None
    ranks: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    values: Values = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    title: str = ""
    where: dict[int, str] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    confidence: Confidence = "certain"
    fixes: list[Fix] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _with_tuples(self.values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a diagnosis compared.

    Attributes
    ----------
    ranks
        How many ranks there are.
    collectives, groups, messages
        How many collectives, on how many groups, and how many messages were compared.
    by_tensor
        Whether ranks meet by the name of a tensor, so that each name counts as a group.
    agree
        Whether all of them agree, in a run without findings.
    calls_dropped
        The largest number of earlier calls of a rank that matched and were not kept.
    idle
        Ranks that did not run the cell.
    missing_features
        What could not be observed because the ranks' torch lacks names.
    interrupted_at
        Where the ranks were when the user interrupted the run; empty if nobody did.
    """

    ranks: int
    collectives: int = 0
    groups: int = 0
    messages: int = 0
    by_tensor: bool = False
    agree: bool = False
    calls_dropped: int = 0
    idle: tuple[int, ...] = ()
    missing_features: tuple[MissingFeature, ...] = ()
    interrupted_at: dict[int, Place] = field(default_factory=dict)


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
        Findings that may be intended.
    scope
        What was compared, None if the report is not about a run.
    checked
        The same in one line: ``"4 ranks, 12 collectives on 1 group agree"``.
    log
        What the logs say about the job as a whole, None if the report is not about logs.
    """

    ok: bool
    findings: list[Finding] = field(default_factory=list)
    hints: list[Finding] = field(default_factory=list)
    checked: str = ""
    scope: Scope | None = None
    log: LogFacts | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data in the published form: every key is always present."""
        return {
            "ok": self.ok,
            "findings": [_finding_to_json(finding) for finding in self.findings],
            "hints": [_finding_to_json(finding) for finding in self.hints],
            "checked": self.checked,
            "scope": codec.to_plain(self.scope) if self.scope is not None else None,
            "log": codec.to_plain(self.log) if self.log is not None else None,
        }

    @classmethod
    def from_json(cls, plain: Any) -> Report:
        """The inverse of `to_json`; raises `FormatError` for anything else."""
        return codec.from_plain(cls, plain)


def _finding_to_json(finding: Finding) -> dict[str, Any]:
    return {
        "symptom": finding.symptom,
        "stage": finding.stage,
        "kind": finding.kind,
        "title": finding.title,
        "cause": finding.cause,
        "ranks": list(finding.ranks),
        "waiting": list(finding.waiting),
        "values": codec.to_plain(finding.values),
        "places": {str(rank): _place_to_json(place) for rank, place in finding.places.items()},
        "where": {str(rank): place for rank, place in finding.where.items()},
        "facts": [
            {
                "kind": fact.kind,
                "place": _place_to_json(fact.place) if fact.place is not None else None,
                "ranks": list(fact.ranks),
                "values": codec.to_plain(fact.values),
            }
            for fact in finding.facts
        ],
        "evidence": list(finding.evidence),
        "confidence": finding.confidence,
        "fixes": [
            {"pattern": fix.pattern, "advice": fix.advice, "share": fix.share}
            for fix in finding.fixes
        ],
    }


def _place_to_json(place: Place) -> dict[str, Any]:
    return {
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "code": place.code,
        "role": place.role,
    }
