"""Whether a program takes the number of ranks into account in its batches and its learning rate."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddt_notebook.model import Position

from .conditions import is_world_size
from .nodes import argument, called_name, calls_in, is_call, last_name, parameters
from .program import Program

_DIVISIONS = (ast.Div, ast.FloorDiv)
#: Calls that take the size of a batch, and at which position.
_BATCHED = {"BatchSampler": 1, "split": 0}
_LOADER, _LOADER_POSITION, _BY_NAME_ONLY = "DataLoader", 1, 99
#: Functions that return a number, and count as their arguments.
_NUMBERS = frozenset({"int", "float", "max"})
#: Numbers of ranks to compare: what follows them is the world size.
_SIZES = (2, 6)
_DEPTH = 5  #: how many names are followed to the names that they are computed from

_Changes = dict[str, list[tuple[ast.operator | None, ast.expr]]]


def batch_may_be_shared(program: Program) -> bool:
    """Whether the batch of a step may stay as it is with more ranks: each takes a smaller part.

    That is so if the number of samples in a batch, or of backward passes before a step, is divided
    by the world size anywhere in the program.
    """
    changes = _changes(program)
    return any(_uses_size(program, changes, one, _DIVISIONS) for one in _sizes(program))


def loaders_share_a_batch(program: Program, made_at: Iterable[Position]) -> bool:
    """Whether the batch size of each loader that these lines made is divided by the world size."""
    changes = _changes(program)
    sizes = [_size_at(program, made) for made in made_at]
    return bool(sizes) and all(
        size is not None and _uses_size(program, changes, size, _DIVISIONS) for size in sizes
    )


def _size_at(program: Program, made: Position) -> ast.expr | None:
    """The batch size of the only loader that a line makes."""
    calls = [one for one in program.calls_at(made) if called_name(one).endswith(_LOADER)]
    return argument(calls[0], _LOADER_POSITION, "batch_size") if len(calls) == 1 else None


def grows_with_ranks(program: Program, expression: ast.expr) -> bool:
    """Whether an expression, or a name in it, is multiplied by the world size somewhere."""
    return _uses_size(program, _changes(program), expression, (ast.Mult,))


def shrinks_with_ranks(program: Program, expression: ast.expr) -> bool:
    """Whether an expression, or a name in it, is divided by the world size somewhere."""
    return _uses_size(program, _changes(program), expression, _DIVISIONS)


def _sizes(program: Program) -> Iterator[ast.expr]:
    """The expressions that are the size of a batch, or count the backward passes of a step."""
    for tree in program.trees.values():
        for call in tree.of_kind(ast.Call):
            name = called_name(call)
            position = _BATCHED.get(name, _BY_NAME_ONLY)
            position = _LOADER_POSITION if name.endswith(_LOADER) else position
            size = argument(call, position, "batch_size")
            if size is not None:
                yield size
        for loop in tree.of_kind(ast.For):
            passes = _calls(loop, "backward") and not _calls(loop, "step")
            if passes and is_call(loop.iter, "range") and isinstance(loop.iter, ast.Call):
                yield from loop.iter.args[-1:]
        for branch in tree.of_kind(ast.If):
            for part in ast.walk(branch.test) if _calls(branch, "step") else ():
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod):
                    yield part.right


def _calls(node: ast.stmt, name: str) -> bool:
    return any(called_name(call) == name for call in calls_in(node))


def _changes(program: Program) -> _Changes:
    """What is assigned or passed to each variable, attribute, parameter and key, by its name."""
    found: _Changes = {}

    def note(target: ast.expr, value: ast.expr | None, by: ast.operator | None = None) -> None:
        name = _name(target)
        if name and value is not None:
            found.setdefault(name, []).append((by, value))

    for node in program.nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    note(target, value)
                    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                        for one, item in zip(target.elts, value.elts, strict=False):
                            note(one, item)
            case ast.AugAssign(target=target, op=sign, value=value):
                note(target, value, sign)
            case ast.AnnAssign(target=target, value=given):
                note(target, given)
            case ast.Call(keywords=keywords, args=args):
                for keyword in keywords:
                    if keyword.arg is not None:
                        found.setdefault(keyword.arg, []).append((None, keyword.value))
                for function in program.functions.get(called_name(node), ()):
                    names = [name for name in parameters(function) if name not in ("self", "cls")]
                    for name, value in zip(names, args, strict=False):
                        found.setdefault(name, []).append((None, value))
    return found


def _name(node: ast.AST) -> str:
    """The last name of a variable or an attribute; of ``settings["lr"]`` its key."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return last_name(node)


def _uses_size(
    program: Program, changes: _Changes, expression: ast.expr, signs: tuple[type[ast.operator], ...]
) -> bool:
    """Whether an expression is computed by dividing by the world size, or by multiplying with it.

    Names are followed to what they are computed from.
    """
    seen: set[str] = set()
    expressions = [expression]
    for _ in range(_DEPTH):
        following: list[ast.expr] = []
        for node in (inner for one in expressions for inner in ast.walk(one)):
            match node:
                case ast.BinOp(left=left, op=sign, right=right) if isinstance(sign, signs):
                    sides = (left, right) if isinstance(sign, ast.Mult) else (right,)
                    if any(_holds_size(program, changes, side) for side in sides):
                        return True
            name = _name(node)
            if not name or name in seen:
                continue
            seen.add(name)
            for sign_of_change, value in changes.get(name, ()):
                by_size = isinstance(sign_of_change, signs)
                if by_size and _holds_size(program, changes, value):
                    return True
                following.append(value)
        expressions = following
    return False


def _holds_size(program: Program, changes: _Changes, factor: ast.expr, depth: int = 0) -> bool:
    """Whether a factor is the world size, the number of GPUs, or a product with one of them."""
    match factor:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return any(_holds_size(program, changes, side, depth) for side in (left, right))
        case ast.Call(args=args) if called_name(factor) in _NUMBERS:
            return any(_holds_size(program, changes, one, depth) for one in args)
    if is_world_size(factor) or is_call(factor, "device_count"):
        return True
    if all(program.conditions.number(factor, size) == size for size in _SIZES):
        return True
    values = changes.get(_name(factor), []) if depth < _DEPTH else []
    return any(
        sign is None and _holds_size(program, changes, value, depth + 1) for sign, value in values
    )
