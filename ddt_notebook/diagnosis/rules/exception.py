"""Rules about exceptions that a rank raised by itself."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from math import inf

from ddt_notebook.diagnosis.advice import NAME_NOT_DEFINED, conclude, fixes
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import classify, first_of_chain, is_peer_error
from ddt_notebook.diagnosis.errors.pattern import Meaning
from ddt_notebook.diagnosis.exception_details import STORED_BY_SOME, details
from ddt_notebook.diagnosis.silent_partings import came_apart
from ddt_notebook.diagnosis.text import exceptions as printed_exceptions
from ddt_notebook.diagnosis.text.lines import separate
from ddt_notebook.diagnosis.wording import lacking
from ddt_notebook.model import Call, Fact, Finding, Fix, Place, Position, RankError
from ddt_notebook.model.finding import Values
from ddt_notebook.model.frameworks import known_frameworks, prepared
from ddt_notebook.model.user_code import is_user_code
from ddt_notebook.program.parse import exercise_of

from .connecting import unconnected
from .facts import blocked_in, of_call, of_wait, reasons
from .values import raised_by_lost

_LONGEST = 160
_COMPLAINT = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
#: What pip prints around the error of a build (pip/_internal/exceptions.py, DiagnosticPipError): a
#: reference in kebab case, notes, and hints.
_AROUND = re.compile(r"error: [a-z]+(-[a-z]+)+$|(note|hint): |× ")
_MAX_PRINTED = 2
#: The variable with the data of an exercise's ranks; fresh ranks do not have it.
_EXERCISE_DATA = "exercise"
#: The variable that Python defines in a module and not in a cell.
_FILE = "__file__"
#: What a session that simulates GPUs does not lack.
_NEEDS_GPU = frozenset({"no-cuda", "backend-not-available"})
#: Python's own messages.
_ENDED_IN_GENERATOR = "generator raised StopIteration"
_MEETS = re.compile(r"\binit_process_group\b|\bc10d|Connection closed by peer|EADDRINUSE")
_NO_MODULE = re.compile(r"No module named '(\w+)'")
_NO_ATTRIBUTE = re.compile(r"object has no attribute '(\w+)'")


def exceptions(context: Context) -> Iterator[Finding]:
    """Report the first exceptions by time, without those that peers or a mismatch caused."""
    if raised_by_lost(context):
        return  # a rule on values reports where these began
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
            or rank in context.lost_sets
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
    """Report a rank that raised and then made a call in a ``finally`` or ``except``."""
    waiting = context.victims([rank])
    call = context.halted[rank]
    meaning = classify(error)
    raised = context.place(error.where, "raised")
    return conclude(
        meaning.symptom,
        "raised-while-others-wait",
        cause=meaning.cause,
        ranks=[rank],
        waiting=waiting,
        values=of_error(error) | of_call(context, call) | of_wait(context, waiting),
        places=context.places(waiting) | {rank: raised},
        facts=[
            Fact(kind="raised-at", place=raised, ranks=(rank,)),
            *blocked_in(context, [rank, *waiting]),
        ],
        confidence="likely",
        op=call.op,
        message=meaning.message,
    )


def _first_time(errors: dict[int, RankError]) -> float:
    return min(error.at_s if error.at_s is not None else inf for error in errors.values())


def _exception(context: Context, errors: dict[int, RankError]) -> Finding:
    ranks = list(errors)
    error = errors[ranks[0]]
    call = context.last_call(ranks[0])
    waiting = context.victims(ranks)
    meaning, explained = details(context, error, classify(error, call))
    if call is not None and call.kind == "setup":
        meaning = unconnected(context) or meaning
    if len(context.reports) > 1 and _spawned_ranks_failed(error):
        meaning = Meaning("B.1", "ranks-spawned-again", "likely")
        explained = [Fact(kind="ranks-spawn", ranks=tuple(context.reports))]
    kind = "raised"
    if error.type == "SystemExit" and _all_ended_alike(context, errors):
        by_parser = any(frame.file.endswith("argparse.py") for frame in error.frames)
        kind = "arguments-not-accepted" if by_parser and error.message == "2" else kind
        cause = "arguments-not-accepted" if kind != "raised" else "all-ranks-exit"
        meaning = Meaning(meaning.symptom, cause, meaning.confidence)
    facts = []
    places = context.places([*ranks, *waiting])
    if error.where is not None:
        at = context.place(_asked_too_often(error) or error.where, "raised")
        if _asked_too_often(error) and at is not None:
            places |= dict.fromkeys(ranks, at)
        facts.append(Fact(kind="raised-at", place=at, ranks=tuple(ranks)))
    elif error.type == MemoryError.__name__:
        # Python allocates an entry of the traceback for each frame, and drops it if it cannot.
        facts.append(Fact(kind="line-lost-for-memory", ranks=tuple(ranks)))
    trainer = _trainer_of(error) if waiting else ""
    parted = _parted(context, ranks, waiting) if trainer else []
    seen = {(one.place.file, one.place.line) for one in parted if one.place is not None}
    facts += parted
    facts += (f for f in explained if f.place is None or (f.place.file, f.place.line) not in seen)
    if call is not None:
        inside = of_call(context, call, issuer=False)
        facts.append(Fact(kind="raised-inside", ranks=tuple(ranks), values=inside))
    facts += _printed(error)
    facts += came_apart(context, ranks[0])
    facts += blocked_in(context, waiting)
    late = context.exhausted.intersection(ranks)
    if late:
        facts.append(Fact(kind="raised-after-release", ranks=tuple(sorted(late))))
    case, slots = _case(context, meaning.cause, error, ranks, explained)
    finding = conclude(
        meaning.symptom,
        kind,
        cause=meaning.cause,
        ranks=ranks,
        waiting=waiting,
        values=of_error(error)
        | of_wait(context, waiting)
        | ({"trainer": trainer} if trainer else {}),
        places=places,
        facts=facts,
        confidence="likely" if late else meaning.confidence,
        op=call.op if call else "the call",
        case=case,
        slots=slots,
        message=meaning.message,
    )
    if context.snapshot.origin == "session":
        finding = replace(finding, fixes=_in_session(context, finding, error))
    return finding


def _in_session(context: Context, finding: Finding, error: RankError) -> list[Fix]:
    """What to change, where a session can do more about it than the program."""
    if finding.cause in _NEEDS_GPU:
        simulate = {"size": str(context.snapshot.world_size)}
        first = fixes(finding.symptom, "no-cuda", case="session", slots=simulate)
        return [*first, *finding.fixes]
    missing = _NO_MODULE.search(error.message) if finding.cause == "module-not-found" else None
    if missing is not None and (preparation := prepared().get(missing[1])) is not None:
        how = {"framework": missing[1], "install": preparation.install}
        return fixes(finding.symptom, finding.cause, case="framework", slots=how)
    return finding.fixes


def _trainer_of(error: RankError) -> str:
    """The library whose trainer raised in answer to the user's functions that it calls, if any."""
    if not error.frames or is_user_code(error.frames[-1].file):
        return ""
    for framework in known_frameworks().values():
        parts = tuple(f"/{module.partition('.')[0]}/" for module, _ in framework.callbacks)
        if any(part in frame.file for frame in error.frames for part in parts):
            return framework.title
    return ""


