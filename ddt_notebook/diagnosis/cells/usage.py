"""What a rank does with a value after a line: it follows the value through the source of a cell.

It follows what is sure. Where a value goes into a function that the source does not show, through
a collective, or behind a condition that may keep the rank away, the trail is lost.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ddt_notebook.model import Position

from . import syntax
from .source import Sources

#: Functions and methods whose result is the value in another form.
FORMS = frozenset({
    "item", "float", "int", "round", "tolist", "numpy", "clone", "detach", "cpu", "to", "mean",
    "sum", "max", "min", "abs", "sqrt", "exp", "div", "mul", "add", "sub", "format", "str", "norm",
    "double", "half", "view", "reshape", "flatten", "squeeze", "unsqueeze", "argmax", "stack",
    "cat", "tensor", "as_tensor",
})  # fmt: skip
#: Attributes that do not tell what a tensor holds, and functions of the same kind.
METADATA = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "requires_grad"})
SIZES = frozenset({"size", "dim", "numel", "len", "isinstance", "type", "id", "element_size"})
_OVERWRITES = frozenset({"zero_", "fill_", "copy_", "normal_", "uniform_"})
_STORES = frozenset({"append", "add", "extend", "update"})
_DEPTH = 3

UseKind = Literal["print", "decision", "step", "kept", "return"]


@dataclass(frozen=True, slots=True)
class Use:
    """Where a rank uses a value.

    Attributes
    ----------
    line
        In the cell.
    kind
        ``"print"``: shows it; ``"decision"``: branches on it; ``"step"``: an optimizer applies it
        as a gradient; ``"kept"``: computes from it something that nothing reads any more;
        ``"return"``: hands it to the caller.
    text
        The statement.
    keys
        Under which names the value was read there.
    scaled
        Whether it was divided by something on the way.
    """

    line: int
    kind: UseKind
    text: str
    keys: tuple[str, ...] = ()
    scaled: bool = False


def key(node: ast.AST | None) -> str | None:
    """Under what a value is followed: a name, an attribute or an item of one."""
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


def call_at(sources: Sources, place: Position, op: str) -> ast.Call | None:
    """The call of ``op`` at a line, None unless there is exactly one."""
    statement = sources.statement(place)
    found = [
        node
        for node in (ast.walk(statement) if statement is not None else ())
        if isinstance(node, ast.Call)
        and syntax.calls(node, op)
        and node.lineno <= place.line <= (node.end_lineno or node.lineno)
    ]
    return found[0] if len(found) == 1 else None


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """An argument by its position or its name."""
    named = next((k.value for k in call.keywords if k.arg == name), None)
    if named is not None or position >= len(call.args):
        return named
    return call.args[position]


def called_name(call: ast.Call) -> str:
    """Name of a called function or method, without its owner."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def reads(node: ast.AST, keys: Collection[str]) -> bool:
    """Whether what one of ``keys`` holds is read, and not only its size or type."""
    if key(node) in keys:
        return True
    if isinstance(node, ast.Attribute) and node.attr in METADATA:
        return False
    if isinstance(node, ast.Call) and called_name(node) in SIZES:
        return False
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        return False
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return _reads_items(node, keys)
    return any(reads(child, keys) for child in ast.iter_child_nodes(node))


def _reads_items(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp, keys: Collection[str]
) -> bool:
    """Whether a comprehension reads the items of a list that is followed: going over it is none."""
    items = set(keys)
    for part in node.generators:
        if key(part.iter) in items:
            items |= {name.id for name in ast.walk(part.target) if isinstance(name, ast.Name)}
        elif reads(part.iter, items):
            return True
    conditions = [condition for part in node.generators for condition in part.ifs]
    return any(reads(one, items) for one in (*conditions, node.elt))


def _collections(tree: ast.Module, statement: ast.stmt, start: str) -> Iterator[str]:
    """Lists and dictionaries whose items a loop around a statement names ``start``."""
    for owner, _ in syntax.blocks(tree, statement):
        if not isinstance(owner, ast.For):
            continue
        names = {node.id for node in ast.walk(owner.target) if isinstance(node, ast.Name)}
        match owner.iter:
            case ast.Call(func=ast.Attribute(value=held, attr="items" | "values")):
                whole = key(held)
            case _:
                whole = key(owner.iter)
        if start in names and whole is not None:
            yield whole


