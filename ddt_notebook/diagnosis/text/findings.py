"""Turns ranked symptoms into findings: title, decisive words, and what to change."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddt_notebook import faults
from ddt_notebook.diagnosis import advice
from ddt_notebook.diagnosis.advice import to_confirm
from ddt_notebook.diagnosis.wording import worded
from ddt_notebook.messages import Message
from ddt_notebook.model import Fact, Finding, Place, Position
from ddt_notebook.model.finding import Confidence, Values
from ddt_notebook.model.log_facts import LogFacts
from ddt_notebook.symptoms import loader as taxonomy

from . import advising, confidence, job_findings, timeouts
from .lines import Line
from .matches import Match
from .ranking import Ranked

#: A message of so many words is quoted and not described.
_QUOTED = 4
#: Signs of a line that a program printed.
_BY_PROGRAM = re.compile(
    r"(?i:\w*(?:error|exception|fatal|failed|warn(?:ing)?)\b\W{0,3}:)|\w+(?:Error|Exception)\b|\.so\b"
    r"|\bNCCL\b.*\b(?:WARN|INFO)\b|\bcode=\d|\bat \S+:\d+\b"
)
#: Number of lines of the text, cards and characters that are shown. Chosen, not measured.
_EVIDENCE = 4
#: The ids of the entries for a collective that NCCL's watchdog gave up begin like this.
_WATCHDOG = "nccl-watchdog-"
_HANGS = ("B.2", "C.4", "D.2.1")
_CARDS = 6
_EXCERPT = 160


def finding(
    ranked: Ranked,
    lines: Sequence[Line],
    frameworks: Sequence[str],
    lower: str,
    log: LogFacts,
    near: Sequence[Message],
) -> Finding:
    """Return a symptom as a finding.

    Parameters
    ----------
    ranked
        The symptom and what supports it.
    lines, lower
        The text by lines, and the whole of it in lower case.
    frameworks
        Those that the text names, the outermost first.
    log
        What the text says about the job.
    near
        Entries near to the text, the nearest first, whose advice may fit it.
    """
    cause = _cause(ranked)
    ranks = _ranks(ranked)
    said = _said(ranked)
    return worded(
        Finding(
            symptom=ranked.symptom,
            stage=taxonomy.symptom(ranked.symptom).stage_title,
            kind="words-fit" if said is None else "text-says",
            cause=cause,
            ranks=ranks,
            waiting=_waiting(ranked, log),
            values=_symptom(ranked) if said is None else said,
            places=_places(ranked),
            facts=_facts(ranked, lines, log),
            confidence=_confidence(ranked, lines),
            fixes=advising.fixes(
                ranked.symptom,
                cause,
                _messages(ranked),
                frameworks,
                lower,
                ranks[0] if ranks else 0,
                near,
            ),
        )
    )


def _confidence(ranked: Ranked, lines: Sequence[Line]) -> Confidence:
    texts = {line.number: line.text for line in lines}
    proofs = (
        confidence.is_proof(match, ranked.symptom) and _is_printed(match, texts[match.line])
        for match in ranked.matches
    )
    if ranked.probability >= confidence.CERTAIN and any(proofs):
        return "certain"
    return "likely" if ranked.probability >= confidence.LIKELY else "possible"


def _is_printed(match: Match, line: str) -> bool:
    """Whether a program printed the words of a match: a person also writes "out of memory"."""
    quoted = match.message is not None and len(match.words.split()) >= _QUOTED
    return quoted or match.raised is not None or _BY_PROGRAM.search(line) is not None


def _messages(ranked: Ranked) -> list[Message]:
    """Return the entries of the catalogue that support the symptom, the strongest first."""
    return [match.message for match in ranked.matches if match.message is not None]


def _said(ranked: Ranked) -> Values | None:
    """Return the meaning of the strongest match that has one, and who printed it; None without."""
    # What the catalogue says about a described problem names a cause; words alone do not.
    words_last = sorted(
        ranked.matches, key=lambda match: match.kind == "complaint" and match.message is None
    )
    for match in words_last:
        if match.near:
            continue
        if match.says and (match.message or _mostly(match, ranked.symptom)):
            printed_by = match.rank if match.kind == "error" else None
            return {"says": _one_line(match.says), "printed_by": printed_by}
    return None


def _symptom(ranked: Ranked) -> Values:
    symptom = taxonomy.symptom(ranked.symptom)
    return {"title": symptom.title, "stage": symptom.stage_title}


def _mostly(match: Match, symptom: str) -> bool:
    return match.votes[symptom] >= max(match.votes.values())


def _cause(ranked: Ranked) -> str | None:
    """Return the cause that a message names, if this symptom is the one that it supports most."""
    known = advice.causes()
    # A message of the catalogue has one cause. A card's message is more precise than an exception,
    # and an exception more than a clue.
    exact = sorted(ranked.matches, key=lambda s: (s.message is None, not s.cards, s.raised is None))
    for match in exact:
        if match.message is not None and match.cause in known and _has(match, ranked.symptom):
            return match.cause
        others = {
            name for other in ranked.matches if other.line == match.line for name in other.cards
        }
        if others and match.cause not in others:
            continue
        if match.cause in known and _mostly(match, ranked.symptom) and _has(match, ranked.symptom):
            return match.cause
    return None


def _has(match: Match, symptom: str) -> bool:
    """Whether the card of that cause shows the symptom; True for a cause without card."""
    cause = match.cause or ""
    return cause not in faults.card_ids() or symptom in faults.card(cause).symptoms


def _ranks(ranked: Ranked) -> list[int]:
    found = {
        match.rank
        for match in ranked.matches
        if match.kind == "error"
        and match.weight == 1.0
        and match.rank is not None
        and (match.message or _mostly(match, ranked.symptom))
    }
    return sorted(found)


def _waiting(ranked: Ranked, log: LogFacts) -> list[int]:
    """Return the ranks that print that they waited for others without success."""
    if ranked.symptom not in _HANGS:
        return []
    effects = (match.rank for match in ranked.matches if match.kind == "effect")
    gave_up = (rank for one in log.timeouts for rank in one.ranks)
    return sorted({rank for rank in (*effects, *gave_up) if rank is not None})


def _places(ranked: Ranked) -> dict[int, Place]:
    """Return the user's line, if a traceback and the rank that printed it are known."""
    found: dict[int, Place] = {}
    for match in ranked.matches:
        raised = match.raised
        if raised is None or match.rank is None or match.weight < 1.0 or match.kind != "error":
            continue
        if raised.error.where is not None:
            found.setdefault(match.rank, _place(raised.error.where))
    return found


