"""Finds autograd graphs that a loop keeps, and models that are called without their wrapper."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache

from ddt_notebook.model import Place, Position

from .conditions import is_world_size
from .nodes import (
    KEPT,
    FunctionNode,
    LoopNode,
    called_name,
    calls_in,
    contains,
    covers,
    in_scope,
    key,
    last_name,
    names_in,
    variables_in,
)
from .program import Program
from .tree import Tree

_TREES = 64  #: documents whose assignments are remembered

_WITHOUT_GRADIENTS = frozenset({"no_grad", "inference_mode"})
_CLIPS = frozenset({"clip_grad_norm_", "clip_grad_value_"})
#: The names of the limits of these functions.
_LIMITS = frozenset({"max_norm", "clip_value"})
#: Names that turn a tensor into a number, or detach it from its graph.
_DETACHED = frozenset({"item", "detach", "tolist", "numpy", "float", "int", "no_grad", "data"})


def calls_past_wrapper(program: Program, current: str) -> list[Place]:
    """The lines that train the module inside a wrapper directly.

    These are ``ddp.module(x)``, and calls of what ``unwrap(ddp)`` returns if that function of the
    program returns ``.module``, also through a variable of the same function.

    Parameters
    ----------
    current
        The document that ran; its lines come first. Of the other documents, only functions and
        classes are searched, since only these may have run again.
    """
    found = []
    unwrapping = {
        name
        for name, functions in program.functions.items()
        if any(map(_returns_module, functions))
    }
    for name in sorted(program.trees, key=lambda name: name != current):
        module = program.trees[name].module
        nodes: Iterable[ast.AST] = (
            [module]
            if name == current
            else [node for node in module.body if isinstance(node, (FunctionNode, ast.ClassDef))]
        )
        for node in (inner for one in nodes for inner in _with_gradients(one)):
            if not isinstance(node, ast.Call):
                continue
            called: ast.expr | None = node.func
            if isinstance(called, ast.Name):
                called = _bound_before(program, node, called.id)
            if called is not None and _is_unwrapped(called, unwrapping):
                found.append(program.place(node, "called"))
    return found


def _is_unwrapped(node: ast.expr, unwrapping: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return called_name(node) in unwrapping
    return isinstance(node, ast.Attribute) and node.attr == "module"


def _returns_module(function: ast.FunctionDef) -> bool:
    """Whether a function such as ``unwrap`` returns the ``.module`` of what it is given."""
    nodes = list(ast.walk(function))
    returned = [one.value for one in nodes if isinstance(one, ast.Return)]
    if not returned:
        return False
    parts = [returned[-1]]
    if isinstance(parts[0], ast.IfExp):
        parts = [parts[0].body, parts[0].orelse]
    names = {one.id for one in parts if isinstance(one, ast.Name)}
    for one in nodes:
        if isinstance(one, ast.Assign) and names & {key(target) for target in one.targets}:
            parts.append(one.value)
    return any(isinstance(one, ast.Attribute) and one.attr == "module" for one in parts)


def _bound_before(program: Program, call: ast.Call, name: str) -> ast.expr | None:
    """What a variable was bound to by the nearest assignment before a call, in its function."""
    for block in program.blocks(program.tree_of(call).statement_of(call)):
        for statement in reversed(block.before):
            if isinstance(statement, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in statement.targets
            ):
                return statement.value
    return None


def _with_gradients(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes within a node, except those in ``torch.no_grad()``."""
    for child in ast.iter_child_nodes(node):
        if not is_without_gradients(child):
            yield child
            yield from _with_gradients(child)


def is_without_gradients(node: ast.AST) -> bool:
    """Whether a node is a block such as ``with torch.no_grad():``, or a function decorated so."""
    heads: list[ast.expr] = []
    if isinstance(node, (ast.With, ast.AsyncWith)):
        heads = [item.context_expr for item in node.items]
    elif isinstance(node, FunctionNode):
        heads = node.decorator_list
    return any(set(names_in(head)) & _WITHOUT_GRADIENTS for head in heads)


