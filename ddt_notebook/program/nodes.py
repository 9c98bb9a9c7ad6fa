"""Questions about a single node of a syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import TypeGuard

from .names import METADATA, METADATA_CALLS

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LoopNode = ast.For | ast.AsyncFor | ast.While
ScopeNode = ast.Module | ast.FunctionDef
#: Statements that end a block.
LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
#: Exceptions with which an iterator ends.
_END_OF_DATA = frozenset({"StopIteration", "StopAsyncIteration"})
KEPT = 4096  #: nodes whose answers are remembered


@lru_cache(KEPT)
def source_of(node: ast.AST) -> str:
    """The source of a node, as `ast.unparse` formats it."""
    return ast.unparse(node)


def dotted_name(node: ast.AST) -> str:
    """``"torch.cuda.set_device"`` for a dotted name; empty for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def is_task_number(node: ast.AST) -> bool:
    """Whether a node is a worker's number in its cluster of TensorFlow.

    That is ``strategy.cluster_resolver.task_id``, or ``config["task"]["index"]`` of ``TF_CONFIG``.
    """
    if isinstance(node, ast.Attribute):
        return node.attr == "task_id" and last_name(node.value) == "cluster_resolver"
    return _key(node) == "index" and _key(node.value) == "task"  # type: ignore[attr-defined]


def _key(node: ast.AST) -> object:
    """The constant by which an element is read; None for anything else."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value
    return None


def last_name(node: ast.AST | None) -> str:
    """``"step"`` for ``optimizer.step`` and for ``trainers[0].step``; empty if there is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def calls_once(statements: Sequence[ast.stmt], function: str) -> bool:
    """Whether statements call a function exactly once, so that no order of calls matters."""
    calls = (call for one in statements for call in calls_in(one))
    return sum(called_name(call) == function for call in calls) == 1


def root_name(node: ast.AST) -> str:
    """``"torch"`` for ``torch.rand(3).to(device)[0]``; empty if it does not begin with a name."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def ends_with_data(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches that an iterator has no more items."""
    return last_name(handler.type) in _END_OF_DATA


def called_name(node: ast.AST) -> str:
    """The last part of the name that a call calls; empty if the node is not a call."""
    return last_name(node.func) if isinstance(node, ast.Call) else ""


def decorators(node: ast.AST) -> set[str]:
    """The last parts of the names of a function's decorators, called or not."""
    found = getattr(node, "decorator_list", [])
    return {called_name(one) or last_name(one) for one in found}


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """All calls inside a node."""
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def names_in(node: ast.AST) -> Iterator[str]:
    """All names inside a node: of variables, attributes, arguments and keywords."""
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name


def occurs_in(node: ast.AST, expression: str) -> bool:
    """Whether an expression occurs inside a node."""
    return any(
        isinstance(inner, ast.expr) and source_of(inner) == expression for inner in ast.walk(node)
    )


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    """A keyword argument of a call; None if it is not given."""
    return next((given.value for given in node.keywords if given.arg == name), None)


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Whether an expression is this constant."""
    return isinstance(node, ast.Constant) and (type(node.value), node.value) == (type(value), value)


@lru_cache(KEPT)
def is_generator(node: ast.AST) -> bool:
    """Whether a function yields."""
    pending = list(ast.iter_child_nodes(node))
    while pending:
        inner = pending.pop()
        if isinstance(inner, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending += ast.iter_child_nodes(inner)
    return False


@lru_cache(KEPT)
def assigned_in(loop: LoopNode) -> frozenset[str]:
    """The names that the body of a loop assigns to."""
    return frozenset(
        inner.id
        for statement in loop.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    )


def is_call(node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
    """Whether a node is a call of a function or method of one of these names."""
    return isinstance(node, ast.Call) and called_name(node) in names


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """An argument by its position or its name."""
    named = next((k.value for k in call.keywords if k.arg == name), None)
    if named is not None or position >= len(call.args):
        return named
    return call.args[position]


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The keyword arguments of a call by their names, without ``**kwargs``."""
    return {given.arg: given.value for given in call.keywords if given.arg is not None}


def statements_of(scope: ScopeNode) -> Iterator[ast.stmt]:
    """The statements of a scope, also in blocks, but not in functions and classes within it."""
    waiting: list[ast.stmt] = list(scope.body)
    while waiting:
        statement = waiting.pop(0)
        yield statement
        if not isinstance(statement, (FunctionNode, ast.ClassDef)):
            inner = ast.iter_child_nodes(statement)
            waiting += [child for child in inner if isinstance(child, ast.stmt)]