def _parted(context: Context, ranks: list[int], waiting: list[int]) -> list[Fact]:
    """Where ranks that raised were seen to part from one that waits at the same line."""
    found = []
    for rank in ranks:
        error = context.reports[rank].error
        where = error.where if error is not None else None
        for waiter in waiting:
            call = context.halted.get(waiter)
            if call is None or context.label(call.where) != context.label(where):
                continue
            reason = context.where_parted(
                call, context.reports[waiter], context.reports[rank], where
            )
            if reason is not None and not _passed_on(context, error, reason.place):
                found.append(reason)
                break
    return reasons(found)


def _passed_on(context: Context, error: RankError | None, handler: Place) -> bool:
    """Whether it was the exception itself that a handler caught, and raised again."""
    lines = [frame for frame in (error.frames if error is not None else ()) if frame.file]
    return any(
        isinstance(block.owner, ast.ExceptHandler) and block.owner.lineno == handler.line
        for frame in lines
        if frame.file == handler.file
        for block in context.program.blocks(context.program.statement_at(frame))
    )


def _all_ended_alike(context: Context, errors: dict[int, RankError]) -> bool:
    """Whether all ranks that ran raised the same, and none waits for another."""
    ran = {rank for rank, report in context.reports.items() if report.state != "idle"}
    return ran == set(errors) and len({str(error) for error in errors.values()}) == 1


def _spawned_ranks_failed(error: RankError) -> bool:
    """Whether processes that a rank spawned could not form a group, as its error quotes them.

    The processes of several ranks ask for one port, and some meet those of another rank.
    """
    return error.type == "ProcessRaisedException" and bool(_MEETS.search(error.message))


