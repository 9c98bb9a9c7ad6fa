"""Evaluates expressions on one rank, as far as the source shows their values."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from . import names, operators
from .nodes import decorators, is_task_number, last_name, source_of, variables_in
from .project import FromProject
from .trace import Choice, Item, Kind, Loop, Recorder, first_call
from .values import (
    ANYTHING,
    DIFFERS,
    LOCAL,
    MEASURED,
    NO_MARKS,
    ON_RANK,
    OTHER_RANK,
    RANK,
    RANK_AND_MORE,
    UNKNOWN,
    UNREAD,
    Class,
    Function,
    Group,
    HeldElsewhere,
    Imported,
    InFlight,
    Instance,
    Items,
    LibraryObject,
    Marks,
    Namespace,
    Scope,
    Source,
    Value,
    as_data,
    is_wrapper,
    join,
    marks_of,
)

#: Attributes and methods of a tensor that do not depend on its content.
NOT_CONTENT = names.METADATA | names.METADATA_CALLS


class Calls(Protocol):
    """The methods of the interpreter that the evaluator uses."""

    def call(self, node: ast.Call, scope: Scope) -> Value:
        """Evaluate a call."""

    def call_function(
        self, function: Function, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Follow a function of the program."""

    def resume(self) -> bool:
        """Follow the body of the ``with`` statement, if there is one, at a ``yield``."""

    def imported(self, name: FromProject) -> Value:
        """The value of a name in another file of the project."""