def assigned_calls(scope: ScopeNode) -> list[tuple[str, ast.Call]]:
    """The statements ``name = call(…)`` of a scope: the name and the call."""
    return [
        (statement.targets[0].id, statement.value)
        for statement in statements_of(scope)
        if isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.targets[0], ast.Name)
    ]


def literals_of(node: ast.AST) -> str:
    """The text of all string literals inside a node: what a ``print`` shows whatever the values."""
    return " ".join(
        inner.value
        for inner in ast.walk(node)
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
    )


def key(node: ast.AST | None) -> str | None:
    """A name, an attribute or an item as text: ``loss``, ``self.loss``, ``parts[0]``."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            inner = key(owner)
            return f"{inner}.{name}" if inner else None
        case ast.Subscript(value=owner, slice=ast.Constant(value=index)):
            inner = key(owner)
            return f"{inner}[{index!r}]" if inner else None
    return None


def keys_in(node: ast.AST) -> set[str]:
    """The results of `key` for all nodes within a node."""
    return {name for name in map(key, ast.walk(node)) if name is not None}


def variables_in(node: ast.AST) -> set[str]:
    """The variables that occur in a node."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def contains(node: ast.AST, *kinds: type[ast.AST]) -> bool:
    """Whether a node, or a node within it, is of one of these classes."""
    return any(isinstance(inner, kinds) for inner in ast.walk(node))


def reads(node: ast.AST, keys: Collection[str]) -> bool:
    """Whether a node reads the value of one of ``keys``, and not only its size or type."""
    if key(node) in keys:
        return True
    if is_metadata(node):
        return False
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        return False
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return _reads_items(node, keys)
    return any(reads(child, keys) for child in ast.iter_child_nodes(node))


def _reads_items(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp, keys: Collection[str]
) -> bool:
    """Whether a comprehension reads the items of a list; iterating over the list does not count."""
    items = set(keys)
    for part in node.generators:
        if key(part.iter) in items:
            items |= variables_in(part.target)
        elif reads(part.iter, items):
            return True
    conditions = [condition for part in node.generators for condition in part.ifs]
    return any(reads(one, items) for one in (*conditions, node.elt))


def is_metadata(node: ast.AST) -> bool:
    """Whether a node reads only the size, the type or the device of a tensor."""
    if isinstance(node, ast.Attribute):
        return node.attr in METADATA
    return is_call(node, *METADATA_CALLS)


def parameters(function: FunctionNode) -> list[str]:
    """The names of a function's parameters, without ``*args`` and ``**kwargs``."""
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def counted_in(loop: LoopNode) -> Iterator[str]:
    """The variables to which each round of a loop adds a constant: ``step += 1``."""
    for statement in loop.body:
        match statement:
            case ast.AugAssign(target=ast.Name(id=name), value=ast.Constant()):
                yield name


def is_periodic(test: ast.expr) -> bool:
    """Whether a condition holds in every so many rounds: ``step % 10 == 0``."""
    return any(
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.BinOp)
        and isinstance(node.left.op, ast.Mod)
        for node in ast.walk(test)
    ) and not any(calls_in(test))


def asks_for_end(test: ast.expr, loop: ast.For | ast.AsyncFor, function: ast.AST) -> bool:
    """Whether a condition holds in the last round of a loop: ``step == len(loader) - 1``.

    A name in it may hold that comparison, or the number of the last round.
    """
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values.setdefault(node.targets[0].id, []).append(node.value)
    counters = {*counted_in(loop), *variables_in(loop.target)}
    through = {ast.dump(one) for one in ast.walk(loop.iter) if isinstance(one, ast.expr)}

    def value(node: ast.expr) -> ast.expr:
        known = values.get(node.id, []) if isinstance(node, ast.Name) else []
        return known[0] if len(known) == 1 else node

    def is_length(node: ast.expr) -> bool:
        node = value(node)
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
            node = node.left
        return (
            isinstance(node, ast.Call)
            and called_name(node) == "len"
            and ast.dump(node.args[0]) in through
        )

    def holds_at_end(node: ast.expr) -> bool:
        node = value(node)
        if isinstance(node, ast.BoolOp):
            return any(map(holds_at_end, node.values))
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq):
            return False
        sides = node.left, node.comparators[0]
        counted = [isinstance(one, ast.Name) and one.id in counters for one in sides]
        return any(counted) and any(map(is_length, sides))

    return holds_at_end(test)


