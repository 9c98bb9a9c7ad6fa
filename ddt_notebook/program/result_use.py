"""How a rank uses a value after a line: it prints, compares, applies or returns the value.

Only certain uses count. The search ends where a value goes into a function that the source does
not show, into a collective, or into a branch that the rank may not take.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ddt_notebook.model import Place, Position

from .conditions import is_world_size
from .nodes import (
    LEAVES,
    argument,
    called_name,
    calls_in,
    contains,
    decorators,
    is_call,
    key,
    keys_in,
    literals_of,
    reads,
    variables_in,
)
from .program import Program

#: Functions and methods whose result is the value in another form.
FORMS = frozenset({
    "item", "float", "int", "round", "tolist", "numpy", "clone", "detach", "cpu", "to", "mean",
    "sum", "max", "min", "abs", "sqrt", "exp", "div", "mul", "add", "sub", "format", "str", "norm",
    "double", "half", "view", "reshape", "flatten", "squeeze", "unsqueeze", "argmax", "stack",
    "cat", "tensor", "as_tensor",
})  # fmt: skip
_OVERWRITES = frozenset({"zero_", "fill_", "copy_", "normal_", "uniform_"})
_STORES = frozenset({"append", "add", "extend", "update"})
#: Methods of loggers of metrics, such as those of wandb, mlflow and TensorBoard.
_LOGS = frozenset({"log", "log_metric", "log_metrics", "add_scalar", "add_scalars"})
_DIVISIONS = (ast.Div, ast.FloorDiv)
#: Decorators that do not change what a function returns.
_TRANSPARENT = frozenset({"no_grad", "inference_mode", "staticmethod", "classmethod"})
_DEPTH = 3  #: how many functions that return another's result are followed

UseKind = Literal["print", "decision", "step", "kept", "return"]
Part = int | str | None  #: position or key of one of several returned values, None for all


@dataclass(frozen=True, slots=True)
class Use:
    """A statement in which a rank uses a value.

    Attributes
    ----------
    statement
        The statement.
    place
        Its line.
    kind
        ``"print"``: shows the value; ``"decision"``: branches on it; ``"step"``: an optimizer
        applies it as a gradient; ``"kept"``: computes something from it that is never read;
        ``"return"``: returns it to the caller.
    keys
        The names by which the statement reads the value.
    scaled
        Whether it was divided by something before.
    """

    statement: ast.stmt
    place: Place
    kind: UseKind
    keys: tuple[str, ...] = ()
    scaled: bool = False

    @property
    def text(self) -> str:
        """What the statement shows to a reader, whatever the values: its string literals."""
        return literals_of(self.statement)

    @property
    def compares(self) -> bool:
        """Whether it is an ``if`` that compares something."""
        return isinstance(self.statement, ast.If) and contains(self.statement.test, ast.Compare)

    @property
    def stops_or_saves(self) -> bool:
        """Whether it is an ``if`` that ends a loop or a function, or saves something."""
        return isinstance(self.statement, ast.If) and any(
            isinstance(inner, (ast.Break, ast.Return)) or is_call(inner, "save")
            for one in self.statement.body
            for inner in ast.walk(one)
        )


def uses_of_result(
    program: Program, place: Position, op: str, ranks: Iterable[int], carriers: frozenset[str]
) -> dict[int, Use]:
    """The first use, on each rank, of the tensor that the call of ``op`` at a line has filled.

    Parameters
    ----------
    carriers
        Names of functions that may carry values from rank to rank.
    """
    call, statement = program.call_at(place, op), program.statement_at(place)
    tensor = key(argument(call, 0, "tensor")) if call is not None else None
    if tensor is None or statement is None:
        return {}
    found = {rank: Trail(program, rank, carriers).follow(statement, tensor) for rank in ranks}
    return {rank: use for rank, use in found.items() if use is not None}


def divides(program: Program, place: Position) -> bool:
    """Whether the document of a line divides by anything, or takes a mean."""
    tree = program.tree_at(place)
    return tree is not None and (
        bool({"mean", "div_"} & tree.calls.keys())
        or any(isinstance(node, _DIVISIONS) for node in tree.nodes)
    )


def divided_by_world(program: Program, place: Position, op: str) -> Place | None:
    """The line that divides the result of ``op`` at a line by the number of ranks.

    None if the result is not divided before it is assigned again.
    """
    call, statement = program.call_at(place, op), program.statement_at(place)
    result = key(argument(call, 0, "tensor")) if call is not None else None
    if result is None or statement is None:
        return None
    for one in (one for block in program.following(statement)[0] for one in block):
        for node in ast.walk(one):
            match node:
                case ast.AugAssign(target=divided, op=ast.Div(), value=divisor):
                    pass
                case ast.BinOp(left=divided, op=ast.Div(), right=divisor):
                    pass
                case ast.Call(func=ast.Attribute(value=divided, attr="div_"), args=[divisor]):
                    pass
                case _:
                    continue
            while isinstance(divided, ast.Call) and isinstance(divided.func, ast.Attribute):
                divided = divided.func.value  # `x.item() / world_size`
            if key(divided) == result and is_world_size(divisor):
                return program.place(node, "changes")
        if isinstance(one, ast.Assign) and result in map(key, one.targets):
            return None
    return None


class Trail:
    """A value on one rank, followed from a statement onwards.

    Parameters
    ----------
    program
        The program.
    rank
        The rank for which conditions on the rank are evaluated.
    carriers
        Names of functions that may make a value the same on every rank: the trail ends there.
    leaves
        Whether the value is followed out of a function; otherwise its ``return`` is a use.
    """

    def __init__(
        self, program: Program, rank: int, carriers: frozenset[str], leaves: bool = True
    ) -> None:
        self._program, self._rank, self._carriers = program, rank, carriers
        self._leaves = leaves
        self._keys: set[str] = set()  # the names of the value
        self._kept: ast.stmt | None = None  # the last statement that computed something from it
        self._scaled = False
        self._lost = False
        self._guarded = False  # whether a condition selects the ranks that read the value

    def follow(self, statement: ast.stmt, start: str, depth: int = 0) -> Use | None:
        """The first use of ``start`` after a statement."""
        self._keys = {start, *self._collections(statement, start)}
        self._kept, self._lost = None, False
        rest, function = self._program.following(statement)
        for one in (one for block in rest for one in block):
            use = self._statement(one)
            if use is not None or self._lost:
                return use
            if isinstance(one, ast.Return):
                if one.value is None or not self._reads(one.value):
                    return None
                if not self._leaves:
                    return self._use(one, "return") if self._follows(one.value) else None
                return self._callers(function, one.value, depth)
            if isinstance(one, LEAVES):
                return None
        if self._kept is not None and function is None and not self._guarded:
            return self._use(self._kept, "kept")
        return None

    def _collections(self, statement: ast.stmt, start: str) -> Iterator[str]:
        """Lists and dictionaries whose items a loop around a statement names ``start``."""
        for loop in (b.owner for b in self._program.tree_of(statement).blocks(statement)):
            if not isinstance(loop, ast.For) or start not in variables_in(loop.target):
                continue
            match loop.iter:
                case ast.Call(func=ast.Attribute(value=held, attr="items" | "values")):
                    whole = key(held)
                case _:
                    whole = key(loop.iter)
            if whole is not None:
                yield whole

    def _callers(
        self, function: ast.FunctionDef | None, returned: ast.expr, depth: int
    ) -> Use | None:
        """The first use in a caller, if the function returns the value."""
        if function is None or depth >= _DEPTH:
            return None
        # The function itself is a carrier if the value is the result of a collective in it.
        values = ReturnedValues(self._program, self._carriers - self._program.functions.keys())
        for part in parts(returned, self._keys):
            for statement, _ in values.prints(function, part):
                return self._use(statement, "print")
            for statement, name in values.receivers(function, part):
                return self.follow(statement, name, depth + 1)
        return None

    def _use(self, statement: ast.stmt, kind: UseKind) -> Use:
        read = getattr(statement, "test", statement)
        keys = tuple(sorted(one for one in self._keys if reads(read, {one})))
        return Use(statement, self._program.place(statement, "reads"), kind, keys, self._scaled)

    # -- statements ------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt) -> Use | None:
        read = getattr(node, "test", node if isinstance(node, ast.Expr) else None)
        if read is not None and self._exchanges(read):
            self._lost = True  # what is read is the result of the exchange
            return None
        return self._used_by(node)

    def _used_by(self, node: ast.stmt) -> Use | None:
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
                    self._scaled |= isinstance(sign, _DIVISIONS)
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
            if isinstance(statement, LEAVES):
                self._lost |= isinstance(statement, ast.Return)
                return None
        return None

    def _condition(
        self, node: ast.If, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]
    ) -> Use | None:
        conditions = self._program.conditions
        if conditions.reads_rank(test):
            holds = self._program.truth(test, self._rank)
            self._lost |= holds is None
            if holds is None:
                return None
            taken, other = (body, orelse) if holds else (orelse, body)
            self._guarded |= any(self._reads(statement) for statement in other)
            use = self._all(taken)
            self._lost |= any(isinstance(inner, LEAVES) for inner in taken)
            return use
        if self._reads(test):
            return self._use(node, "decision")
        if any(isinstance(inner, LEAVES) for inner in (*body, *orelse)):
            self._lost = True
            return None
        if conditions.reads_only(test, variables_in(test) & conditions.counters):
            return self._all([*body, *orelse])
        # The rank may not run the branches, so nothing is known if one of them touches the value.
        self._lost |= any(keys_in(inner) & self._keys for inner in (*body, *orelse))
        return None

    def _assign(self, node: ast.stmt, targets: list[str | None], value: ast.expr) -> None:
        if not self._reads(value):
            self._keys -= {target for target in targets if target}
            self._lost |= not self._keys
            return
        if not self._follows(value) or None in targets:
            self._lost = True
            return
        self._scaled |= contains(value, *_DIVISIONS)
        if not all(target in self._keys for target in targets):
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
            if self._depends_on_rank(call):
                return None
            if not self._leaves and _logs(call):
                return self._use(node, "print")  # on other ranks, the logger may be disabled
            if _prints(call) and not any(map(self._program.defines, ("print", "stdout"))):
                self._scaled |= contains(call, ast.Div)
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
        """Whether all calls in an expression that read the value return it in another form."""
        if self._depends_on_rank(node):
            return False
        forms = FORMS - self._carriers
        return all(called_name(c) in forms for c in calls_in(node) if self._reads(c))

    def _exchanges(self, node: ast.AST) -> bool:
        """Whether an expression passes the value to a function that may carry others' values."""
        carries = (call for call in calls_in(node) if called_name(call) in self._carriers)
        return any(self._reads(one) for call in carries for one in _given(call))

    def _depends_on_rank(self, node: ast.AST) -> bool:
        """Whether the rank decides the value of an expression."""
        reads_rank = self._program.conditions.reads_rank
        return any(
            (isinstance(inner, ast.IfExp) and reads_rank(inner.test))
            or (isinstance(inner, ast.BoolOp) and reads_rank(inner))
            for inner in ast.walk(node)
        )