def kept_graphs(program: Program, frame: Position, modules: Container[str]) -> Iterator[Place]:
    """The lines of the loops around a line that collect tensors together with their graph.

    Parameters
    ----------
    modules
        Names of variables and attributes that hold modules.
    """
    blocks = program.blocks(program.statement_at(frame))
    if any(is_without_gradients(block.owner) for block in blocks):
        return
    for loop in program.loops(frame):
        graphs = _Graphs(loop, modules)
        for node in ast.walk(loop):
            if isinstance(node, ast.stmt) and graphs.are_collected(node):
                yield program.place(node)


def inputs_from(program: Program, where: Position) -> Place | None:
    """The line before ``where``, in its function, from which what a call there is given comes.

    That is the nearest assignment to a variable among its arguments; or, if its value is computed
    from other variables, the nearest one that calls a function of the program.
    """
    names = {
        name
        for call in program.calls_at(where)
        for given in call.args
        if isinstance(given, ast.Name)
        for name in variables_in(given)
    }
    first: ast.Assign | None = None
    for block in program.blocks(program.statement_at(where)):
        for statement in reversed(block.before):
            if not isinstance(statement, ast.Assign):
                continue
            if not any(names & variables_in(target) for target in statement.targets):
                continue
            called = {called_name(call) for call in calls_in(statement.value)}
            if called & program.functions.keys():
                return program.place(statement, "reads")
            first = first or statement
            names |= variables_in(statement.value)
        if isinstance(block.owner, FunctionNode):
            break
    return program.place(first, "reads") if first is not None else None


