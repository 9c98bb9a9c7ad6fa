"""Explains ranks that part because only one of them ended a trainer's loop, or a framework."""

from __future__ import annotations

from ddt_notebook.model import Call, Position, RankReport
from ddt_notebook.model.frameworks import asks_to_stop, ends_framework
from ddt_notebook.program.conditional_lines import condition_at
from ddt_notebook.program.escape_paths import Reason
from ddt_notebook.program.iterations import comes_to
from ddt_notebook.program.nodes import covers
from ddt_notebook.program.program import Program

from .parting_reasons import IN_CALLBACK


def stopped_alone(program: Program, caller: RankReport, absent: RankReport) -> Reason | None:
    """Why ``absent`` went past a call of ``caller``: it had asked the trainer to stop before.

    None if the other rank had asked as often; the record holds on to it also if the rank died.
    """
    asked, other = _asked(absent), _asked(caller)
    if len(asked) <= len(other):
        return None
    one = asked[len(other)]
    where = one.where
    if where is None:
        return None
    if one.detail is not None:
        return _by_callback(program, where, one.detail, absent.rank)
    decision = condition_at(program, where)
    if decision is None:
        return None  # a callback of the library, whose condition is not the user's
    conditions = program.conditions
    if conditions.reads_rank(decision.test):
        cause = "early-exit-on-rank-condition"
    elif conditions.reads_clock(decision.test):
        cause = "loop-ends-by-clock"
    else:
        cause = "collective-under-local-condition"
    return Reason(
        cause=cause,
        kind="asks-to-stop",
        place=program.place(decision, "passed"),
        rank=absent.rank,
        values={"stop_line": where.line},
        priority=IN_CALLBACK,
    )


def _by_callback(program: Program, where: Position, callback: str, rank: int) -> Reason | None:
    """A callback of the library, which decides by what this rank alone has seen."""
    statement = program.statement_at(where)
    if statement is None:
        return None
    return Reason(
        cause="collective-under-local-condition",
        kind="callback-stops",
        place=program.place(statement, "passed"),
        rank=rank,
        values={"callback": callback},
        priority=IN_CALLBACK,
    )


def ended_framework(
    program: Program, frames: list[Position], caller: RankReport, absent: RankReport
) -> Reason | None:
    """Why ``absent`` went past a call of ``caller``: it had ended the framework on all ranks.

    None if the other rank had done so as often, or would come to that line after its loop, as to
    the end of the program.

    Parameters
    ----------
    frames
        The lines that led to the call, innermost first.
    """
    ended, other = (
        [call for call in report.calls if ends_framework(call.op)] for report in (absent, caller)
    )
    where = ended[len(other)].where if len(ended) > len(other) else None
    statement = program.statement_at(where) if where is not None else None
    if where is None or statement is None:
        return None
    within = any(
        line.file == where.file and covers(loop, where.line)
        for line in frames
        for loop in program.loops(line)
    )
    if not within and comes_to(program, frames, where):
        return None
    decision = condition_at(program, where)
    cause = "rank-skips-collective"
    if decision is not None:
        cause = "collective-under-local-condition"
        if program.conditions.reads_rank(decision.test):
            cause = "early-exit-on-rank-condition"
    return Reason(
        cause=cause,
        kind="ends-framework",
        place=program.place(statement, "passed"),
        rank=absent.rank,
        values={
            "framework": ends_framework(ended[len(other)].op),
            "decided": decision.lineno if decision is not None else None,
        },
        priority=IN_CALLBACK,
    )


def _asked(report: RankReport) -> list[Call]:
    return [call for call in report.calls if asks_to_stop(call.op)]
