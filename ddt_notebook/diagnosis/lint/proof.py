"""What the source itself proves. A finding that needs more than this is a hint.

A file does not show who imports it, how its processes are started, what an imported function does,
or what the environment holds. A finding is more than a hint only if both paths are in the file.
"""

from __future__ import annotations

import ast
import builtins
import sys

from ddt_notebook.model.operations import OPERATIONS
from ddt_notebook.program.conditions import mentions_rank
from ddt_notebook.program.names import (
    FIRST_RANK,
    RANK_CALLS,
    RANK_NAMES,
    RANK_VARIABLES,
)
from ddt_notebook.program.nodes import (
    FunctionNode,
    called_name,
    calls_in,
    is_constant,
    keyword,
    last_name,
    root_name,
)
from ddt_notebook.program.project import Project
from ddt_notebook.program.trace import Event, Kind
from ddt_notebook.program.traced_program import TracedProgram
from ddt_notebook.program.values import ON_RANK, OTHER_RANK

#: What a condition on the rank names. ``should_save`` and the like also mean other things.
_RANK = RANK_NAMES | RANK_CALLS | RANK_VARIABLES | FIRST_RANK - {"should_save", "should_log"}
#: Functions that ask for an object's type or attributes, which all ranks have alike.
_ABOUT_OBJECTS = ("callable", "getattr", "hasattr", "isinstance")
#: Functions that start processes, which then share one environment.
_STARTS = ("spawn", "start_processes", "Process")
#: Packages whose functions do not depend on what other workers or ranks read.
_KNOWN_PACKAGES = sys.stdlib_module_names | {"torch", "numpy"}
#: Methods of Python's own types.
_BUILTIN_METHODS = frozenset(
    name for kind in (str, bytes, list, tuple, dict, set, range, int, float) for name in dir(kind)
)
#: Modules and functions of random numbers, which differ between the workers of a loader.
_RANDOM_MODULES = frozenset({"random", "secrets"})
_RANDOM = frozenset({"rand", "randn", "randint", "randperm", "normal", "multinomial", "uniform"})


def is_cell(program: TracedProgram) -> bool:
    """Whether it is a cell: each rank of a session runs it, with a group and one environment."""
    return program.project is None


def in_one_function(program: TracedProgram, *lines: int) -> bool:
    """Whether lines are in the same function of the program's own file."""
    if any(map(Project.is_elsewhere, lines)):
        return False
    return len({program.tree.function_at(line) for line in lines}) == 1


def may_be_of_some_ranks(program: TracedProgram, event: Event) -> bool:
    """Whether an event happens on some ranks only, or a condition of unknown value may say so."""
    return program.is_alone(event) or any(
        not one.sure and (one.marks & (ON_RANK | {OTHER_RANK}) or reads_rank(program, one.line))
        for one in event.around
    )


def reads_rank(program: TracedProgram, line: int) -> bool:
    """Whether the condition at a line of the program compares the rank itself."""
    match program.tree.statement_at(line):
        case ast.If(test=test) | ast.While(test=test) | ast.Assert(test=test):
            return _compares_rank(test)
        case ast.Match(subject=subject):
            return mentions_rank(subject, _RANK)
        case ast.stmt() as statement:
            conditions = (one.test for one in ast.walk(statement) if isinstance(one, ast.IfExp))
            return any(map(_compares_rank, conditions))
    return False


