"""Finds where a class updates a buffer of its own from what it held before, and reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.model import Place

from .nodes import called_name, is_metadata, parameters
from .program import Program
from .tree import Tree

#: Functions that show what they are given, or only ask for its size.
_SHOWS = frozenset({"print", "len", "info", "debug", "log", "add_scalar", "add_histogram"})
#: Methods that write all elements anew: what the buffer held before has no effect.
_OVERWRITES = frozenset({"copy_", "zero_", "fill_", "normal_", "uniform_", "set_"})


def accumulates(program: Program, buffer: str) -> list[Place]:
    """The lines that update a buffer from its old content, if the program also computes with it.

    A state that is written anew, or that a layer returns, such as that of a recurrent network,
    belongs to each rank's batch. One that is only counted up does not reach the model's result.
    """
    found = []
    for tree in program.trees.values():
        for owner in tree.of_kind(ast.ClassDef):
            if not _registers(owner, buffer):
                continue
            uses = [one for one in ast.walk(owner) if _is_own(one, buffer)]
            statements = {s: None for one in uses if (s := tree.statement_of(one)) is not None}
            updates = [
                one
                for one in statements
                if _updates(one, buffer) or _updates_by_function(program, one, buffer)
            ]
            if updates and is_read(program, buffer):
                found += [program.place(one, "changes") for one in updates]
    return found


def _registers(owner: ast.ClassDef, buffer: str) -> bool:
    return any(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr == "register_buffer"
        and any(isinstance(a, ast.Constant) and a.value == buffer for a in one.args[:1])
        for one in ast.walk(owner)
    )


def _is_own(node: ast.AST, buffer: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == buffer
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def mentions_own(node: ast.AST, buffer: str) -> bool:
    """Whether a method mentions an attribute of its object."""
    return any(_is_own(one, buffer) for one in ast.walk(node))


def _updates(statement: ast.stmt, buffer: str) -> bool:
    if isinstance(statement, ast.AugAssign):
        return mentions_own(statement.target, buffer)
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        if _is_own(target, buffer):
            return _combines(statement.value, buffer)
        if isinstance(target, ast.Subscript) and _is_own(_without_data(target.value), buffer):
            return _is_part(target.slice)
        return False
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    methods = list(_methods(call))
    return (
        any(name.endswith("_") and name not in _OVERWRITES for name in methods)
        and not any(name in _OVERWRITES for name in methods)
        and _is_own(_receiver(call), buffer)
    )


def _is_part(index: ast.expr) -> bool:
    return not isinstance(index, ast.Slice) or bool(index.lower or index.upper)


def _without_data(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node


def _updates_by_function(program: Program, statement: ast.stmt, buffer: str) -> bool:
    """Whether a statement gives the buffer to a function of the program that updates it in place.

    Such is ``ema_inplace(self.book, new, decay)``, or a method: ``self.enqueue(keys, self.queue)``.
    """
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not (
        isinstance(call.func, ast.Name) or _is_own(call.func, called_name(call))
    ):
        return False
    before = int(isinstance(call.func, ast.Attribute))  # a method has ``self`` before
    given: list[int | str | None] = [
        at for at, one in enumerate(call.args, before) if _is_own(_without_data(one), buffer)
    ]
    given += [one.arg for one in call.keywords if _is_own(_without_data(one.value), buffer)]
    return any(
        _changes_in_place(function, name)
        for tree in program.trees.values()
        for function in tree.functions.get(called_name(call), [])
        if (names := parameters(function))
        for one in given
        if (name := names[one] if isinstance(one, int) and one < len(names) else one) in names
    )


def _changes_in_place(function: ast.FunctionDef, name: object) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if (
                isinstance(target, ast.Subscript)
                and isinstance(of := _without_data(target.value), ast.Name)
                and of.id == name
            ):
                return _is_part(target.slice)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            methods = list(_methods(node.value))
            receiver = _without_data(_receiver_of(node.value))
            if isinstance(receiver, ast.Name) and receiver.id == name and methods:
                return all(one.endswith("_") and one not in _OVERWRITES for one in methods)
    return False


def _receiver_of(call: ast.Call) -> ast.expr:
    node: ast.expr = call
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node


def _combines(value: ast.expr, buffer: str) -> bool:
    """Whether a new value is made from the old one, and not by a layer that is given it."""
    if not mentions_own(value, buffer):
        return False
    return not any(
        isinstance(one, ast.Call)
        and isinstance(one.func, (ast.Attribute, ast.Name))
        and (isinstance(one.func, ast.Name) or ast.unparse(one.func).startswith("self."))
        and not mentions_own(one.func, buffer)
        and any(mentions_own(a, buffer) for a in one.args)
        for one in ast.walk(value)
    )


def _methods(call: ast.Call) -> Iterator[str]:
    node: ast.expr = call
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node.func.attr
        node = node.func.value


def _receiver(call: ast.Call) -> ast.expr:
    """What a chain of methods begins with: ``self.book`` in ``self.book.mul_(a).add_(b)``."""
    node: ast.expr = call
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            break
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def is_read(program: Program, buffer: str) -> bool:
    """Whether something is computed from the buffer, other than its update or what is printed."""
    return any(
        one.attr == buffer and isinstance(one.ctx, ast.Load) and _computes(tree, one, buffer)
        for tree in program.trees.values()
        for one in tree.of_kind(ast.Attribute)
    )


def _computes(tree: Tree, node: ast.Attribute, buffer: str) -> bool:
    statement = tree.statement_of(node)
    if statement is None or isinstance(statement, ast.Assert) or _updates(statement, buffer):
        return False
    around: ast.AST | None = tree.parents.get(node)
    while around is not None and around is not statement:
        if is_metadata(around) or isinstance(around, ast.JoinedStr):
            return False
        if isinstance(around, ast.Call) and called_name(around) in _SHOWS:
            return False
        around = tree.parents.get(around)
    return True