class Evaluator:
    """Evaluates expressions as one rank would, and binds names.

    Parameters
    ----------
    rank, world_size
        Number of the rank, and how many there are.
    recorder
        Receives the events.
    calls
        Evaluates calls.
    """

    def __init__(self, rank: int, world_size: int, recorder: Recorder, calls: Calls) -> None:
        self.rank, self.world_size = rank, world_size
        self.recorder = recorder
        self._calls = calls
        self.own_rank = Value(rank, frozenset({RANK}))
        self.is_first = Value(rank == 0, frozenset({RANK}))

    def evaluate(self, node: ast.expr | None, scope: Scope) -> Value:
        """The value of an expression. The calls in it are followed."""
        if node is None:
            return Value(None)
        evaluate = _EVALUATE.get(type(node))
        if evaluate is not None:
            return evaluate(self, node, scope)
        children = ast.iter_child_nodes(node)
        values = [self.evaluate(one, scope) for one in children if isinstance(one, ast.expr)]
        return Value(UNKNOWN, as_data(marks_of(values)))

    def read(self, node: ast.expr, scope: Scope, *, shown: bool = False) -> Value:
        """The value of an expression whose content is used; see `note_read`."""
        value = self.evaluate(node, scope)
        self.note_read(value, node, shown=shown)
        return value

    def note_read(self, value: Value, node: ast.expr, *, shown: bool = False, by: str = "") -> None:
        """Record that a value is read before it holds the result, or on a rank that has no result.

        Parameters
        ----------
        shown
            Whether the value is shown or decides something. A rank may go on computing with a value
            that only another rank needs.
        by
            ``"unknown"`` if a function reads it whose source is not known: it may be one that
            shows something on one rank only.
        """
        for mark in value.marks:
            if isinstance(mark, InFlight) and mark.line in self.recorder.waited:
                continue
            if isinstance(mark, InFlight) and not mark.sending:
                kind = Kind.READ_IN_FLIGHT
            elif isinstance(mark, HeldElsewhere) and shown:
                kind = Kind.READ_ELSEWHERE
            else:
                continue
            text = mark.name if isinstance(node, ast.JoinedStr) else source_of(node)
            self.recorder.event(kind, node, value, op=by, text=text, about=mark)

    def note_change(self, value: Value, node: ast.AST) -> None:
        """Record that a tensor is changed while an asynchronous call works on it."""
        for mark in value.marks:
            if isinstance(mark, InFlight) and mark.line not in self.recorder.waited:
                self.recorder.event(Kind.CHANGED_IN_FLIGHT, node, value, about=mark)

    # -- names, attributes, elements ---------------------------------------------------------------

    def _constant(self, node: ast.Constant, scope: Scope) -> Value:
        return Value(node.value)

    def _name(self, node: ast.Name, scope: Scope) -> Value:
        bound = scope.get(node.id)
        if bound is not None and isinstance(bound.value, FromProject) and bound.value.name:
            bound = self._calls.imported(bound.value)
        if bound is not None and not _may_be_rank(node.id, bound):
            return bound
        if node.id in names.RANK_NAMES:
            return self.own_rank
        if node.id in names.WORLD_NAMES:
            return Value(self.world_size)
        if bound is None and node.id in names.GIVEN:
            return Value(Imported(names.GIVEN[node.id]))
        return bound or ANYTHING

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        if is_task_number(node):
            return self.own_rank
        return self.attribute(self.evaluate(node.value, scope), node)

    def attribute(self, base: Value, node: ast.Attribute) -> Value:
        """An attribute of a value."""
        held, name = base.value, node.attr
        if isinstance(held, Imported):
            return Value(Imported(f"{held.path}.{name}"))
        if isinstance(held, FromProject):
            return self._calls.imported(FromProject(held.file, name))
        if isinstance(held, Instance):
            return self._attribute_of_instance(held, name)
        if isinstance(held, Namespace):
            bound = held.attributes.get(name, ANYTHING)
            if not bound.known and (_may_be_rank(name, bound) or bound.marks <= {UNREAD}):
                return self._by_name(name) or bound
            return bound
        if isinstance(held, Class):
            method = held.method(name)
            return Value(Function(method, held.scope)) if method else ANYTHING
        if isinstance(held, LibraryObject):
            if is_wrapper(held):
                if name == "module":
                    return held.argument("module", 0) or ANYTHING
                self.recorder.event(Kind.WRAPPER_ATTRIBUTE, node, base, op=name)
                return ANYTHING
            if name in held.keywords:
                return held.keywords[name]
        if name in NOT_CONTENT or last_name(node.value) in names.AGREED_OBJECTS:
            return ANYTHING
        named = self._by_name(name)
        if named is not None and (held is UNKNOWN or isinstance(held, LibraryObject)):
            return named
        return Value(UNKNOWN, base.marks)

    def _attribute_of_instance(self, held: Instance, name: str) -> Value:
        if name in held.attributes:
            return held.attributes[name]
        method = held.of.method(name)
        if method is not None:
            bound = Function(method, held.of.scope, held)
            if "property" in decorators(method):
                return self._calls.call_function(bound, [], {})
            return Value(bound)
        for statement in held.of.node.body:
            if isinstance(statement, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in statement.targets
            ):
                return self.evaluate(statement.value, held.of.scope)
        return self._by_name(name) or ANYTHING

    def _by_name(self, name: str) -> Value | None:
        """The value that an attribute of this name usually has."""
        if name in names.RANK_NAMES:
            return self.own_rank
        if name in names.FIRST_RANK:
            return self.is_first
        return Value(self.world_size) if name in names.WORLD_NAMES else None

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        if is_task_number(node):
            return self.own_rank
        base = self.evaluate(node.value, scope)
        held = base.value
        if isinstance(held, Imported) and held.path == "os.environ":
            return self.environment(self.evaluate(node.slice, scope))
        if isinstance(node.slice, ast.Slice):
            low, high, step = node.slice.lower, node.slice.upper, node.slice.step
            found = operators.part(
                base,
                (self.evaluate(low, scope), self.evaluate(high, scope), self.evaluate(step, scope)),
            )
        elif isinstance(held, LibraryObject) and held.kind in ("loaded", "state_dict"):
            return base
        else:
            found = operators.item(base, self.evaluate(node.slice, scope))
        return found if found.known else Value(UNKNOWN, as_data(found.marks))

    def environment(self, name: Value) -> Value:
        """The value of an environment variable."""
        if name.value in names.RANK_VARIABLES:
            return Value(str(self.rank), frozenset({RANK}))
        if name.value in names.WORLD_VARIABLES:
            return Value(str(self.world_size))
        return ANYTHING

    # -- operators ---------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp, scope: Scope) -> Value:
        one, other = self.read(node.left, scope), self.read(node.right, scope)
        return operators.binary(node.op, one, other)

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Value:
        operand = self.read(node.operand, scope, shown=True)
        if isinstance(node.op, ast.Not):
            holds = operators.truth(operand)
            return Value(UNKNOWN if holds is None else not holds, operand.marks)
        if isinstance(node.op, ast.USub) and isinstance(operand.value, (int, float)):
            return Value(-operand.value, operand.marks)
        return Value(UNKNOWN, operand.marks)

    def _compare(self, node: ast.Compare, scope: Scope) -> Value:
        same = all(isinstance(sign, (ast.Is, ast.IsNot)) for sign in node.ops)
        read = self.evaluate if same else partial(self.read, shown=True)  # not the content
        sides = [read(side, scope) for side in (node.left, *node.comparators)]
        results = [
            self._compared(sign, one, other)
            for sign, one, other in zip(node.ops, sides, sides[1:], strict=False)
        ]
        truths = [operators.truth(result) for result in results]
        holds = False if False in truths else UNKNOWN if None in truths else True
        marks = marks_of(results)
        if LOCAL in marks and all(isinstance(sign, ast.Eq) for sign in node.ops):
            marks |= {MEASURED}  # such as `predictions == labels`
        return Value(holds, frozenset(one for one in marks if isinstance(one, Source) or not same))

    def _compared(self, sign: ast.cmpop, one: Value, other: Value) -> Value:
        """The result of a comparison; it does not depend on the rank if all ranks get the same.

        ``local_rank == -1`` and ``rank < world_size`` are the same on every rank.
        """
        result = operators.compare(sign, one, other)
        if other.value == Imported("os.environ") and isinstance(one.value, str):
            known = one.value in names.LAUNCHER_VARIABLES  # others may be set, or not
            return Value(isinstance(sign, ast.In)) if known else ANYTHING
        ranks = [value for value in (one, other) if RANK in value.marks]
        if not result.known and len(ranks) > 1:
            return ANYTHING  # two ways to the number of this rank may give the same number
        if not result.known and ranks and _is_whether_there_is_a_rank(sign, one, other):
            return ANYTHING
        if not result.known or not ranks or not all(map(self._is_own_rank, ranks)):
            return result
        everywhere = {
            operators.compare(sign, self._on(rank, one), self._on(rank, other)).value
            for rank in range(self.world_size)
        }
        same = everywhere == {result.value}
        return Value(result.value, result.marks - {RANK}) if same else result

    def _is_own_rank(self, value: Value) -> bool:
        """Whether a value that depends on the rank is the rank itself."""
        return type(value.value) in (int, str) and str(value.value) == str(self.rank)

    @staticmethod
    def _on(rank: int, value: Value) -> Value:
        """The value on another rank."""
        if RANK not in value.marks:
            return value
        return Value(str(rank) if isinstance(value.value, str) else rank, value.marks)

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Value:
        """Evaluate operands until one decides the result."""
        decides = isinstance(node.op, ast.Or)
        marks, on_rank, unknown = NO_MARKS, NO_MARKS, False
        for operand in node.values:
            if marks or on_rank or unknown:
                with self.recorder.aside() as calls:
                    with self.recorder.under(node.lineno, 0, marks | on_rank, sure=not unknown):
                        value = self.read(operand, scope, shown=True)
                if unknown and first_call(calls):
                    calls = [Choice(node.lineno, marks | on_rank, (tuple(calls), ()))]
                self.recorder.items += calls
            else:
                value = self.read(operand, scope, shown=True)
            holds = operators.truth(value)
            if holds is decides:
                return Value(decides, value.marks | marks | on_rank)
            on_rank |= value.marks & {RANK} if holds is not None else NO_MARKS
            marks |= value.marks if holds is None else value.marks - {RANK}
            unknown = unknown or holds is None
        if unknown and on_rank and not marks & DIFFERS:
            return Value(UNKNOWN, marks | {RANK_AND_MORE})
        return Value(UNKNOWN if unknown else not decides, marks | on_rank)

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Value:
        test = self.read(node.test, scope, shown=True)
        holds = operators.truth(test)
        if holds is not None:
            with self.recorder.under(node.lineno, int(not holds), test.marks):
                value = self.evaluate(node.body if holds else node.orelse, scope)
            is_data = isinstance(value.value, float)
            return value.marked(as_data(test.marks) if is_data else test.marks)
        paths: list[tuple[Item, ...]] = []
        values = []
        for branch, side in enumerate((node.body, node.orelse)):
            with self.recorder.aside() as calls:
                with self.recorder.under(node.lineno, branch, test.marks, sure=False):
                    values.append(self.evaluate(side, scope))
            paths.append(tuple(calls))
        if any(map(first_call, paths)):
            self.recorder.items.append(Choice(node.lineno, test.marks, (paths[0], paths[1])))
        return join(*values).marked(test.marks)

    # -- lists, tables, strings --------------------------------------------------------------------

    def _list(self, node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Value:
        items: list[Value] | None = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inner = operators.iterate(self.evaluate(element.value, scope))
                items = None if inner is None or items is None else items + inner
            else:
                value = self.evaluate(element, scope)
                items = None if items is None else [*items, value]
        return Value(Items(items))

    def _dict(self, node: ast.Dict, scope: Scope) -> Value:
        table: dict[object, Value] = {}
        certain = True
        for name, value in zip(node.keys, node.values, strict=True):
            held = self.evaluate(value, scope)
            known = self.evaluate(name, scope) if name is not None else ANYTHING
            if isinstance(known.value, (str, int)):
                table[known.value] = held
            else:
                certain = False
        return Value(table) if certain else ANYTHING

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope
    ) -> Value:
        first, inner = node.generators[0], Scope(parent=scope)
        many = self.evaluate(first.iter, scope)
        if variables_in(first.target) & names.RANK_NAMES:
            many = many.marked({OTHER_RANK})
        items = operators.iterate(many)
        if len(node.generators) > 1 or items is None:
            with self.recorder.aside() as calls:
                with self.recorder.under(node.lineno, 0, NO_MARKS, loop=True, sure=False):
                    for part in node.generators:
                        marks = as_data(many.marks) | many.marks & {OTHER_RANK}
                        self.assign(part.target, Value(UNKNOWN, marks), inner)
                        for test in part.ifs:
                            self.evaluate(test, inner)
                    value = self.evaluate(node.elt, inner)
            if first_call(calls):
                self.recorder.items.append(Loop(node.lineno, NO_MARKS, tuple(calls)))
            return Value(Items(None), as_data(value.marks | many.marks))
        kept: list[Value] | None = []
        marks = NO_MARKS
        for one in items:
            self.assign(first.target, one, inner)
            tests = [self.evaluate(test, inner) for test in first.ifs]
            marks |= as_data(marks_of(tests))
            holds = [operators.truth(test) for test in tests]
            if False in holds:
                continue
            value = self.evaluate(node.elt, inner)
            kept = None if None in holds or kept is None else [*kept, value]
        return Value(Items(kept), marks)

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Value:
        values = [
            self.read(piece.value, scope)
            if isinstance(piece, ast.FormattedValue)
            else self.evaluate(piece, scope)
            for piece in node.values
        ]
        try:
            text = "".join(str(operators.plain(value)) for value in values)
        except LookupError:
            return Value(UNKNOWN, marks_of(values))
        return operators.wrap(text, marks_of(values))

    # -- the rest ----------------------------------------------------------------------------------

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        return self._calls.call(node, scope)

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        return Value(Function(node, scope))

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self.evaluate(node.value, scope)
        self.assign(node.target, value, scope)
        return value

    def _await(self, node: ast.Await, scope: Scope) -> Value:
        return self.evaluate(node.value, scope)

    def _yield(self, node: ast.Yield, scope: Scope) -> Value:
        value = self.evaluate(node.value, scope)
        return ANYTHING if self._calls.resume() else value

    # -- assignments -------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """Bind names, attributes or elements."""
        match target:
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                items = operators.iterate(value)
                if items is None or len(items) != len(targets):
                    items = [Value(UNKNOWN, value.marks)] * len(targets)
                for one, item in zip(targets, items, strict=True):
                    self.assign(one, item, scope)
            case ast.Starred(value=inner):
                self.assign(inner, ANYTHING, scope)
            case ast.Name(id=name):
                scope.names[name] = self.under_conditions(value)
            case ast.Attribute(attr=name):
                held = self.evaluate(target.value, scope).value
                if held is UNKNOWN and isinstance(target.value, ast.Name):
                    held = Namespace()
                    (scope.owner(target.value.id) or scope).names[target.value.id] = Value(held)
                if isinstance(held, (Instance, Namespace)):
                    before = held.attributes.get(name)
                    if self.recorder.unsure and before is not None:
                        value = join(value, before)
                    held.attributes[name] = self.under_conditions(value)
            case ast.Subscript():
                self._assign_item(target, value, scope)

    def under_conditions(self, value: Value) -> Value:
        """The value, marked as differing between ranks if the conditions around it differ."""
        marks: Marks = NO_MARKS.union(
            *(around.marks for around in self.recorder.around if not around.loop)
        )
        return value.marked(marks - ON_RANK)

    def _assign_item(self, target: ast.Subscript, value: Value, scope: Scope) -> None:
        held = self.evaluate(target.value, scope).value
        index = self.evaluate(target.slice, scope).value
        sure = not self.recorder.unsure
        if isinstance(held, Items) and held.items is not None:
            many = len(held.items)
            if isinstance(index, int) and -many <= index < many and sure:
                held.items[index] = value
            else:
                held.items = None
        elif isinstance(held, dict):
            if isinstance(index, (int, str)) and sure:
                held[index] = value
            else:
                held.clear()

    def set_marks(self, node: ast.expr, marks: Marks, scope: Scope) -> None:
        """Set the marks of a variable or an attribute after its tensor has changed."""
        match node:
            case ast.Name(id=name):
                owner = scope.owner(name) or scope
                held = owner.names.get(name, ANYTHING).value
                if not isinstance(held, (Group, Imported, Instance, LibraryObject)):
                    kept = held if isinstance(held, Items) else UNKNOWN
                    owner.names[name] = Value(kept, marks)
            case ast.Attribute(attr=name):
                held = self.evaluate(node.value, scope).value
                if isinstance(held, (Instance, Namespace)):
                    held.attributes[name] = Value(UNKNOWN, marks)


