"""What a cell does on one rank only, as its source says."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.diagnosis.cells import syntax
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Position

_REPEATED = (ast.For, ast.While, ast.FunctionDef)
#: A condition made of these is the same whenever it is asked.
_PLAIN = (
    *(ast.Expression, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Name, ast.Constant),
    *(ast.cmpop, ast.boolop, ast.unaryop, ast.expr_context, ast.Tuple, ast.List),
    *(ast.Add, ast.Sub, ast.Mod, ast.FloorDiv),
)
_MAX_FOUND = 3


def only_for(context: Context, rank: int) -> list[str]:
    """The lines of conditions, within loops or functions, that hold on this rank alone."""
    number = context.snapshot.world_size
    found: list[str] = []
    for condition, place in _conditions(context):
        holds = [_holds(condition, one, number) for one in range(number)]
        if None not in holds and [at for at, true in enumerate(holds) if true] == [rank]:
            found.append(context.label(place))
    return list(dict.fromkeys(found))[:_MAX_FOUND]


def _conditions(context: Context) -> Iterator[tuple[ast.expr, Position]]:
    cell = context.snapshot.cell
    tree = syntax.parse(cell)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, _REPEATED):
            continue
        for part in ast.walk(node):
            if isinstance(part, (ast.If, ast.IfExp)):
                yield part.test, Position(file=f"cell[{cell.number}]", line=part.lineno)


def _holds(condition: ast.expr, rank: int, world_size: int) -> bool | None:
    """Whether a condition on the rank holds; None if it depends on anything else."""
    if not all(isinstance(part, _PLAIN) for part in ast.walk(condition)):
        return None
    known = {"rank": rank, "local_rank": rank, "world_size": world_size}
    names = {part.id for part in ast.walk(condition) if isinstance(part, ast.Name)}
    if not names or not names <= known.keys():
        return None
    code = compile(ast.Expression(condition), "<condition>", "eval")
    try:
        return bool(eval(code, {"__builtins__": {}}, known))  # noqa: S307  (names and numbers only)
    except (TypeError, ValueError, ArithmeticError, MemoryError):
        return None
