"""Explains why ranks parted that make each collective at lines of their own."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddt_notebook.model import Call, Position, RankReport
from ddt_notebook.program.escape_paths import Reason
from ddt_notebook.program.nodes import covers
from ddt_notebook.program.program import Program

#: How many of a rank's last collectives are looked at. Chosen, not measured.
_LATEST = 64
#: Priority of a reason within the lines of one rank: the condition around both sides is none.
OWN_LINES = -2
_OTHER = {"body": "orelse", "orelse": "body"}


def by_own_lines(
    program: Program,
    call: Call,
    caller: RankReport,
    absent: RankReport,
    at: Position | None,
    reason: Reason,
) -> Reason | None:
    """A better reason than a condition on the rank, if the ranks met by its arms; None for none.

    Ranks with different parts, such as one that plays and others that learn, part for good at such
    a condition and then meet from its two arms. So it is no reason; but a loop in one of the arms
    may end before the other arm's, or a condition there may keep a rank from its own line.
    """
    if reason.kind != "keeps-from-line":
        return reason
    met = _met_by_arms(program, call, caller, absent)
    if met is None:
        return reason
    node, last = met
    if at is None:
        better = _left_loop(program, node, caller.rank, absent.rank, last)
    else:
        better = _kept_from_own_line(program, call, absent.rank, at)
    told = better is None and program.statement_at(reason.place) is node
    return None if told else better or reason


def gave_parts(
    program: Program,
    call: Call,
    caller: RankReport,
    absent: RankReport,
    at: Position | None,
    reason: Reason,
) -> bool:
    """Whether ranks met by both arms of the condition of a reason, and still are in them.

    It gave them their parts long before the call, as it does to a rank that takes requests and to
    others that follow it.
    """
    met = _met_by_arms(program, call, caller, absent)
    if met is None or at is None or program.statement_at(reason.place) is not met[0]:
        return False
    here = (one for one in reversed(absent.calls) if one.where and one.where.is_same_line(at))
    last = next(here, None)
    return last is not None and met[0] in by_arms(program, call, last)


def by_arms(program: Program, one: Call, other: Call) -> Iterator[ast.If]:
    """Conditions on the rank by whose different arms two ranks came to their calls."""
    for line in _way(one):
        for block in program.blocks(program.statement_at(line)):
            node = block.owner
            if isinstance(node, ast.If) and program.conditions.reads_rank(node.test):
                mine, theirs = _arm(node, line.file, _way(one)), _arm(node, line.file, _way(other))
                if mine is not None and theirs == _OTHER[mine]:
                    yield node


def _met_by_arms(
    program: Program, call: Call, caller: RankReport, absent: RankReport
) -> tuple[ast.If, Call] | None:
    """The condition around a call by whose arms ranks met before, and the call of ``absent``."""
    made = {
        one.sequence: one
        for one in caller.calls
        if (one.kind, one.group) == (call.kind, call.group) and one.sequence != call.sequence
    }
    for last in reversed(absent.calls[-_LATEST:]):
        if (last.kind, last.group) == (call.kind, call.group) and last.sequence in made:
            nodes = [*by_arms(program, made[last.sequence], last)]
            return next(((one, last) for one in nodes if one in _around(program, call)), None)
    return None


def _around(program: Program, call: Call) -> list[ast.AST]:
    """The blocks around the lines that led to a call."""
    blocks = [program.blocks(program.statement_at(line)) for line in _way(call)]
    return [one.owner for some in blocks for one in some]


def _left_loop(
    program: Program, node: ast.If, caller: int, absent: int, last: Call
) -> Reason | None:
    for line in _way(last):
        for loop in program.loops(line):
            if line.file == program.place(node).file and covers(loop, node.lineno):
                return None  # both arms are in it
            return Reason(
                cause="uneven-iterations",
                kind="left-own-loop",
                place=program.place(loop, "passed"),
                rank=absent,
                values={"caller": caller, "met": last.op},
                priority=OWN_LINES,
            )
    return None


def _kept_from_own_line(program: Program, call: Call, absent: int, at: Position) -> Reason | None:
    """The condition that kept a rank from such a call before its line in the same function."""
    here = program.functions_around(at)[:1]
    found = []
    for made in program.calls(call.op):
        line = program.place(made)
        if (
            line.file != at.file
            or line.line >= at.line
            or program.functions_around(line)[:1] != here
        ):
            continue
        owner = next((b.owner for b in program.blocks(made) if isinstance(b.owner, ast.If)), None)
        if owner is not None and not covers(owner, at.line):
            found.append((owner, line.line))
    if len(found) != 1:
        return None
    ((owner, line_of_call),) = found
    return Reason(
        cause="rank-skips-collective",
        kind="keeps-from-line",
        place=program.place(owner, "passed"),
        rank=absent,
        values={"call_line": line_of_call},
        priority=OWN_LINES,
    )


def _way(call: Call) -> tuple[Position, ...]:
    return (call.where, *call.callers) if call.where is not None else ()


def _arm(node: ast.If, file: str, way: Iterable[Position]) -> str | None:
    """The arm of a condition through which a rank came to a call; None if it is in neither."""
    lines = [line.line for line in way if line.file == file]
    for arm in ("body", "orelse"):
        statements: list[ast.stmt] = getattr(node, arm)
        if any(covers(one, line) for one in statements for line in lines):
            return arm
    return None
