"""Hints: a sum that is taken for a mean, and a mean that is divided once more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude_text
from ddt_notebook.diagnosis.cells import syntax
from ddt_notebook.diagnosis.cells.usage import Trail, argument, call_at, called_name, key
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Finding, Position
from ddt_notebook.program.names import WORLD_CALLS, WORLD_NAMES

from .reading import sites

_MEAN = re.compile(r"\b(mean|avg|averaged?)\b", re.IGNORECASE)
_WORLD = WORLD_NAMES | WORLD_CALLS


def sums_shown_as_means(context: Context) -> Iterator[Finding]:
    """Hint: a sum over the ranks is printed as a mean, and nothing divides it."""
    cells = (context.snapshot.cell, *context.snapshot.earlier_cells)
    if context.snapshot.outcome != "ok" or not any(_MEAN.search(cell.source) for cell in cells):
        return
    for place, calls in sites(context, "all_reduce", "reduce").items():
        operations = {call.reduce_op for mine in calls.values() for call in mine}
        if operations != {"SUM"}:
            continue
        node = call_at(context.sources, place, next(iter(calls.values()))[0].op)
        statement = context.sources.statement(place)
        start = key(argument(node, 0, "tensor")) if node is not None else None
        if start is None or statement is None or _divides(context, place):
            continue
        shown = {}
        for rank in calls:
            trail = Trail(context.sources, rank, frozenset())
            _, use = trail.follow(place.cell or 0, statement, start) or (0, None)
            if use and use.kind == "print" and not use.scaled and _MEAN.search(use.text):
                shown[rank] = use
        if shown:
            line = next(iter(shown.values())).line
            yield conclude_text(
                "D.2.4",
                f"line {line} shows the sum over {len(calls)} ranks as a mean",
                cause="sum-shown-as-mean",
                ranks=shown,
                places=dict.fromkeys(shown, context.sources.place(place.cell, line, "reads")),
                evidence=[f"summed at {context.label(place)}", "nothing divides it"],
                confidence="possible",
                op=next(iter(calls.values()))[0].op,
            )


def _divides(context: Context, place: Position) -> bool:
    """Whether the cell of a line divides by anything at all, or takes a mean."""
    tree = context.sources.tree(place.cell)
    return tree is None or any(
        isinstance(node, (ast.Div, ast.FloorDiv))
        or (isinstance(node, ast.Call) and any(syntax.calls(node, n) for n in ("mean", "div_")))
        for node in ast.walk(tree)
    )


def averaged_twice(context: Context) -> Iterator[Finding]:
    """Hint: what ``ReduceOp.AVG`` has averaged is divided by the number of ranks."""
    if context.snapshot.outcome != "ok":
        return
    for place, calls in sites(context, "all_reduce", "reduce").items():
        first = next(iter(calls.values()))[0]
        if {call.reduce_op for mine in calls.values() for call in mine} != {"AVG"}:
            continue
        node = call_at(context.sources, place, first.op)
        tree, statement = context.sources.tree(place.cell), context.sources.statement(place)
        result = key(argument(node, 0, "tensor")) if node is not None else None
        if result is None or tree is None or statement is None:
            continue
        line = _divided_by_world(syntax.following(tree, statement)[0], result)
        if line is not None:
            shown = context.sources.place(place.cell, line, "changes")
            yield conclude_text(
                "D.2.4",
                f"line {line} divides by the number of ranks what {first.label} has averaged",
                cause="averaged-twice",
                ranks=calls,
                places=dict.fromkeys(sorted(calls), shown),
                evidence=[f"averaged over the ranks at {context.label(place)}"],
                confidence="possible",
                op=first.op,
            )


def _divided_by_world(blocks: list[list[ast.stmt]], result: str) -> int | None:
    """The line that divides a value by the number of ranks, before it is assigned anew."""
    for statement in (one for block in blocks for one in block):
        for node in ast.walk(statement):
            match node:
                case ast.AugAssign(target=target, op=ast.Div(), value=divisor):
                    pass
                case ast.BinOp(left=target, op=ast.Div(), right=divisor):
                    pass
                case ast.Call(func=ast.Attribute(value=target, attr="div_"), args=[divisor]):
                    pass
                case _:
                    continue
            while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
                target = target.func.value  # `x.item() / world_size`
            if key(target) == result and _is_world(divisor):
                return getattr(node, "lineno", None)
        if isinstance(statement, ast.Assign) and result in map(key, statement.targets):
            return None
    return None


def _is_world(node: ast.AST) -> bool:
    name = called_name(node) if isinstance(node, ast.Call) else (key(node) or "")
    return name.rpartition(".")[2] in _WORLD