def _compares_rank(test: ast.expr) -> bool:
    """Whether a condition names the rank in a comparison that does not hold for all ranks alike.

    ``rank >= 0``, ``rank is None`` and ``rank < world_size`` ask whether there are ranks.
    """
    match test:
        case ast.BoolOp(values=values):
            return any(map(_compares_rank, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _compares_rank(operand)
        case ast.Call() if called_name(test) in _ABOUT_OBJECTS:
            return False
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            sides = (left, right) if mentions_rank(left, _RANK) else (right, left)
            if mentions_rank(sides[0], _RANK):
                return not _is_limit(sign, sides[1])
            return False
    return mentions_rank(test, _RANK)


def _is_limit(sign: ast.cmpop, side: ast.expr) -> bool:
    """Whether every rank may compare alike to a value: none, below 0, or a limit with a name."""
    match side:
        case ast.Constant(value=None) | ast.UnaryOp(op=ast.USub()):
            return True
        case ast.Constant(value=0):
            return isinstance(sign, (ast.GtE, ast.Lt))
        case ast.Constant():
            return False
    return isinstance(sign, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))


def concerns_all_ranks(program: TracedProgram, op: str, line: int) -> bool:
    """Whether a call at a line names no group, so that it needs every rank."""
    call = program.tree.call_at(line, op)
    if call is None:
        return True
    groups = (keyword(call, name) for name in ("group", "process_group", "pg"))
    given = [one for one in groups if one is not None and not is_constant(one, None)]
    operation = OPERATIONS.get(op)
    position = operation.position("group") if operation is not None else None
    if position is not None and len(call.args) > position:
        given.append(call.args[position])
    return not given


def is_called_elsewhere(program: TracedProgram, op: str, line: int) -> bool:
    """Whether other functions also make a call under a condition on the rank.

    The other ranks may make it there: one function lets them wait, and another one releases them.
    """
    here = program.tree.function_at(line)
    for call in program.tree.calls.get(op, ()):
        if program.tree.function_at(call.lineno) is here:
            continue
        at: ast.AST | None = call
        while at is not None:  # the function may be defined under the condition
            if isinstance(at, ast.If) and mentions_rank(at.test, _RANK):
                return True
            at = program.tree.parents.get(at)
    return False


def runs_on_several_ranks(program: TracedProgram) -> bool:
    """Whether the program itself forms the group, or is a cell of a session that has one."""
    return is_cell(program) or any(
        not event.may_not_happen for event in program.first.of(Kind.GROUP_FORMED)
    )


def shares_environment(program: TracedProgram) -> bool:
    """Whether the program starts the ranks itself, so that all of them see the same GPUs."""
    return is_cell(program) or program.calls(*_STARTS)


def knows_all_calls(program: TracedProgram) -> bool:
    """Whether the program calls no function whose source has not been read."""
    return not program.first.of(Kind.UNKNOWN_CALL)


def is_tried(program: TracedProgram, node: ast.AST) -> bool:
    """Whether a statement is in a ``try`` block or depends on a condition, e.g. on the version."""
    return any(isinstance(block.owner, (ast.Try, ast.If)) for block in program.tree.blocks(node))


def reads_alone(program: TracedProgram, node: ast.ClassDef) -> bool:
    """Whether nothing in a class can make one process read other data than another.

    It calls only functions whose behaviour is known: Python's own, its own methods, and functions
    of the standard library, torch and numpy that give the same in every process.
    """
    # Cells need not import torch, which every rank has done.
    packages = {"torch": "torch"} | {
        (alias.asname or alias.name).partition(".")[0]: module.partition(".")[0]
        for statement in program.tree.nodes
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for alias in statement.names
        for module in [_module(statement, alias)]
    }
    own = {one.name for one in node.body if isinstance(one, FunctionNode)}
    return all(_is_known(call, packages, own) for call in calls_in(node))


def _module(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The module of an imported name; one that an import names relatively has no name here."""
    if isinstance(statement, ast.Import):
        return alias.name
    return "" if statement.level else statement.module or ""


def _is_known(call: ast.Call, packages: dict[str, str], own: set[str]) -> bool:
    """Whether a call is known to give the same in every process."""
    root, name = root_name(call.func), last_name(call.func)
    if root in packages:
        package = packages[root]
        alike = package not in _RANDOM_MODULES and name not in _RANDOM
        return alike and package in _KNOWN_PACKAGES
    if isinstance(call.func, ast.Name):
        return hasattr(builtins, name)
    return name in _BUILTIN_METHODS or name in own or root == "super"
