"""Diagnoses a pasted traceback, a log or a description: the most likely symptoms come first."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ddt_notebook import faults
from ddt_notebook.formatting import count, ranks_text
from ddt_notebook.model import Finding, Report
from ddt_notebook.model.log_facts import LogFacts

from . import (
    confidence,
    digest,
    findings,
    frameworks,
    job,
    job_findings,
    matches,
    own_reports,
    ranking,
)
from .lines import Line, separate
from .matches import Match, Text

__all__ = ["diagnose_log", "diagnose_text"]

#: Number of findings and hints that are shown; chosen, not measured. Of 120 labelled reports, the
#: right symptom is among the first three in 91 %.
_FINDINGS = 3
_HINTS = 3
#: Less likely symptoms are not shown. Of 297 reports that no entry was written from, 282 then have
#: the right symptom among the first three, of 643 in all; with 0.015, 280 of 592; with 0.001, 283
#: of 733.
_WORTH = 0.005
#: The least probability of the first symptom if a text shows only what was being done. With 0.5,
#: 7 instead of 3 of 120 labelled reports have no finding, and 2 right first findings are lost.
_BY_CONTEXT = 0.15
#: A text with more characters is read like a log. Chosen, not measured.
_LONG = 200_000

_UNKNOWN = (
    "no known message in {lines}: look at the first traceback of the rank that failed first, and "
    "at what the launcher printed last; for a hang, look where each rank is (py-spy dump)"
)


def diagnose_text(text: str, log: LogFacts | None = None) -> Report:
    """Diagnose a traceback, the end of a log, or a person's description.

    Parameters
    ----------
    text
        A text of any length about PyTorch, Horovod, TensorFlow, Keras, DeepSpeed, Megatron-LM or
        Colossal-AI.
    log
        What the logs of the job say about it, if they were read before; else it is read from the
        text.

    Returns
    -------
    Report
        Symptoms as findings, the most likely first; ``«`` and ``»`` in the evidence enclose the
        decisive words. It has no findings if nothing in the text is known.
    """
    if len(text) > _LONG:
        read = digest.read(io.BytesIO(text.encode("utf-8", "replace")))
        return _with_own(separate(read.lines), read.total, log)
    numbered = list(enumerate(text.splitlines(), start=1))
    return _with_own(separate(numbered), len(numbered), log)


def diagnose_log(source: str | Path | BinaryIO) -> Report:
    """Diagnose the log of a job; it is read as a stream and may have hundreds of megabytes.

    Parameters
    ----------
    source
        Path of the log, or a stream in binary mode.
    """
    if isinstance(source, (str, Path)):
        with Path(source).open("rb") as stream:
            read = digest.read(stream)
    else:
        read = digest.read(source)
    return _with_own(separate(read.lines), read.total)


def _with_own(lines: list[Line], total: int, log: LogFacts | None = None) -> Report:
    """What ddt_notebook saw while the job ran comes first, then what only words show for certain.

    Its own words are no evidence, and what is merely likely from the rest of the log, such as the
    signal with which a job that hung was ended, follows from it.
    """
    own = own_reports.separate(lines)
    of_job = _diagnose(own.others, total, log)
    if not own.findings:
        return of_job
    known = {finding.symptom for finding in own.findings}
    more = [
        finding
        for finding in of_job.findings
        if finding.confidence == "certain" and finding.symptom not in known
    ]
    return replace(of_job, findings=[*own.findings, *more], hints=[])


def _diagnose(lines: list[Line], total: int, log: LogFacts | None = None) -> Report:
    if log is None:
        reader = job.Reader()
        reader.read(lines)
        log = reader.facts()
    text = Text.of(lines)
    found = matches.find(text)
    ranked = ranking.rank(found)
    in_catalogue = any(match.message is not None for match in found)
    # A healthy log also describes what is being done.
    likely = not text.is_log and (in_catalogue or ranked[0].probability >= _BY_CONTEXT)
    known = ranking.is_specific(found) or likely
    # Words alone never make a finding: they only tell symptoms apart.
    if known:
        found = [*found, *matches.by_words(text, found)]
        ranked = ranking.rank(found)
    speaks_of = frameworks.of(text.lower)
    worth = [one for one in ranked if one.matches and one.probability >= _WORTH]
    shown, more = worth[:_FINDINGS], worth[_FINDINGS : _FINDINGS + _HINTS]
    # A message that several faults print is recognised only if the findings name all of them.
    named = {code for match in found if match.weight == 1.0 for code in _symptoms(match)}
    shown += [one for one in ranked if one.symptom in named and one not in shown]
    known = known and bool(worth)
    near = matches.advisers(text, found)
    raises = matches.raises(text)

    def told(several: list[ranking.Ranked], those: list[Match]) -> list[Finding]:
        if not several:
            return []
        sure = confidence.evidence(several[0], those, raises=raises)
        return [
            findings.finding(one, lines, speaks_of, text.lower, log, near)
            for one in confidence.calibrated(several, sure)
        ]

    made = told([*shown, *(one for one in more if one not in shown)], found)
    made, hints = made[: len(shown)], made[len(shown) :]
    checked = _checked(lines, total, speaks_of)
    if not known:
        made, hints = [], [] if text.is_log else made[:_HINTS]
    if not known and not text.is_log:
        words = matches.by_words(text, found)
        nearest_first = ranking.rank_near(matches.nearest_to(text), words)
        made = told(nearest_first[:_FINDINGS], [*found, *words])
    of_whole, hints_of_whole = job_findings.merged(made, log)
    return Report(
        ok=False,
        findings=of_whole,
        hints=[*hints_of_whole, *hints],
        checked=checked if of_whole else _UNKNOWN.format(lines=checked),
        log=log or None,
    )


def _symptoms(match: Match) -> set[str]:
    """Return the symptoms of the fault cards that print what was found."""
    return {faults.card(name).symptom for name in match.cards}


def _checked(lines: list[Line], total: int, speaks_of: list[str]) -> str:
    """Return ``1,204 lines of ranks 0-3, PyTorch``."""
    ranks = {line.rank for line in lines if line.rank is not None}
    whose = f" of {ranks_text(ranks)}" if ranks else ""
    names = ", ".join(frameworks.title(name) for name in speaks_of)
    return f"{count(total, 'line')}{whose}" + (f", {names}" if names else "")