class ReturnedValues:
    """Where callers keep the results of functions, if these certainly come from the same rank.

    Parameters
    ----------
    program
        The program.
    carriers
        Names of functions that may carry values from rank to rank.
    """

    def __init__(self, program: Program, carriers: frozenset[str]) -> None:
        self._program, self._carriers = program, carriers

    def receivers(
        self, function: ast.FunctionDef, part: Part, depth: int = 0
    ) -> Iterator[tuple[ast.stmt, str]]:
        """The assignments that keep a returned value, and the name of the value."""
        if depth > _DEPTH or not self._is_plain(function):
            return
        for statement in self._program.statements_calling(function.name):
            match statement:
                case (
                    ast.Assign(targets=[target], value=value)
                    | ast.AnnAssign(target=target, value=ast.expr() as value)
                ) if self._is_result(value, function, part):
                    name = self._kept(target, part)
                    if name is not None:
                        yield statement, name
                case ast.Return(value=ast.expr() as value) if self._is_result(
                    value, function, part
                ):
                    outer = self._program.following(statement)[1]
                    if outer is not None:
                        yield from self.receivers(outer, part, depth + 1)

    def prints(self, function: ast.FunctionDef, part: Part) -> Iterator[tuple[ast.stmt, str]]:
        """The statements that print a returned value directly, and the text that they print."""
        defines = self._program.defines
        if not self._is_plain(function) or any(map(defines, ("print", "stdout"))):
            return
        for statement in self._program.statements_calling(function.name):
            match statement:
                case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=shown)) if any(
                    self._is_result(one, function, part) for one in shown
                ):
                    texts = (node for one in shown for node in ast.walk(one))
                    said = [str(n.value) for n in texts if isinstance(n, ast.Constant)]
                    yield statement, " ".join(said)

    def _is_plain(self, function: ast.FunctionDef) -> bool:
        """Whether a call of this name certainly returns the function's result, from this rank."""
        name = function.name
        if name in self._carriers or self._program.conditions.knows(name):
            return False
        return len(self._program.functions[name]) == 1 and decorators(function) <= _TRANSPARENT

    def _is_result(self, value: ast.expr, function: ast.FunctionDef, part: Part) -> bool:
        """Whether an expression is a function's result, or the whole result in another form."""
        calls = list(calls_in(value))
        own = [call for call in calls if called_name(call) == function.name]
        if len(own) != 1 or isinstance(own[0].func, ast.Attribute) is not _is_method(function):
            return False
        if part is not None:
            return value is own[0]
        around = [call for call in calls if call is not own[0] and own[0] in ast.walk(call)]
        return not self._program.conditions.reads_rank(value) and all(
            called_name(call) in FORMS - self._carriers for call in around
        )

    def _kept(self, target: ast.expr, part: Part) -> str | None:
        """The name under which an assignment keeps a part of a value."""
        if isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(one, ast.Starred) for one in target.elts)
            if not isinstance(part, int) or starred or part >= len(target.elts):
                return None
            return key(target.elts[part])
        whole = key(target)
        if whole is None or part is None:
            return whole
        return f"{whole}[{part!r}]" if self._is_read_by_items(whole) else None

    def _is_read_by_items(self, whole: str) -> bool:
        """Whether a collection is only read item by item, so that every change is visible."""
        bare = items = 0
        for node in self._program.nodes:
            if isinstance(getattr(node, "ctx", None), ast.Load) and key(node) == whole:
                bare += 1
            if isinstance(node, ast.Subscript) and key(node.value) == whole:
                items += isinstance(node.ctx, ast.Load) and key(node) is not None
        return bare == items


def parts(returned: ast.expr, keys: Collection[str]) -> list[Part]:
    """The returned values that hold one of ``keys``."""
    match returned:
        case ast.Tuple(elts=values) | ast.List(elts=values):
            return [at for at, value in enumerate(values) if reads(value, keys)]
        case ast.Dict(keys=labels, values=values):
            return [
                label.value
                for label, value in zip(labels, values, strict=True)
                if isinstance(label, ast.Constant)
                and isinstance(label.value, str)
                and reads(value, keys)
            ]
    return [None]


def _parts(targets: list[ast.expr]) -> Iterator[ast.expr]:
    """The targets that an assignment binds, with tuples unpacked."""
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from _parts(target.elts)
        else:
            yield target


def _prints(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "print"


def _logs(call: ast.Call) -> bool:
    """Whether a call gives a logger of metrics what it shows."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _LOGS


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _is_method(function: ast.FunctionDef) -> bool:
    first = [one.arg for one in function.args.args[:1]]
    return first in (["self"], ["cls"]) or "staticmethod" in decorators(function)