def break_conditions(loop: LoopNode) -> Iterator[ast.expr]:
    """Conditions under which the loop's own ``break``, or a ``return``, leaves the loop."""
    for guards in guards_of_breaks(loop):
        yield guards[-1]


def counts_width(iterable: ast.expr) -> bool:
    """Whether a range ends with another dimension of a tensor than the one that counts samples.

    So does a loop over the places of a sequence: ``range(begin, tokens.size(1))``.
    """
    match iterable:
        case ast.Call(args=[stop] | [_, stop] | [_, stop, _]) if called_name(iterable) == "range":
            match stop:
                case ast.Call(func=ast.Attribute(attr="size"), args=[number]):
                    return _is_not_first(number)
                case ast.Subscript(value=ast.Attribute(attr="shape"), slice=number):
                    return _is_not_first(number)
    return False


def _is_not_first(number: ast.expr) -> bool:
    """Whether a number of a dimension is not 0."""
    return not isinstance(number, ast.Constant) or number.value != 0


def guards_of_breaks(loop: LoopNode) -> Iterator[tuple[ast.expr, ...]]:
    """For each ``break`` and ``return`` of a loop: the conditions around it, outermost first.

    A name in the last one may only hold what another condition decided: ``if late: stop = True``.
    That one follows as well.
    """

    def search(
        statements: list[ast.stmt], around: tuple[ast.expr, ...]
    ) -> Iterator[tuple[ast.expr, ...]]:
        for statement in statements:
            if isinstance(statement, ast.If):
                guards = (*around, statement.test)
                if any(isinstance(inner, (ast.Break, ast.Return)) for inner in statement.body):
                    yield guards
                    yield from _setting(loop, statement.test)
                yield from search(statement.body, guards)
                yield from search(statement.orelse, around)
            elif isinstance(statement, (ast.With, ast.AsyncWith, ast.Try)):
                yield from search(statement.body, around)

    yield from search(loop.body, ())


def _setting(loop: LoopNode, test: ast.expr) -> Iterator[tuple[ast.expr, ...]]:
    """The conditions in a loop under which the flag that a condition tests becomes true."""
    if not isinstance(test, (ast.Name, ast.Attribute)):
        return
    for node in ast.walk(loop):
        if isinstance(node, ast.If) and any(
            isinstance(one, ast.Assign)
            and is_constant(one.value, True)
            and any(key(target) == key(test) for target in one.targets)
            for one in node.body
        ):
            yield (node.test,)


def covers(node: ast.stmt | ast.expr, line: int) -> bool:
    """Whether a line belongs to a statement or an expression."""
    return node.lineno <= line <= end(node)


def end(node: ast.stmt | ast.expr) -> int:
    """The last line of a statement or an expression."""
    return node.end_lineno or node.lineno


def returned_values(function: FunctionNode) -> Iterator[ast.expr]:
    """What a function returns, without what functions defined in it return."""
    ahead: list[ast.AST] = list(function.body)
    for node in ahead:
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
        if not isinstance(node, (FunctionNode, ast.Lambda, ast.ClassDef, ast.expr)):
            ahead += ast.iter_child_nodes(node)


def own_expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement itself, not those of the statements in its body."""
    return [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]


def guards_of(expression: ast.expr, called: str) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions within an expression that decide whether a function is called.

    Parameters
    ----------
    expression
        Such as ``rank == 0 and report(loss)``.
    called
        Name of the function.

    Yields
    ------
    tuple of ast.expr and bool
        The condition, and the value with which it leads to the call.
    """

    def calls(*nodes: ast.expr) -> bool:
        return any(called_name(one) == called for node in nodes for one in calls_in(node))

    for node in ast.walk(expression):
        match node:
            case ast.BoolOp(op=operator, values=values):
                last = next((i for i, value in enumerate(values) if calls(value)), 0)
                yield from ((value, isinstance(operator, ast.And)) for value in values[:last])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                if calls(body) != calls(orelse) and not calls(test):
                    yield test, calls(body)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() if calls(node.elt):
                yield from ((test, True) for one in node.generators for test in one.ifs)
            case ast.DictComp() if calls(node.key, node.value):
                yield from ((test, True) for one in node.generators for test in one.ifs)


def in_scope(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is in it, without the functions and classes that it defines."""
    if not isinstance(node, (FunctionNode, ast.ClassDef)):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from in_scope(child)
