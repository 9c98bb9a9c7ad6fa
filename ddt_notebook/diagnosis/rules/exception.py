"""A rank raised an exception of its own."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from math import inf

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import classify, is_peer_error
from ddt_notebook.diagnosis.exception_details import details
from ddt_notebook.diagnosis.words import ranks_text
from ddt_notebook.model import Call, Finding, RankError

from .wording import name, victims_evidence, wait_clause

_LONGEST = 160
_COMPLAINT = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
_MAX_PRINTED = 2


def exceptions(context: Context) -> Iterator[Finding]:
    """The first exceptions, by time; those that peers or a mismatch brought about are left out."""
    together: dict[tuple[object, ...], dict[int, RankError]] = defaultdict(dict)
    for rank, report in context.reports.items():
        error = report.error
        if rank in context.exhausted and error is not None:
            together[(error.type, context.label(report.position))][rank] = error
            continue
        if (
            report.state != "raised"
            or error is None
            or is_peer_error(error)
            or rank in context.consequences
            or (context.discord is not None and _raised_in(error, context.discord.joined.get(rank)))
            or (error.type == "KeyboardInterrupt" and context.snapshot.outcome == "interrupted")
        ):
            continue
        together[(error.type, context.label(error.where))][rank] = error
    for errors in sorted(together.values(), key=_first_time):
        yield _exception(context, errors)
    for rank, error in context.handled.items():
        yield _handled(context, rank, error)


def _raised_in(error: RankError, call: Call | None) -> bool:
    return call is not None and error.call == call.index


def _handled(context: Context, rank: int, error: RankError) -> Finding:
    """A rank that raised, and in a ``finally`` or ``except`` came to a call of its own."""
    waiting = context.victims([rank])
    call = context.halted[rank]
    meaning = classify(error)
    place = context.label(error.where)
    return conclude(
        meaning.symptom,
        f"rank {rank} raised {headline(error)} and came to {name(context, call)} while handling it"
        + wait_clause(context, waiting),
        cause=meaning.cause,
        ranks=[rank],
        waiting=waiting,
        where=context.places(waiting) | {rank: place},
        evidence=[f"raised at {place}", *victims_evidence(context, [rank, *waiting])],
        confidence="likely",
        op=call.op,
    )


def _first_time(errors: dict[int, RankError]) -> float:
    return min(error.at_s if error.at_s is not None else inf for error in errors.values())


def _exception(context: Context, errors: dict[int, RankError]) -> Finding:
    ranks = list(errors)
    error = errors[ranks[0]]
    call = context.last_call(ranks[0])
    waiting = context.victims(ranks)
    meaning, told = details(context, error, classify(error, call))
    evidence = [f"raised at {context.label(error.where)}"] if error.where else []
    evidence += told
    if call is not None:
        evidence.append(f"raised inside {call.label}")
    evidence += _printed(error)
    evidence += victims_evidence(context, waiting)
    late = context.exhausted.intersection(ranks)
    if late:
        evidence.append("it said so only after the others had been freed")
    return conclude(
        meaning.symptom,
        f"{ranks_text(ranks)} raised {headline(error)}{wait_clause(context, waiting)}",
        cause=meaning.cause,
        ranks=ranks,
        waiting=waiting,
        where=context.places([*ranks, *waiting]),
        evidence=evidence,
        confidence="likely" if late else meaning.confidence,
        op=call.op if call else "the call",
    )


def _printed(error: RankError) -> list[str]:
    """What a command that failed said about it, or where a module is: below the first line."""
    further = [line.strip() for line in error.message.splitlines()[1:]]
    if error.type == "ModuleNotFoundError":
        return further[:1]
    if error.type != "CalledProcessError":
        return []
    said = [line for line in further if _COMPLAINT.search(line)]
    return [f"the command printed: {line[:_LONGEST]}" for line in said[:_MAX_PRINTED]]


def headline(error: RankError) -> str:
    """The first line of an exception that says something, of bounded length."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith(":"):
        lines[0] += f" {lines[1]}"  # the first line only announces the second
    text = f"{error.type}: {lines[0]}" if lines else error.type
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