class Trail:
    """A value on one rank, followed from a statement onwards.

    Parameters
    ----------
    sources
        The cells.
    rank
        Whose way through conditions on the rank is taken.
    carriers
        Names of functions that make a value the same on every rank, or may do so: there the trail
        is lost.
    leaves
        Whether it is followed out of a function; otherwise its ``return`` is a use.
    """

    def __init__(
        self, sources: Sources, rank: int, carriers: frozenset[str], leaves: bool = True
    ) -> None:
        self._sources, self._rank, self._carriers = sources, rank, carriers
        self._leaves = leaves
        self._keys: set[str] = set()
        self._kept: ast.stmt | None = None
        self._scaled = False
        self._lost = False
        self._guarded = False  # ranks that are meant to have the value read it under a condition

    def follow(
        self, cell: int, statement: ast.stmt, start: str, depth: int = 0
    ) -> tuple[int, Use] | None:
        """The first use of ``start`` after a statement: the cell and the use."""
        tree = self._sources.tree(cell)
        if tree is None:
            return None
        self._keys, self._kept, self._lost = (
            {start, *_collections(tree, statement, start)},
            None,
            False,
        )
        rest, function = syntax.following(tree, statement)
        for block in rest:
            for one in block:
                use = self._statement(one)
                if use is not None:
                    return cell, use
                if self._lost:
                    return None
                if isinstance(one, ast.Return):
                    if one.value is None or not self._reads(one.value):
                        return None
                    if not self._leaves:
                        follows = self._follows(one.value)
                        return (cell, self._use(one, "return")) if follows else None
                    return self._callers(function, depth)
                if isinstance(one, (ast.Break, ast.Continue, ast.Raise)):
                    return None
        if self._kept is not None and function is None and not self._guarded:
            return cell, self._use(self._kept, "kept")
        return None

    def _callers(self, function: ast.FunctionDef | None, depth: int) -> tuple[int, Use] | None:
        """Where the result of a function is used, if all of its value is ours."""
        if function is None or depth >= _DEPTH:
            return None
        for cell, statement in self._sources.statements_calling(function.name):
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and _prints(value):
                return cell, self._use(statement, "print")
            if not isinstance(value, ast.expr) or not _is_form(value, function.name):
                continue
            if isinstance(statement, ast.Return):
                tree = self._sources.tree(cell)
                outer = syntax.following(tree, statement)[1] if tree is not None else None
                return self._callers(outer, depth + 1)
            target = key(statement.targets[0]) if isinstance(statement, ast.Assign) else None
            if target is not None:
                return self.follow(cell, statement, target, depth + 1)
        return None

    def _use(self, statement: ast.stmt, kind: UseKind) -> Use:
        read = getattr(statement, "test", statement)
        keys = tuple(sorted(one for one in self._keys if reads(read, {one})))
        return Use(statement.lineno, kind, ast.unparse(statement), keys, self._scaled)

    # -- statements ------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt) -> Use | None:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                return self._condition(node, test, body, orelse)
            case ast.For(body=body, orelse=orelse):
                return self._all([*body, *orelse])
            case ast.While(test=test, body=body):
                return self._use(node, "decision") if self._reads(test) else self._all(body)
            case ast.With(body=body):
                return self._all(body)
            case ast.Try(body=body, orelse=orelse, finalbody=final):
                return self._all([*body, *orelse, *final])
            case ast.Assert(test=test) if self._reads(test):
                return self._use(node, "decision")
            case ast.Assign(targets=targets, value=value):
                self._assign(node, [key(part) for part in _parts(targets)], value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(node, [key(target)], value)
            case ast.AugAssign(target=target, op=sign, value=value):
                if key(target) in self._keys:
                    self._scaled |= isinstance(sign, (ast.Div, ast.FloorDiv))
                elif self._reads(value):
                    self._assign(node, [key(target)], value)
            case ast.Expr(value=ast.Call() as call):
                return self._call(node, call)
        return None

    def _all(self, statements: Sequence[ast.stmt]) -> Use | None:
        for statement in statements:
            use = self._statement(statement)
            if use is not None or self._lost:
                return use
            if isinstance(statement, (ast.Return, ast.Break, ast.Continue, ast.Raise)):
                self._lost |= isinstance(statement, ast.Return)
                return None
        return None

    def _condition(
        self, node: ast.If, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]
    ) -> Use | None:
        if self._sources.names.reads_rank(test):
            holds = self._sources.truth(test, self._rank)
            self._lost |= holds is None
            if holds is not None:
                taken, other = (body, orelse) if holds else (orelse, body)
                self._guarded |= any(self._reads(statement) for statement in other)
                leaves = any(isinstance(inner, syntax.LEAVES) for inner in taken)
                use = self._all(taken)
                self._lost |= leaves
                return use
            return None
        if self._reads(test):
            return self._use(node, "decision")
        if any(isinstance(inner, syntax.LEAVES) for inner in (*body, *orelse)):
            self._lost = True
            return None
        if self._sources.names.reads_only(test, self._counters(test)):
            return self._all([*body, *orelse])
        # It may keep this rank away: what is done in there is not held against it.
        names = {name for name in map(key, ast.walk(ast.Module([*body, *orelse], []))) if name}
        self._lost |= bool(names & self._keys)
        return None

    def _counters(self, test: ast.expr) -> set[str]:
        """Names in it that only count the rounds of a loop."""
        names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        return names & self._sources.names.counters

    def _assign(self, node: ast.stmt, targets: list[str | None], value: ast.expr) -> None:
        if not self._reads(value):
            self._keys -= {target for target in targets if target}
            self._lost |= not self._keys
            return
        if not self._follows(value) or None in targets:
            self._lost = True
            return
        self._scaled |= any(
            isinstance(inner, ast.BinOp) and isinstance(inner.op, (ast.Div, ast.FloorDiv))
            for inner in ast.walk(value)
        )
        if all(target in self._keys for target in targets):
            return
        self._keys |= {target for target in targets if target}
        self._kept = node

    def _call(self, node: ast.stmt, call: ast.Call) -> Use | None:
        name = called_name(call)
        owner = key(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if name in self._carriers:
            self._lost |= self._reads(call)
        elif name == "step" and any(one.endswith(".grad") for one in self._keys):
            return self._use(node, "step")
        elif owner in self._keys:
            self._scaled |= name == "div_"
            if name in _OVERWRITES:
                self._keys.discard(owner or "")
                self._lost |= not self._keys
        elif self._reads(call):
            if _conditional(call, self._sources):
                return None
            if _prints(call) and not any(map(self._sources.defines, ("print", "stdout"))):
                self._scaled |= any(isinstance(inner, ast.Div) for inner in ast.walk(call))
                return self._use(node, "print")
            if name in _STORES and owner and all(map(self._follows, call.args)):
                self._keys.add(owner)
            else:
                self._lost = True
        return None

    # -- expressions -----------------------------------------------------------------------------

    def _reads(self, node: ast.AST | None) -> bool:
        return node is not None and reads(node, self._keys)

    def _follows(self, node: ast.AST) -> bool:
        """Whether all calls in an expression that read the value give it back in another form."""
        if _conditional(node, self._sources):
            return False
        return all(
            called_name(inner) in FORMS - self._carriers
            for inner in ast.walk(node)
            if isinstance(inner, ast.Call) and self._reads(inner)
        )


def _is_form(node: ast.expr, function: str) -> bool:
    """Whether an expression is the result of a function, perhaps in another form."""
    if isinstance(node, ast.BinOp):
        return _is_form(node.left, function) or _is_form(node.right, function)
    if not isinstance(node, ast.Call):
        return False
    if called_name(node) == function:
        return True
    if called_name(node) not in FORMS:
        return False
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return any(_is_form(one, function) for one in (inner, *node.args) if one is not None)


def _parts(targets: list[ast.expr]) -> Iterator[ast.expr]:
    """The names that an assignment binds, also where it takes a tuple apart."""
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from _parts(target.elts)
        else:
            yield target


def _prints(node: ast.AST | None) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    )


def _conditional(node: ast.AST, sources: Sources) -> bool:
    """Whether an expression decides by the rank what it computes."""
    return any(
        (isinstance(inner, ast.IfExp) and sources.names.reads_rank(inner.test))
        or (isinstance(inner, ast.BoolOp) and sources.names.reads_rank(inner))
        for inner in ast.walk(node)
    )