def _place(position: Position) -> Place:
    return Place(
        file=position.file,
        line=position.line,
        function=position.function,
        code=position.code,
        role="raised",
    )


def _facts(ranked: Ranked, lines: Sequence[Line], log: LogFacts) -> list[Fact]:
    texts = {line.number: line.text for line in lines}
    found: dict[int, Fact] = {}
    for match in ranked.matches:
        if match.line not in found and len(found) < _EVIDENCE:
            found[match.line] = Fact(
                kind="line-of-text",
                ranks=() if match.rank is None else (match.rank,),
                values={"number": match.line, "text": _marked(texts[match.line], match.words)},
            )
    facts = list(found.values())
    known = _messages(ranked)
    if any(message.id.startswith(_WATCHDOG) for message in known):
        facts[1:1] = [*timeouts.read(lines).facts(), *job_findings.standing(log)]
    if ranked.matches[0].near:
        facts.append(Fact(kind="nearest-description", values={"means": known[0].means}))
    facts += [to_confirm(message) for message in known[:1]]
    raised = [m.raised.error.where for m in ranked.matches if m.raised and m.rank is None]
    if places := [_place(where) for where in raised if where is not None]:
        facts.append(Fact(kind="raised-at", place=places[-1]))
    cards = [name for match in ranked.matches for name in match.cards]
    cards = [name for name in cards if ranked.symptom in faults.card(name).symptoms]
    if cards:
        first = tuple(dict.fromkeys(cards))[:_CARDS]
        facts.append(Fact(kind="cards-print", values={"cards": first}))
    percent = round(100 * ranked.probability)
    return [*facts, Fact(kind="probability", values={"percent": percent})]


def _marked(text: str, words: str) -> str:
    """Return an excerpt in which ``«`` and ``»`` enclose the decisive words."""
    found = re.search(re.escape(words.partition("\n")[0]), text, re.IGNORECASE)
    if found is None:
        return _one_line(text)
    start, end = found.span()
    before, after = text[:start], text[end:]
    room = max(20, (_EXCERPT - (end - start)) // 2)
    left = f"…{before[-room:]}" if len(before) > room else before
    right = f"{after[:room]}…" if len(after) > room else after
    return _one_line(f"{left.lstrip()}«{text[start:end]}»{right}", 2 * _EXCERPT)


def _one_line(text: str, limit: int = _EXCERPT) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= limit else f"{plain[: limit - 1]}…"