def _may_be_rank(name: str, value: Value) -> bool:
    """Whether an unknown value has the name of the rank, and nothing contradicts it."""
    return name in names.RANK_NAMES and not value.known and value.marks <= {RANK, UNREAD}


_EVALUATE: dict[type[ast.expr], Callable[[Evaluator, Any, Scope], Value]] = {
    ast.Attribute: Evaluator._attribute,
    ast.Await: Evaluator._await,
    ast.BinOp: Evaluator._binop,
    ast.BoolOp: Evaluator._boolop,
    ast.Call: Evaluator._call,
    ast.Compare: Evaluator._compare,
    ast.Constant: Evaluator._constant,
    ast.Dict: Evaluator._dict,
    ast.GeneratorExp: Evaluator._comprehension,
    ast.IfExp: Evaluator._ifexp,
    ast.JoinedStr: Evaluator._joinedstr,
    ast.Lambda: Evaluator._lambda,
    ast.List: Evaluator._list,
    ast.ListComp: Evaluator._comprehension,
    ast.Name: Evaluator._name,
    ast.NamedExpr: Evaluator._namedexpr,
    ast.Set: Evaluator._list,
    ast.SetComp: Evaluator._comprehension,
    ast.Subscript: Evaluator._subscript,
    ast.Tuple: Evaluator._list,
    ast.UnaryOp: Evaluator._unaryop,
    ast.Yield: Evaluator._yield,
}


def _is_whether_there_is_a_rank(sign: ast.cmpop, one: Value, other: Value) -> bool:
    """Whether a comparison such as ``rank >= 0`` or ``rank is not None`` holds for every rank.

    Programs use -1 or None as the rank if they are not distributed.
    """
    of_left = RANK in one.marks and RANK not in other.marks
    limit = other.value if of_left else one.value
    if limit is None or (type(limit) is int and limit < 0):
        return True
    or_more = (ast.GtE, ast.Lt) if of_left else (ast.LtE, ast.Gt)
    return type(limit) is int and limit == 0 and isinstance(sign, or_more)
