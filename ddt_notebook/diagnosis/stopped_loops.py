"""Explains ranks that part because only one of them asked a trainer to end its loop."""

from __future__ import annotations

from ddt_notebook.model import Call, Position, RankReport
from ddt_notebook.model.frameworks import asks_to_stop
from ddt_notebook.program.conditional_lines import condition_at
from ddt_notebook.program.escape_paths import Reason
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
    if one.reduce_op is not None:
        return _by_callback(program, where, one.reduce_op, absent.rank)
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


def _asked(report: RankReport) -> list[Call]:
    return [call for call in report.calls if asks_to_stop(call.op)]