def sets_rate(program: Program) -> Place | None:
    """The only line of the program that assigns to the ``"lr"`` of an optimizer's group."""
    found = [
        node
        for node in program.nodes
        if isinstance(node, (ast.Assign, ast.AugAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == "lr"
    ]
    return program.place(found[0], "changes") if len(found) == 1 else None


def sets_synchronisation(program: Program, where: Position) -> Place | None:
    """The line that says whether DDP averages in the next backward pass, before a line if it can.

    ``no_sync()`` sets the same attribute of the DDP model for a while.
    """
    tree = program.tree_at(where)
    found = [
        node
        for node in (tree.nodes if tree is not None else program.nodes)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr == "require_backward_grad_sync"
    ]
    found.sort(key=lambda node: (node.lineno > where.line, abs(where.line - node.lineno)))
    return program.place(found[0], "changes") if found else None


def decides_passes(program: Program, backward: Position, step: Position) -> Place | None:
    """The line that decides how many backward passes come before a step, in one function.

    The innermost loop around the passes without the step, or the condition of the step.
    """
    if (backward.file, backward.function) != (step.file, step.function):
        return None
    for loop in program.loops(backward):
        if not covers(loop, step.line):
            return program.place(loop, "loops")
        break
    for block in program.blocks(program.statement_at(step)):
        if isinstance(block.owner, ast.If) and not covers(block.owner, backward.line):
            return program.place(block.owner, "source")
        if isinstance(block.owner, LoopNode):
            break
    return None


def loss_divided_by_world(program: Program, where: Position) -> Place | None:
    """The line that divides a loss by the number of ranks, of which ``where`` runs ``backward``.

    The line itself, an assignment to the loss before it in the same function, or the ``return`` of
    a function of the program that computes the loss.
    """
    statement = program.statement_at(where)
    calls = [call for call in program.calls_at(where) if called_name(call) == "backward"]
    if statement is None or not calls or not isinstance(calls[0].func, ast.Attribute):
        return None
    loss = calls[0].func.value
    found: list[ast.AST] = [loss]
    for node in _before(program, statement):
        match node:
            case ast.Assign(targets=targets, value=value):
                found += [value] if key(loss) in map(key, targets) else []
            case ast.AugAssign(target=target):
                found += [node] if key(target) == key(loss) else []
    called = {called_name(call) for one in found for call in calls_in(one)}
    for name in called & program.functions.keys():
        returns = (n for one in program.functions[name] for n in ast.walk(one))
        found += [n.value for n in returns if isinstance(n, ast.Return) and n.value is not None]
    for one in found:
        for node in ast.walk(one):
            if isinstance(node, (ast.stmt, ast.expr)) and _divides_by_world(program, node):
                return program.place(node, "changes")
    return None


def _before(program: Program, statement: ast.stmt) -> Iterator[ast.AST]:
    """What stands before a statement in its function; at the top level, in the document."""
    for block in program.blocks(statement):
        for earlier in block.before:
            yield from in_scope(earlier)


def divides_by_world(program: Program, where: Position) -> bool:
    """Whether the scope of a line, or a function that it calls, divides by the number of ranks."""
    tree = program.tree_at(where)
    if tree is None:
        return False
    scope = tree.function_at(where.line) or tree.module
    nodes = [node for child in ast.iter_child_nodes(scope) for node in in_scope(child)]
    seen: set[str] = set()
    for node in nodes:  # grows by the functions that are called
        name = called_name(node) if isinstance(node, ast.Call) else ""
        if name in program.functions and name not in seen:
            seen.add(name)
            nodes += [inner for function in program.functions[name] for inner in ast.walk(function)]
    return any(_divides_by_world(program, node) for node in nodes)


def _divides_by_world(program: Program, node: ast.AST) -> bool:
    match node:
        case (
            ast.AugAssign(op=ast.Div(), value=divisor)
            | ast.BinOp(op=ast.Div(), right=divisor)
            | ast.Call(func=ast.Attribute(attr="div" | "div_"), args=[divisor])
        ):
            return _is_world_size(program, divisor)
    return False


def clips_at_scaled_limit(program: Program) -> bool:
    """Whether the limit of a clipping may come from the factor of a gradient scaler.

    That is certain if the limit is computed from ``get_scale()``. It is possible if the program
    calls that, and the origin of the limit is not known.
    """
    if not program.calls("get_scale"):
        return False
    limits = [
        limit
        for call in program.calls(*_CLIPS)
        for limit in (*call.args[1:2], *(k.value for k in call.keywords if k.arg in _LIMITS))
    ]
    return not limits or any(_may_be_scaled(program, limit, 3) for limit in limits)


def _may_be_scaled(program: Program, limit: ast.expr, depth: int) -> bool:
    called = {called_name(call) for call in calls_in(limit)}
    if "get_scale" in called or called & program.functions.keys() or not depth:
        return True
    values: dict[str, list[ast.expr]] = {name: [] for name in _outermost_keys(limit) - called}
    for targets, value in _bound(program.nodes):
        for target in targets:
            for name in _outermost_keys(target) & values.keys():
                values[name].append(value)
    return any(
        not bound or any(_may_be_scaled(program, value, depth - 1) for value in bound)
        for bound in values.values()
    )


def _is_world_size(program: Program, node: ast.expr) -> bool:
    """Whether an expression is the number of ranks, or a name that is bound to nothing else."""
    if is_world_size(node):
        return True
    name = last_name(node)
    if not name:
        return False
    bound = [
        value
        for tree in program.trees.values()
        for kind, value in _last_names(tree).get(name, ())
        if kind is type(node)
    ]
    return bool(bound) and all(map(is_world_size, bound))


@lru_cache(_TREES)
def _last_names(tree: Tree) -> dict[str, list[tuple[type[ast.expr], ast.expr]]]:
    """What each name is bound to in a document, with the kind of its target."""
    found: dict[str, list[tuple[type[ast.expr], ast.expr]]] = {}
    for targets, whole in _bound(tree.nodes):
        for target in targets:
            for one, value in _pairs(target, whole):
                found.setdefault(last_name(one), []).append((type(one), value))
    return found


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets of one assignment, each with what it is bound to."""
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            yield from zip(targets, values, strict=True)
        case _:
            yield target, value


def holds_gradients(program: Program, node: ast.AST, depth: int = 3) -> bool:
    """Whether an expression reads ``.grad``, or a variable that was made from gradients.

    Parameters
    ----------
    depth
        Of how many variables in turn the origin is followed.
    """
    if _reads_gradient(node):
        return True
    if not depth:
        return False
    values = _values(program.tree_of(node))
    return any(
        holds_gradients(program, value, depth - 1)
        for name in _outermost_keys(node)
        for value in values.get(name, ())
    )


@lru_cache(KEPT)
def _reads_gradient(node: ast.AST) -> bool:
    return any(
        isinstance(inner, ast.Attribute) and inner.attr == "grad" for inner in ast.walk(node)
    )


@lru_cache(_TREES)
def _values(tree: Tree) -> dict[str, list[ast.expr]]:
    """What each name and attribute of a document is bound to."""
    found: dict[str, list[ast.expr]] = {}
    for targets, value in _bound(tree.nodes):
        for name in {name for target in targets for name in _outermost_keys(target)}:
            found.setdefault(name, []).append(value)
    return found


def _outermost_keys(node: ast.AST) -> set[str]:
    """The results of `nodes.key` without those of their parts: ``self.loss``, not ``self``."""
    found = key(node)
    if found is not None:
        return {found}
    return {name for child in ast.iter_child_nodes(node) for name in _outermost_keys(child)}


def _bound(nodes: Iterable[ast.AST]) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """The targets and the value of each assignment, loop and comprehension."""
    for node in nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                yield targets, value
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                yield [target], value
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                yield [node.target], node.iter
            case ast.Call(func=ast.Attribute(value=held, attr="append"), args=[value]):
                yield [held], value


class _Graphs:
    """The variables of a loop that hold what a module has computed in the same iteration.

    Parameters
    ----------
    loop
        The loop.
    modules
        Names of variables and attributes that hold modules.
    """

    def __init__(self, loop: LoopNode, modules: Container[str]) -> None:
        self._modules = modules
        self._assigned = {
            target.id: node.value
            for node in ast.walk(loop)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self._freed = self._freed_in(loop)

    def _freed_in(self, loop: LoopNode) -> set[str]:
        """Variables whose graph ``backward`` frees, and the variables they are computed from."""
        pending = [
            call.func.value.id
            for call in calls_in(loop)
            if isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.attr == "backward"
            and not call.keywords
        ]
        found: set[str] = set()
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                value = self._assigned.get(name)
                pending += variables_in(value) & self._assigned.keys() if value is not None else ()
        return found

    def are_collected(self, node: ast.stmt) -> bool:
        """Whether a statement adds what a module computed to a sum or a list."""
        match node:
            case ast.AugAssign(target=ast.Name(name), op=ast.Add(), value=value):
                return name not in self._assigned and self._is_in(value)
            case ast.Assign(targets=[ast.Name(name)], value=ast.BinOp(op=ast.Add()) as value):
                rest = [side for side in (value.left, value.right) if key(side) != name]
                return len(rest) == 1 and self._is_in(rest[0])
            case ast.Expr(ast.Call(func=ast.Attribute(ast.Name(name), "append"), args=[value])):
                return name not in self._assigned and self._is_in(value)
        return False

    def _is_in(self, value: ast.expr) -> bool:
        """Whether a module computes an expression in this iteration and the graph still exists."""
        assigned, pending = dict(self._assigned), [value]
        while pending:
            part = pending.pop()
            names = set(names_in(part))
            if contains(part, ast.Compare) or _DETACHED & names or self._freed & variables_in(part):
                continue
            if any(name in self._modules for name in names):
                return True
            pending += [assigned.pop(name) for name in variables_in(part) & assigned.keys()]
        return False
