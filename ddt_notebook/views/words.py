"""Numbers, headings of findings and states of ranks in words, the same in text and HTML."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from .. import formatting
from ..diagnosis.advice import NAME_NOT_DEFINED, SYNTAX
from ..faults import page_ids
from ..formatting import count, ranks_cell, size
from ..formatting import ranks_text as ranks
from ..formatting import seconds as duration
from ..model import Fact, Finding, Fix, RankReport, Snapshot
from ..model.frameworks import waits_in
from ..model.operations import PASSES
from ..symptoms import symptom
from ..symptoms.lessons import lesson
from . import safe

__all__ = [
    "count",
    "duration",
    "ending",
    "explained_by",
    "facts",
    "fix_pattern",
    "fix_source",
    "heading",
    "is_unclassified",
    "more",
    "ranks",
    "ranks_cell",
    "rate",
    "short",
    "size",
    "state",
    "symbol",
]

_SYMBOLS = {"certain": "✖", "likely": "▲", "possible": "?"}
_COUNTABLE = {"hang": "s", "error": "s", "issue": "s", "failure": "s", "mismatch": "es"}

#: A note of the views of times.
ISSUED = (
    "a call of this backend returns when it has issued its collective to the device: times are "
    "those of the hosts, and when a collective ran on the device is not known"
)


def symbol(finding: Finding) -> str:
    """A sign that stands beside the word and never replaces it."""
    return _SYMBOLS[finding.confidence]


def heading(finding: Finding) -> tuple[str, str, str]:
    """``("hang D.2.1", "training & evaluation", "certain")``.

    If the run does not show the stage, it names both: the confidence is that of the cause.
    """
    if is_unclassified(finding):
        place = finding.places[finding.ranks[0]].place
        return (
            f"exception at {safe.one_line(place)}",
            "no symptom of the study",
            finding.confidence,
        )
    title = symptom(finding.symptom).title
    word = "fault" if title == "others" else title
    name, stage = f"{word} {finding.symptom}", finding.stage
    for fact in finding.facts:
        if fact.kind == "before-training":
            other = symptom(fact.values["symptom"])
            name, stage = f"{name} or {other.code}", f"{other.stage_title}, or {stage}"
    return name, stage, finding.confidence


def is_unclassified(finding: Finding) -> bool:
    """Whether it is an exception that the study has no class for, such as the user's own."""
    plain = finding.cause in (None, NAME_NOT_DEFINED, SYNTAX) and not _message(finding)
    others = plain and symptom(finding.symptom).title == "others"
    return others and any(rank in finding.places for rank in finding.ranks[:1])


def facts(finding: Finding) -> Iterator[tuple[Fact | None, str]]:
    """Each fact with its sentence; None for the facts of a report that has text only."""
    known = [*finding.facts, *[None] * (len(finding.evidence) - len(finding.facts))]
    return zip(known, finding.evidence, strict=True)


def explained_by(finding: Finding) -> list[str]:
    """The arguments for `ddt.explain`: the symptom, and the ids of the card and of the message."""
    known = finding.cause in page_ids()
    card = [finding.cause] if known and finding.cause else []
    return [finding.symptom, *card, *_message(finding)]


def _message(finding: Finding) -> list[str]:
    """Return the id of the entry of the catalogue that names the cause; empty without one."""
    return [fact.values["message"] for fact in finding.facts if fact.kind == "to-confirm"]


def more(finding: Finding) -> list[str]:
    """The commands that say more about a finding."""
    return [f"%ddt_explain {name}" for name in explained_by(finding)]


def more_pages(finding: Finding, snapshot: Snapshot | None = None) -> list[str]:
    """Commands that say more about a finding; for one without a symptom, that which checks it."""
    if is_unclassified(finding):  # the page of "others" does not describe it
        plain = finding.cause is not None  # the fix is known; a single rank would raise it as well
        can_run = snapshot is None or snapshot.origin == "session"
        return ["%ddt_debug --single"] if can_run and not plain else []
    return more(finding)


def lesson_on(finding: Finding) -> str | None:
    """The path of the lesson on a finding's symptom, None without one."""
    return None if is_unclassified(finding) else lesson(finding.symptom)


def fix_pattern(code: str, fix: Fix) -> str:
    """``fix behavior logic (a pattern that repaired 5 of 44 hangs in the study)``.

    The study counted its patterns only; the advice beside a pattern is ours.
    """
    source = fix_source(code, fix)
    return f"{fix.pattern} (a pattern that repaired {source})" if source else fix.pattern


def fix_source(code: str, fix: Fix) -> str:
    """``5 of 44 hangs in the study``; empty where the study has no such case."""
    known = symptom(code)
    number = round(fix.share * known.distributed_faults)
    if not number:
        return ""
    ending = _COUNTABLE.get(known.title.rsplit(" ", 1)[-1])
    noun = f"{known.title}{ending}" if ending and "&" not in known.title else "such faults"
    return f"{number} of {known.distributed_faults} {noun} in the study"


def ran(snapshot: Snapshot) -> str:
    """What the ranks ran: a cell, or a script."""
    return "script" if snapshot.cell.file else "cell"


def state(report: RankReport, ranks: int = 1, *, script: bool = False) -> str:
    """What ranks did or were doing, as the end of a sentence that begins with "rank 1".

    Parameters
    ----------
    report
        Of one of them.
    ranks
        How many did the same.
    script
        Whether they ran a script, and not a cell.
    """
    one = ranks == 1
    match report.state:
        case "finished":
            return "finished" if script else "finished the cell"
        case "raised":
            return f"raised {safe.one_line(report.error.type, 100)}" if report.error else "raised"
        case "died":
            return f"died ({ending(report)})" if ending(report) else "died"
        case "blocked":
            call, verb = report.blocked_call, "waits" if one else "wait"
            return f"{verb} in {safe.one_line(call.op, 60)}" if call else verb
        case "running" if report.waits_for_ever:
            return f"{'waits' if one else 'wait'} for a thread that has ended"
        case "running":
            op = waits_in(report.stack)
            doing = f"in {PASSES.get(op, safe.one_line(op, 60))}" if op else "still running"
            return f"{'was' if one else 'were'} {doing}"
        case "stopped":
            return f"{'is' if one else 'are'} suspended by the operating system"
        case "silent":
            return "does not answer" if one else "do not answer"
        case "idle":
            return f"{'was' if one else 'were'} not asked to run the cell"
        case "recorded":
            return f"{'was' if one else 'were'} in none of {'its' if one else 'their'} collectives"


def ending(report: RankReport) -> str:
    """``SIGKILL`` or ``exit code 3`` of a rank that died."""
    if report.exit_signal is not None:
        try:
            return signal.Signals(report.exit_signal).name
        except ValueError:
            return f"signal {report.exit_signal}"
    return f"exit code {report.exit_code}" if report.exit_code is not None else ""


def short(seconds: float | None) -> str:
    """``0.35 ms``, ``150 ms``, ``1.2 s``; empty if it is not known."""
    return formatting.seconds(seconds) if seconds is not None else ""


def rate(bytes_per_s: float | None) -> str:
    """``630 MB/s``; empty if it is not known."""
    return formatting.rate(bytes_per_s) if bytes_per_s is not None else ""
