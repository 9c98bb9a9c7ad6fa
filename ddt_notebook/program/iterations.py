"""How often a rank makes a call, by its record and by the loops around the call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence

from ddt_notebook.model import Call, Position, RankReport

from .nodes import (
    FunctionNode,
    break_conditions,
    called_name,
    calls_in,
    covers,
    is_call,
    parameters,
)
from .program import Program

_DEPTH = 4  #: how many calls of the program's own functions are followed


def times_called(
    call: Call, report: RankReport, inside: Callable[[Position], bool] = lambda line: True
) -> int | None:
    """How often a rank made the same call from the same line; None if it is not known.

    Parameters
    ----------
    inside
        Returns whether a line belongs to the statement that led to the call. A function that
        several statements call is counted for this one only, if the calls' ways are known.
    """
    where = call.where
    such = [c for c in _until(call, report) if (c.group, c.op) == (call.group, call.op)]
    if where is None or any(one.where is None for one in such):
        return None
    here = [one for one in such if one.where is not None and one.where.is_same_line(where)]
    if call.callers and all(one.callers for one in here):
        here = [one for one in here if any(map(inside, (where, *one.callers)))]
    return len(here)


def times_issued(call: Call, report: RankReport) -> int:
    """How often a rank, or the library that issued ``call``, made the same call on its group."""
    kind = (call.group, call.op, call.caller)
    return sum((other.group, other.op, other.caller) == kind for other in _until(call, report))


def lacks_stacks(call: Call, report: RankReport) -> bool:
    """Whether a rank's Flight Recorder tells neither line nor issuer of the same operation.

    A rank that is too busy does not tell the stacks in time.
    """
    return any(
        one.source == "flight recorder"
        and one.where is None
        and not one.caller
        and (one.group, one.op) == (call.group, call.op)
        for one in report.calls
    )


def _until(call: Call, report: RankReport) -> Iterator[Call]:
    """The calls of a rank, up to the one with the same group and sequence number as ``call``."""
    for other in report.calls:
        yield other
        if call.sequence and (other.group, other.sequence) == (call.group, call.sequence):
            return


def have_fixed_rounds(program: Program, places: Iterable[Position]) -> bool:
    """Whether loops enclose these lines, and all have as many iterations on every rank."""
    loops = [loop for place in places for loop in program.loops(place)]
    return bool(loops) and all(
        not isinstance(loop, ast.While)
        and program.conditions.is_fixed_range(loop.iter)
        and not any(break_conditions(loop))
        for loop in loops
    )


def counts_to_default(program: Program, iterable: ast.expr) -> bool:
    """Whether a loop is over ``range(limit)``, a parameter whose default all calls leave as it is.

    The default is a number.
    """
    match iterable:
        case ast.Call(func=ast.Name(id="range"), args=[ast.Name(id=limit)]):
            pass
        case _:
            return False
    owners = (block.owner for block in program.blocks(iterable))
    function = next((one for one in owners if isinstance(one, FunctionNode)), None)
    if function is None or limit not in parameters(function):
        return False
    stored = (n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == limit)
    if any(isinstance(one.ctx, ast.Store) for one in stored):
        return False
    given = [*function.args.posonlyargs, *function.args.args]
    names = (one.arg for one in reversed(given))
    defaults = dict(zip(names, reversed(function.args.defaults), strict=False))
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    defaults |= {one.arg: value for one, value in named if value is not None}
    calls = program.calls(function.name)
    known = parameters(function)
    before = known.index(limit) - (known[0] in ("self", "cls"))
    return isinstance(defaults.get(limit), ast.Constant) and all(
        len(call.args) <= before
        and all(one.arg not in (limit, None) for one in call.keywords)
        and not any(isinstance(one, ast.Starred) for one in call.args)
        for call in calls
    )


def comes_again(program: Program, place: Position, op: str) -> bool | None:
    """Whether a rank would call ``op`` again after a line, in its loop or in its block.

    None if the source is not known.
    """
    if program.tree_at(place) is None:
        return None
    if program.loops(place):
        return True
    blocks = program.blocks(program.statement_at(place))
    after = blocks[0].after if blocks else []
    return any(is_call(call, op) for statement in after for call in calls_in(statement))


def comes_to(program: Program, frames: Iterable[Position], target: Position) -> bool:
    """Whether a rank would come to a line after those that led to its call, in the same round.

    Parameters
    ----------
    frames
        The lines that led to the call, innermost first.
    """
    return any(
        leads_to(program, statement, target)
        for frame in frames
        for block in program.blocks(program.statement_at(frame))
        for statement in block.after
    )


def last_met_in(program: Program, node: ast.stmt, one: RankReport, other: RankReport) -> bool:
    """Whether both ranks made the last collective that both have made in a statement, as a loop.

    A rank that is outside of the loop now has left it since. It may come back, but to another run
    of the loop.
    """
    made = {_meeting(call): call for call in one.calls if call.sequence is not None}
    for call in reversed(other.calls):
        met = made.get(_meeting(call))
        if met is not None:
            return all(_was_made_in(program, node, each) for each in (met, call))
    return False


def _meeting(call: Call) -> tuple[str, str, int | None]:
    return call.kind, call.group, call.sequence


def _was_made_in(program: Program, node: ast.stmt, call: Call) -> bool:
    """Whether a line that led to a call belongs to a statement."""
    file = program.tree_of(node).document.name
    lines = (line for line in (call.where, *call.callers) if line is not None)
    return any(line.file == file and covers(node, line.line) for line in lines)


def inside_passed(
    program: Program, frames: Sequence[Position], ahead: Sequence[Position]
) -> list[Position]:
    """The lines of a rank that lie within a statement that another rank has run before its own.

    Both ranks are in the same round of the same function there, and no condition is around the
    statement that the other rank's line does not share. The list is empty if there is no such
    statement, or if the rank's line is in it without a function of the program in between.

    Parameters
    ----------
    frames, ahead
        The lines that led to the calls of the two ranks, innermost first.
    """
    for depth, (mine, theirs) in enumerate(zip(reversed(frames), reversed(ahead), strict=False)):
        if mine.is_same_line(theirs):
            continue
        statement = program.statement_at(mine)
        blocks = program.blocks(program.statement_at(theirs))
        passed = any(statement is one for block in blocks for one in block.before)
        return list(frames[: len(frames) - 1 - depth]) if passed else []
    return []


def leads_to(program: Program, statement: ast.stmt, target: Position, depth: int = _DEPTH) -> bool:
    """Whether a statement contains a line, or calls functions of the program that lead to it."""
    if isinstance(statement, (FunctionNode, ast.ClassDef)):
        return False  # what is only defined there does not run there
    if program.tree_of(statement).document.name == target.file and covers(statement, target.line):
        return True
    return depth > 0 and any(
        leads_to(program, inner, target, depth - 1)
        for call in calls_in(statement)
        for function in program.functions.get(called_name(call), ())
        if not _is_of_an_object(program, call, function)
        for inner in function.body
    )


def _is_of_an_object(program: Program, call: ast.Call, function: ast.FunctionDef) -> bool:
    """Whether a call such as ``model.train()`` is not that of the file's own function ``train``."""
    tree = program.tree_of(call)
    of_file = isinstance(program.tree_of(function).parents.get(function), ast.Module)
    return isinstance(call.func, ast.Attribute) and of_file and program.tree_of(function) is tree


def makers(iterable: ast.expr, function: ast.AST) -> set[str]:
    """The names of the functions whose results a loop goes through, also by way of a name."""
    names = {one.id for one in _names(iterable)}
    assigned = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
    made = [
        one.value
        for one in assigned
        if names & {n.id for target in one.targets for n in _names(target)}
    ]
    return {called_name(call) for one in (iterable, *made) for call in calls_in(one)}


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name))