def _asked_too_often(error: RankError) -> Position | None:
    """The line at which an iterator had ended, if a generator turned that into its own error.

    A generator may not raise StopIteration, so Python raises another exception where it is read.
    """
    first = first_of_chain(error) if error.message == _ENDED_IN_GENERATOR else None
    return first.where if first is not None and first.type == "StopIteration" else None


def _case(
    context: Context, cause: str | None, error: RankError, ranks: list[int], facts: list[Fact]
) -> tuple[str, dict[str, str]]:
    """Return the case of the advice and its slots: in a script, or for what ranks lack."""
    stored = next((one for one in facts if one.kind == STORED_BY_SOME), None)
    if stored is not None and stored.place is not None and cause is None:
        hook = stored.values["hook"]
        return f"{STORED_BY_SOME}{'-in-hook' * bool(hook)}", {
            "line": stored.place.place,
            "hook": hook,
        }
    if context.snapshot.cell.file and cause in (None, NAME_NOT_DEFINED):
        return "script", {}
    name = of_error(error).get("name", "")
    if cause != NAME_NOT_DEFINED or not name:
        return "", {}
    if name == _FILE:
        return "file", {}
    snapshot = context.snapshot
    exercise = exercise_of(snapshot.cell.source)
    if name == _EXERCISE_DATA and exercise:
        return "exercise", {"name": name, "exercise": exercise}
    ran = {rank for rank, report in context.reports.items() if report.state != "idle"}
    slots = {"name": name, **lacking(ranks, everywhere=ran <= set(ranks))}
    return snapshot.notebook_names.get(name, ""), slots


def _printed(error: RankError) -> list[Fact]:
    """Return what a failed command printed, or where a module is: the text below the first line."""
    further = [line.strip() for line in error.message.splitlines()[1:]]
    if error.type == "ModuleNotFoundError":
        return [Fact(kind="note", values={"note": line}) for line in further[:1]]
    if error.type != "CalledProcessError":
        return []
    said = [line for line in further if _COMPLAINT.search(line) and not _AROUND.match(line)]
    if last := _last_printed(error):
        said = [last, *(line for line in said if line != last and not line.endswith(last))]
    return [
        Fact(kind="command-printed", values={"line": line[:_LONGEST]})
        for line in said[:_MAX_PRINTED]
    ]


def _last_printed(error: RankError) -> str:
    """Return the exception that ended a process which the rank started, as its traceback ends.

    It is empty without a traceback in the message. A launcher or pip may print more below it.
    """
    if printed_exceptions.HEAD not in error.message:
        return ""
    lines = separate(enumerate(error.message.splitlines(), start=1))
    raised = [found.error for found in printed_exceptions.find(lines) if found.error.frames]
    if not raised:
        return ""
    said = raised[-1].message.strip()
    first = said.splitlines()[0].strip() if said else ""
    return f"{raised[-1].type}: {first}" if first else raised[-1].type


def of_error(error: RankError) -> Values:
    """Return the values with which findings describe an exception.

    ``error``: its class; ``message``: the start of its text, of bounded length; ``name``: the
    variable or the attribute that does not exist.
    """
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    if last := _last_printed(error):
        lines = [last]
    if len(lines) > 1 and lines[0].endswith(":"):
        lines[0] += f" {lines[1]}"  # the first line only announces the second
    message = lines[0] if lines else ""
    longest = _LONGEST - len(error.type) - len(": ")
    values: Values = {"error": error.type, "message": _beginning(message, longest)}
    if error.undefined_name:
        values["name"] = error.undefined_name
    elif error.type == "AttributeError" and (found := _NO_ATTRIBUTE.search(error.message)):
        values["name"] = found[1]
    return values


def _beginning(message: str, longest: int) -> str:
    """Return the sentences of a message that fit; of a first one that is too long, whole words."""
    if len(message) <= longest:
        return message
    ends = [found.end() for found in re.finditer(r"[.!?](?=\s)", message[: longest + 1])]
    whole = [end for end in ends if end >= longest // 3 and _closed(message[:end])]
    if whole:
        return message[: whole[-1]]
    words = message[: longest - 1].rpartition(" ")[0] or message[: longest - 2]
    while not _closed(words) and words.rfind("(") >= longest // 2:
        words = words[: words.rfind("(")]
    return f"{words.rstrip()} …"


def _closed(text: str) -> bool:
    """Return whether each bracket of a text is closed in it."""
    return text.count("(") <= text.count(")")


RULES = (exceptions,)
