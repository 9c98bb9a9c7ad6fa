"""Moves a collective out of ``if rank …``."""

from __future__ import annotations

import ast
from itertools import pairwise

from ddt_notebook.program.names import COMMUNICATING
from ddt_notebook.program.nodes import called_name, calls_in, end

from .fault import Correction, Fault


def out_of_condition(fault: Fault) -> Correction | None:
    """Move the call before, after or between the parts of its condition."""
    return _moved(fault, alone=True)


def new_group_for_all(fault: Fault) -> Correction | None:
    """Do the same for ``new_group``; the members' use of the group stays under the condition."""
    return _moved(fault, alone=False)


def _moved(fault: Fault, *, alone: bool) -> Correction | None:
    """Move the call; with ``alone`` only if the condition holds no other collective."""
    lines = fault.lines_of(fault.finding.waiting or list(fault.finding.places))
    if len(lines) != 1:
        return None
    (line,) = lines
    if any(fact.values.get("call_line", line) != line for fact in fault.finding.facts):
        return None  # ranks make the call at two lines
    call = fault.tree.statement_at(line)
    block = next(fault.tree.blocks(call), None) if call is not None else None
    if call is None or block is None or not isinstance(block.owner, ast.If):
        return None
    node, before, after = block.owner, block.before, block.after
    conditions = fault.program.conditions
    if block.field != "body" or node.orelse or not conditions.reads_rank_alone(node.test):
        return None
    (head,) = fault.slice(node.lineno, node.lineno)
    if (
        not head.lstrip().startswith("if ")
        or not isinstance(call, ast.Expr | ast.Assign)
        or (alone and any(map(_communicates, (*before, *after))))
        or _names(before, ast.Store) & _names([call], ast.Load)
    ):
        return None
    indentation = head[: node.col_offset]
    if node.body[0].lineno == node.lineno:
        if len(node.body) != 1 or end(node) != node.lineno:
            return None
        moved = [indentation + head.encode()[call.col_offset :].decode()]
        changed = fault.with_lines(node.lineno, node.lineno, moved)
        return Correction(changed, _says(node, moved[0]))
    if any(end(one) >= other.lineno for one, other in pairwise(node.body)):
        return None
    first = _head_end(fault, node) + 1
    top = fault.slice(node.lineno, first - 1)
    start = end(before[-1]) + 1 if before else first
    depth = call.col_offset - node.col_offset
    moved = [
        text[depth:] if not text[:depth].strip() else text for text in fault.slice(start, end(call))
    ]
    new = [*top, *fault.slice(first, start - 1)] if before else []
    new += moved
    if after:
        new += [*top, *fault.slice(end(call) + 1, end(node))]
    changed = fault.with_lines(node.lineno, end(node), new)
    return Correction(changed, _says(node, ast.unparse(call)))


def _head_end(fault: Fault, node: ast.If) -> int:
    """Return the last line of ``if …:``; comments below it belong to the body."""
    head = range(node.test.end_lineno or node.lineno, node.body[0].lineno)
    lines = ((number, fault.slice(number, number)[0].strip()) for number in head)
    return max(number for number, text in lines if text and not text.startswith("#"))


def _says(node: ast.If, call: str) -> str:
    return f"`{call.strip()}` stands outside `if {ast.unparse(node.test)}:`"


def _communicates(statement: ast.stmt) -> bool:
    return any(called_name(call) in COMMUNICATING for call in calls_in(statement))


def _names(statements: list[ast.stmt], context: type[ast.expr_context]) -> set[str]:
    """Return the names that statements set or read, also by definitions and imports."""
    found = set()
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, context):
            found.add(node.id)
        elif context is ast.Store and isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif context is ast.Store and isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found
