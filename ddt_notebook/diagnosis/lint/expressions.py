"""Expressions: their value on one rank, and the calls that they make."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import builtin, names
from .facts import Event, Facts
from .shape import written
from .trace import Around, Choice, Item, Rounds, Walk, has_issues
from .values import (
    ANYTHING,
    CLOCK,
    LOCAL,
    NO_MARKS,
    PENDING,
    RANK,
    SENDING,
    STALE,
    UNKNOWN,
    Class,
    Foreign,
    Function,
    Items,
    Marks,
    Object,
    Scope,
    Symbol,
    Value,
    is_wrapper,
    join,
    marks_of,
)

#: What of a tensor does not tell its content.
SIZES = frozenset(
    {"shape", "device", "dtype", "ndim", "is_cuda", "size", "dim", "numel", "type", "get_device"}
)
_EVAL: dict[type[ast.expr], str] = {}  #: names of the methods that evaluate them


class Expressions(ABC):
    """Evaluates expressions as one rank would, as far as the source tells.

    Parameters
    ----------
    rank, world
        Number of the rank, and how many there are.
    """

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.walk = Walk(rank)
        self.facts = Facts()
        self.out: list[Item] = self.walk.items
        self.around: list[Around] = []
        self.hooks: list[Callable[[], None]] = []
        self.no_gradient = 0

    def note(self, what: str, node: ast.AST, *values: Value, text: str = "") -> None:
        """Keep a fact."""
        line = getattr(node, "lineno", 0)
        self.facts.events.append(Event(what, line, values, text, tuple(self.around)))

    @property
    def unsure(self) -> bool:
        """Whether what is done now may not be done at all."""
        return any(not around.sure for around in self.around)

    @contextmanager
    def within(
        self, line: int, branch: int, marks: Marks, *, loop: bool = False, sure: bool = True
    ) -> Iterator[None]:
        """What is evaluated inside is under a condition or in a loop."""
        self.around.append(Around(line, branch, marks, loop, sure))
        try:
            yield
        finally:
            self.around.pop()

    @contextmanager
    def aside(self) -> Iterator[list[Item]]:
        """Calls made inside are collected in a list of their own."""
        outer, self.out = self.out, []
        try:
            yield self.out
        finally:
            self.out = outer

    # -- expressions ------------------------------------------------------------------------------

    def eval(self, node: ast.expr | None, scope: Scope) -> Value:
        """The value of an expression; what it calls is followed."""
        if node is None:
            return Value(None)
        name = _EVAL.get(type(node)) or _EVAL.setdefault(
            type(node), f"_{type(node).__name__.lower()}"
        )
        method = getattr(self, name, None)
        if method is None:
            children = ast.iter_child_nodes(node)
            values = [self.eval(c, scope) for c in children if isinstance(c, ast.expr)]
            return Value(UNKNOWN, only_data(marks_of(values)))
        result: Value = method(node, scope)
        return result

    def use(self, node: ast.expr, scope: Scope) -> Value:
        """The value of an expression of which the content is looked at."""
        value = self.eval(node, scope)
        for mark in value.marks:
            if mark.startswith(PENDING):
                self.note("read pending", node, value, text=f"{mark}\0{written(node)}")
        return value

    def changes(self, value: Value, node: ast.AST) -> None:
        """A tensor is changed in place."""
        for mark in value.marks:
            if mark.startswith((PENDING, SENDING)):
                self.note("changed pending", node, value, text=mark)

    def see(self, node: ast.expr, scope: Scope) -> Value:
        """The same for what is shown or decided upon."""
        value = self.use(node, scope)
        for mark in value.marks:
            if mark.startswith(STALE):
                self.note("read stale", node, value, text=f"{mark}\0{written(node)}")
        return value

    def _constant(self, node: ast.Constant, scope: Scope) -> Value:
        return Value(node.value)

    def _name(self, node: ast.Name, scope: Scope) -> Value:
        bound = scope.get(node.id)
        if bound is not None and (bound.known or bound.marks or node.id not in names.RANKS):
            return bound
        if node.id in names.RANKS:
            return Value(self.rank, frozenset({RANK}))
        if node.id in names.WORLDS:
            return Value(self.world)
        return bound or names_given(node.id)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        base = self.eval(node.value, scope)
        held, name = base.value, node.attr
        if isinstance(held, Symbol):
            return Value(Symbol(f"{held.path}.{name}"))
        if isinstance(held, Object):
            return self._attribute_of(held, name)
        if isinstance(held, Class):
            method = held.method(name)
            return Value(Function(method, held.scope)) if method else ANYTHING
        if is_wrapper(held):
            assert isinstance(held, Foreign)
            if name == "module":
                return held.argument("module", 0) or ANYTHING
            self.note("attribute of wrapper", node, base, text=name)
            return ANYTHING
        if isinstance(held, Foreign) and name in held.keywords:
            return held.keywords[name]
        if name in SIZES:
            return ANYTHING
        if held is UNKNOWN or isinstance(held, Foreign):
            if name in names.RANKS:
                return Value(self.rank, frozenset({RANK}))
            if name in names.WORLDS:
                return Value(self.world)
            if name in names.FIRST:
                return Value(self.rank == 0, frozenset({RANK}))
        return Value(UNKNOWN, base.marks)

    def _attribute_of(self, held: Object, name: str) -> Value:
        if name in held.attributes:
            return held.attributes[name]
        method = held.of.method(name)
        if method is not None:
            bound = Function(method, held.of.scope, held)
            if any(getattr(d, "id", "") == "property" for d in method.decorator_list):
                return self.call_function(bound, [], {})
            return Value(bound)
        for statement in held.of.node.body:
            if isinstance(statement, ast.Assign) and any(
                getattr(target, "id", "") == name for target in statement.targets
            ):
                return self.eval(statement.value, held.of.scope)
        if name in names.RANKS:
            return Value(self.rank, frozenset({RANK}))
        if name in names.FIRST:
            return Value(self.rank == 0, frozenset({RANK}))
        return Value(self.world) if name in names.WORLDS else ANYTHING

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        base = self.eval(node.value, scope)
        if isinstance(base.value, Symbol) and base.value.path == "os.environ":
            return self.environment(self.eval(node.slice, scope))
        if isinstance(node.slice, ast.Slice):
            low, high, step = node.slice.lower, node.slice.upper, node.slice.step
            bounds = (self.eval(low, scope), self.eval(high, scope), self.eval(step, scope))
            cut = builtin.part(base, bounds)
            return cut if cut.known else Value(UNKNOWN, only_data(cut.marks))
        if isinstance(base.value, Foreign) and base.value.kind in ("loaded", "state_dict"):
            return base
        found = builtin.item(base, self.eval(node.slice, scope))
        return found if found.known else Value(found.value, only_data(found.marks))

    def environment(self, name: Value) -> Value:
        """A variable of the environment."""
        if name.value in names.ENVIRONMENT:
            return Value(str(self.rank), frozenset({RANK}))
        if name.value in names.ENVIRONMENT_WORLD:
            return Value(str(self.world))
        return ANYTHING

    def _binop(self, node: ast.BinOp, scope: Scope) -> Value:
        one, other = self.use(node.left, scope), self.use(node.right, scope)
        return builtin.binary(node.op, one, other)

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Value:
        operand = self.see(node.operand, scope)
        if isinstance(node.op, ast.Not):
            holds = builtin.truth(operand)
            return Value(UNKNOWN if holds is None else not holds, operand.marks)
        if isinstance(node.op, ast.USub) and isinstance(operand.value, (int, float)):
            return Value(-operand.value, operand.marks)
        return Value(UNKNOWN, operand.marks)

    def _compare(self, node: ast.Compare, scope: Scope) -> Value:
        sides = [self.see(side, scope) for side in (node.left, *node.comparators)]
        results = [
            builtin.compare(sign, one, other)
            for sign, one, other in zip(node.ops, sides, sides[1:], strict=False)
        ]
        marks = marks_of(results)
        truths = [builtin.truth(result) for result in results]
        if False in truths:
            return Value(False, marks)
        return Value(UNKNOWN if None in truths else True, marks)

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Value:
        """Operands are evaluated as far as the ones before them let it come."""
        stops = isinstance(node.op, ast.Or)
        marks, unknown = NO_MARKS, False
        for operand in node.values:
            if marks or unknown:
                with self.aside() as calls:
                    with self.within(node.lineno, 0, marks, sure=not unknown):
                        value = self.see(operand, scope)
                if unknown and has_issues(calls):
                    self.out.append(Choice(node.lineno, marks, (tuple(calls), ())))
                else:
                    self.out += calls
            else:
                value = self.see(operand, scope)
            holds = builtin.truth(value)
            if holds is stops:
                # What decides is this operand, whatever was unknown before it.
                return Value(stops, value.marks | marks)
            marks |= value.marks
            unknown = unknown or holds is None
        return Value(UNKNOWN if unknown else not stops, marks)

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Value:
        test = self.see(node.test, scope)
        holds = builtin.truth(test)
        if holds is not None:
            with self.within(node.lineno, int(not holds), test.marks):
                value = self.eval(node.body if holds else node.orelse, scope)
            measure = isinstance(value.value, float)
            return value.marked(*(only_data(test.marks) if measure else test.marks))
        ways, values = [], []
        for branch, side in enumerate((node.body, node.orelse)):
            with self.aside() as calls:
                with self.within(node.lineno, branch, test.marks, sure=False):
                    values.append(self.eval(side, scope))
            ways.append(tuple(calls))
        if any(map(has_issues, ways)):
            self.out.append(Choice(node.lineno, test.marks, (ways[0], ways[1])))
        return join(*values).marked(*test.marks)

    def _list(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Value:
        items: list[Value] | None = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inner = builtin.iterate(self.eval(element.value, scope))
                items = None if inner is None or items is None else items + inner
            else:
                value = self.eval(element, scope)
                items = None if items is None else [*items, value]
        return Value(Items(items))

    _tuple = _set = _list

    def _dict(self, node: ast.Dict, scope: Scope) -> Value:
        table: dict[object, Value] = {}
        certain = True
        for name, value in zip(node.keys, node.values, strict=True):
            held = self.eval(value, scope)
            known = self.eval(name, scope) if name is not None else ANYTHING
            if isinstance(known.value, (str, int)):
                table[known.value] = held
            else:
                certain = False
        return Value(table) if certain else ANYTHING

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope
    ) -> Value:
        first, inner = node.generators[0], Scope(parent=scope)
        many = self.eval(first.iter, scope)
        items = builtin.iterate(many)
        if len(node.generators) > 1 or items is None:
            with self.aside() as calls:
                with self.within(node.lineno, 0, NO_MARKS, loop=True, sure=False):
                    for part in node.generators:
                        self.assign(part.target, Value(UNKNOWN, only_data(many.marks)), inner)
                        for test in part.ifs:
                            self.eval(test, inner)
                    value = self.eval(node.elt, inner)
            if has_issues(calls):
                self.out.append(Rounds(node.lineno, NO_MARKS, tuple(calls)))
            return Value(Items(None), only_data(value.marks | many.marks))
        kept: list[Value] | None = []
        marks = NO_MARKS
        for one in items:
            self.assign(first.target, one, inner)
            tests = [self.eval(test, inner) for test in first.ifs]
            marks |= only_data(marks_of(tests))
            holds = [builtin.truth(test) for test in tests]
            if False in holds:
                continue
            value = self.eval(node.elt, inner)
            kept = None if None in holds or kept is None else [*kept, value]
        return Value(Items(kept), marks)

    _listcomp = _setcomp = _generatorexp = _comprehension

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        return Value(Function(node, scope))

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self.eval(node.value, scope)
        self.assign(node.target, value, scope)
        return value

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Value:
        values = []
        for piece in node.values:
            inner = piece.value if isinstance(piece, ast.FormattedValue) else piece
            values.append(self.see(inner, scope))
        try:
            return Value("".join(str(builtin.plain(value)) for value in values), marks_of(values))
        except LookupError:
            return Value(UNKNOWN, marks_of(values))

    def _await(self, node: ast.Await, scope: Scope) -> Value:
        return self.eval(node.value, scope)

    def _yield(self, node: ast.Yield, scope: Scope) -> Value:
        value = self.eval(node.value, scope)
        if self.hooks:
            self.hooks[-1]()
        return value if not self.hooks else ANYTHING

    @abstractmethod
    def call_function(
        self, function: Function, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Follow a function of the program."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """Bind names, attributes or elements."""


def names_given(name: str) -> Value:
    """What a cell of a session finds under a name."""
    symbol = names.GIVEN.get(name)
    return Value(symbol) if symbol is not None else ANYTHING


def only_data(marks: Marks) -> Marks:
    """Marks after a computation on tensors: what came of the rank is now this rank's own data."""
    kept = marks & {CLOCK, LOCAL} | {mark for mark in marks if mark.startswith(STALE)}
    return kept | {LOCAL} if RANK in marks else kept
