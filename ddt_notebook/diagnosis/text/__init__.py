"""What a pasted traceback, a log or a description tells: symptoms, the most likely first."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO

from ddt_notebook import faults
from ddt_notebook.diagnosis.words import count, ranks_text
from ddt_notebook.model import Report

from . import digest, findings, frameworks, ranking
from . import matches as sights
from .lines import Line, separate

__all__ = ["diagnose_log", "diagnose_text"]

#: Findings, if there is that much to say; the rest of the symptoms that fit are hints.
_FINDINGS = 3
_WORTH = 0.02
#: Where only the circumstances are told, or nothing at all, a symptom has to be that likely.
_BY_CONTEXT = 0.15
_BY_WORDS = 0.3
_HINTS = 3
#: A longer text is read like a log.
_LONG = 200_000

_UNKNOWN = (
    "no known message in {lines}: look at the first traceback of the rank that failed first, and "
    "at what the launcher printed last; a hang is told by where each rank stands (py-spy dump)"
)


def diagnose_text(text: str) -> Report:
    """What a traceback, the end of a log, or somebody's words tell.

    Parameters
    ----------
    text
        Of any length, of PyTorch, Horovod, TensorFlow, Keras, DeepSpeed, Megatron-LM or
        Colossal-AI.

    Returns
    -------
    Report
        Symptoms as findings, the most likely first; the words that decided stand between ``«`` and
        ``»`` in the evidence. Without findings if nothing in the text is known.
    """
    if len(text) > _LONG:
        return diagnose_log(io.BytesIO(text.encode("utf-8", "replace")))
    numbered = list(enumerate(text.splitlines(), start=1))
    return _diagnose(separate(numbered), len(numbered))


def diagnose_log(source: str | Path | BinaryIO) -> Report:
    """What the log of a job tells; it is read as a stream, and may have hundreds of megabytes.

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
    return _diagnose(separate(read.lines), read.total)


def _diagnose(lines: list[Line], total: int) -> Report:
    ranked = ranking.rank(lines)
    text = sights.Text.of(lines)
    speaks_of = frameworks.of(text.lower)
    worth = [
        found for found in ranked if found.probability >= (_WORTH if found.sights else _BY_WORDS)
    ]
    shown, more = worth[:_FINDINGS], worth[_FINDINGS : _FINDINGS + _HINTS]
    # A message that several faults print has been recognised only if all of them are named.
    named = {
        code
        for found in ranked
        for sight in found.sights
        if sight.weight == 1.0
        for code in _symptoms(sight)
    }
    shown += [found for found in ranked if found.symptom in named and found not in shown]
    told = ranking.told([sight for found in ranked for sight in found.sights])
    # A healthy log is full of circumstances.
    likely = not text.is_log and ranked[0].probability >= _BY_CONTEXT
    known = bool(worth) and (told or likely)
    made = [findings.finding(found, lines, speaks_of, text.lower) for found in shown]
    hints = [
        findings.finding(found, lines, speaks_of, text.lower)
        for found in more
        if found not in shown
    ]
    checked = _checked(lines, total, speaks_of)
    if not known:
        unknown = _UNKNOWN.format(lines=checked)
        return Report(ok=False, hints=[] if text.is_log else made[:_HINTS], checked=unknown)
    return Report(ok=False, findings=made, hints=hints, checked=checked)


def _symptoms(sight: sights.Sight) -> set[str]:
    """Symptoms of the fault cards that print what was seen."""
    return {faults.card(name).symptom for name in sight.cards}


def _checked(lines: list[Line], total: int, speaks_of: list[str]) -> str:
    """``1,204 lines of ranks 0-3, PyTorch``."""
    ranks = {line.rank for line in lines if line.rank is not None}
    whose = f" of {ranks_text(ranks)}" if ranks else ""
    names = ", ".join(frameworks.title(name) for name in speaks_of)
    return f"{count(total, 'line')}{whose}" + (f", {names}" if names else "")
