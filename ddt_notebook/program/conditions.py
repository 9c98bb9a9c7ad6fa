"""Whether an expression depends on the rank or on a clock, and its value on each rank.

Names are looked up in the whole program, whatever the order of the statements. A name is known if
the program binds it once. `interpreter` follows a program statement by statement instead, which
costs thousands of times more.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cached_property

from ddt_notebook.model.operations import COLLECTIVES

from . import names, operators
from .evaluator import Evaluator
from .nodes import (
    FunctionNode,
    called_name,
    calls_in,
    is_task_number,
    last_name,
    parameters,
    variables_in,
)
from .project import FromProject
from .trace import Recorder
from .values import ANYTHING, Scope, Value

_RANK_CALLS = names.RANK_CALLS | {"get_group_rank"}
_RANK = names.RANK_NAMES | names.RANK_CALLS
#: Calls that return a number or a truth value.
_SIMPLE_CALLS = (
    _RANK_CALLS | names.WORLD_CALLS | names.AGREED_CALLS | {"int", "bool", "min", "max", "rank"}
)
#: An expression of these nodes is a number or a truth value, not a model that takes the rank.
_SIMPLE = (
    ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Name, ast.Constant, ast.Tuple, ast.List,
    ast.Set, ast.Subscript, ast.Attribute, ast.expr_context, ast.operator, ast.cmpop, ast.boolop,
    ast.unaryop,
)  # fmt: skip
#: The result of these functions is as long as their argument.
_LAYERS = frozenset({"ModuleList", "Sequential"})
_SAME_LENGTH = frozenset({"enumerate", "zip", "tqdm", "reversed", "list", "tuple"})
_RANGES = frozenset({"range", "trange"})
_RESIZING = frozenset({"append", "extend", "insert", "remove", "pop", "clear"})
#: Clocks by the last part of their name. ``time`` and ``now`` are clocks of certain modules only.
_CLOCKS = frozenset(path.rpartition(".")[2] for path in names.CLOCKS) - {"time", "now"}
_CLOCK_OWNERS = frozenset(path.split(".")[0] for path in names.CLOCKS)
#: Functions that return a variable of the environment.
_ENVIRONMENT_CALLS = frozenset({"getenv", "get"})
#: Functions that return a number computed from their arguments.
_NUMBERS = frozenset({"int", "float", "bool", "min", "max", "abs", "round"})
#: Decorators of methods that are read like attributes.
_PROPERTIES = frozenset({"property", "cached_property"})
_DEPTH = 5  #: how many names are followed to the names that they are computed from


class Conditions:
    """The values of a program's names, and the properties of expressions that follow from them.

    Parameters
    ----------
    documents
        The nodes of each document.
    """

    def __init__(self, documents: Iterable[Iterable[ast.AST]]) -> None:
        self._documents = [list(nodes) for nodes in documents]
        self._values: dict[str, ast.expr | None] = {}  # None: bound more than once
        self._bindings: dict[str, list[ast.expr]] = {}  # all of them
        self._clocks: set[str] = set()
        self._clock_functions: set[str] = set()
        self._agreed: dict[str, int] = {}  # the first line where a collective makes it equal
        self._resized: set[str] = set()  # lists whose length the assignment alone does not show
        self._reads_rank: dict[ast.AST, bool] = {}
        self._on_rank: dict[tuple[int, int], _OnRank] = {}
        self.counters: set[str] = set()  # variables that count the iterations of a loop
        for nodes in self._documents:
            for node in nodes:
                self._read(node)
        self._read_arguments()
        self._follow_clocks()

    def _read(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if any(map(_is_clock, ast.walk(node))):
                    self._clock_functions.add(node.name)
                self._read_returned(node)
                return
            case ast.Call():
                agreed = _agreed(node)
                if agreed is not None:
                    self._agreed[agreed] = min(self._agreed.get(agreed, node.lineno), node.lineno)
        self._resized.update(_resized(node))
        self.counters.update(_counting(node))
        for target, value in _assignments(node):
            self._bind(target, value)
            if self.reads_clock(value):
                self._clocks.add(target)

    def _bind(self, name: str, value: ast.expr) -> None:
        self._values[name] = None if name in self._values else value
        self._bindings.setdefault(name, []).append(value)

    def _read_returned(self, function: FunctionNode) -> None:
        """Bind ``is_main()``, say, for a function that returns a single expression."""
        returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
        if len(returned) == 1 and returned[0] is not None:
            self._bind(
                f".{function.name}" if _is_property(function) else f"{function.name}()", returned[0]
            )

    def _read_arguments(self) -> None:
        """Bind the parameters of functions and classes that are called in one place only."""
        nodes = [node for nodes in self._documents for node in nodes]
        calls: dict[str, list[ast.Call]] = {}
        for node in nodes:
            if isinstance(node, ast.Call):
                calls.setdefault(called_name(node), []).append(node)
        given: dict[str, list[ast.expr | None]] = {}
        constructors = {
            inner: node.name
            for node in nodes
            if isinstance(node, ast.ClassDef)
            for inner in node.body
            if isinstance(inner, ast.FunctionDef) and inner.name == "__init__"
        }
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                called = constructors.get(node, node.name)
                for name, value in _given(node, calls.get(called, [])):
                    given.setdefault(name, []).append(value)
        for name, values in given.items():
            if len(values) > 1 or name in self._values:
                continue
            if values[0] is None:
                self._values[name] = None
            elif _slot(values[0]) != name:
                self._bind(name, values[0])

    def _follow_clocks(self) -> None:
        """Add the functions and properties whose result depends on a clock that others read."""
        functions = [
            (node, _deciding(node))
            for nodes in self._documents
            for node in nodes
            if isinstance(node, FunctionNode)
        ]
        for _ in range(_DEPTH if self._clocks or self._clock_functions else 0):
            before = len(self._clocks) + len(self._clock_functions)
            for function, parts in functions:
                if function.name in self._clock_functions or any(map(self.reads_clock, parts)):
                    self._clock_functions.add(function.name)
                    if _is_property(function):
                        self._clocks.add(f".{function.name}")
            if len(self._clocks) + len(self._clock_functions) == before:
                return

    # -- names -----------------------------------------------------------------------------------

    def value(self, name: str) -> ast.expr | None:
        """The expression bound to a name; None if the name is bound more than once or not at all.

        ``.name`` is that attribute of any object, ``name()`` is what a function returns.
        """
        return self._values.get(name)

    def bindings(self, name: str) -> list[ast.expr]:
        """All expressions that are bound to a name."""
        return self._bindings.get(name, [])

    def knows(self, name: str) -> bool:
        """Whether the program binds a name."""
        return name in self._values

    # -- dependence ------------------------------------------------------------------------------

    def reads_rank(self, node: ast.AST) -> bool:
        """Whether the rank, or a name computed only from the rank, occurs in a node."""
        if node not in self._reads_rank:
            self._reads_rank[node] = any(self._is_rank(inner) for inner in ast.walk(node))
        return self._reads_rank[node]

    def reads_place_in_group(self, node: ast.AST) -> bool:
        """Whether the place of a rank in a group occurs in a node that does not read the rank."""
        return self.reads_rank(node) and any(
            map(self._is_place_in_group, filter(None, map(_slot, ast.walk(node))))
        )

    def _is_place_in_group(self, slot: str, depth: int = 0) -> bool:
        name = slot.strip(".()")
        if slot.endswith("()") and name not in _RANK_CALLS and names.is_place_in_group(name):
            return True
        value = self._values.get(slot)
        if value is None:
            return name in names.GROUP_RANK_NAMES
        inner = filter(None, map(_slot, ast.walk(value)))
        return depth < _DEPTH and any(self._is_place_in_group(one, depth + 1) for one in inner)

    def reads_rank_alone(self, test: ast.expr) -> bool:
        """Whether a condition reads the rank and calls nothing else: it can be evaluated twice."""
        known = _RANK_CALLS | names.WORLD_CALLS | names.AGREED_CALLS | names.FIRST_RANK
        return self.reads_rank(test) and all(called_name(call) in known for call in calls_in(test))

    def _is_rank(self, node: ast.AST, depth: int = 0) -> bool:
        if isinstance(node, ast.Constant):
            return node.value in names.RANK_VARIABLES
        if is_task_number(node):
            return True
        slot = _slot(node)
        if slot is None:
            return False
        name = slot.strip(".()")
        if isinstance(node, ast.Call):
            if name in _RANK_CALLS or names.is_place_in_group(name):
                return True
        elif name in names.RANK_NAMES or (
            name in names.GROUP_RANK_NAMES and slot not in self._values
        ):
            return True
        value = self._values.get(slot)
        if value is None and name in names.FIRST_RANK:
            return True
        # `else: is_main = True` is the same on every rank: if ranks differ, the rank decides
        varying = [
            _deciding_part(one)
            for one in self._bindings.get(slot, ())
            if not isinstance(one, ast.Constant)
        ]
        if depth > _DEPTH or not varying or not all(map(_is_simple, varying)):
            return False
        return all(
            any(self._is_rank(inner, depth + 1) for inner in ast.walk(one)) for one in varying
        )

    def depends_on_rank(self, node: ast.AST) -> bool:
        """Whether the rank, or a name computed from it in any way, occurs in a node."""
        return mentions_rank(node, self._derived)

    @cached_property
    def _derived(self) -> set[str]:
        """The names of the rank, and the names computed from them."""
        derived = set(_RANK)
        for node in (node for nodes in self._documents for node in nodes):
            if isinstance(node, ast.Assign) and mentions_rank(node.value, derived):
                derived.update(name for target in node.targets for name in variables_in(target))
        return derived

    def reads_clock(self, node: ast.AST) -> bool:
        """Whether a node reads a clock, or a name computed from one."""
        return any(
            _is_clock(inner)
            or (isinstance(inner, (ast.Name, ast.Attribute)) and _slot(inner) in self._clocks)
            or (isinstance(inner, ast.Call) and called_name(inner) in self._clock_functions)
            for inner in ast.walk(node)
        )

    def is_agreed(self, expression: ast.expr) -> bool:
        """Whether an expression reads a name that a collective has made equal on every rank."""
        return any(
            isinstance(node, ast.Name)
            and self._agreed.get(node.id, expression.lineno) < expression.lineno
            for node in ast.walk(expression)
        )

    def reads_only(self, expression: ast.AST, known: set[str]) -> bool:
        """Whether an expression depends on ``known`` names and constants alone."""
        for node in ast.walk(expression):
            if isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
                return False
            if isinstance(node, ast.Name) and node.id not in known:
                value = self._values.get(node.id)
                if not node.id.startswith("__") and not isinstance(value, ast.Constant):
                    return False
        return True

    def is_fixed_range(self, iterable: ast.expr, depth: int = 0) -> bool:
        """Whether a loop over ``iterable`` has the same number of iterations on every rank."""
        match iterable:
            case ast.Call(args=arguments) if called_name(iterable) == "range":
                return all(self.reads_only(argument, set()) for argument in arguments)
            case ast.Call(args=[_, *_] as arguments) if called_name(iterable) in _SAME_LENGTH:
                return all(self.is_fixed_range(argument, depth) for argument in arguments)
            case ast.List(elts=[_, *_] as items) | ast.Tuple(elts=[_, *_] as items):
                return not any(isinstance(item, ast.Starred) for item in items)
            case ast.ListComp(generators=parts):
                return all(not p.ifs and self.is_fixed_range(p.iter, depth) for p in parts)
            case ast.Name(id=name) if name not in self._resized and depth < _DEPTH:
                value = self._values.get(name)
                return value is not None and self.is_fixed_range(value, depth + 1)
            case ast.Call(args=[first, *_]) if called_name(iterable) == "enumerate":
                return self.is_fixed_range(first, depth)
            case ast.Attribute():  # the layers of a model
                bound = self._bindings.get(_slot(iterable) or "", [])
                return bool(bound) and all(called_name(one) in _LAYERS for one in bound)
        return False

    def is_configured_range(self, iterable: ast.expr) -> bool:
        """Whether a loop over ``iterable`` counts up to settings, such as ``range(args.epochs)``.

        What the program computes, as a number of batches, is no setting, nor is a parameter. The
        values of settings that come from outside are not known, but the ranks were given the same.
        """
        match iterable:
            case ast.Call(args=[_, *_] as arguments) if called_name(iterable) in _RANGES:
                return all(map(self._is_setting, arguments))
            case ast.Call(args=[first, *_]) if called_name(iterable) in _SAME_LENGTH:
                return self.is_configured_range(first)
        return False

    def counts_data(self, iterable: ast.expr) -> bool:
        """Whether a loop's rounds may be those of a rank's data: not those of a plain ``range``.

        A plain one counts up to numbers that the program does not get from a call, such as one of
        ``len``, nor computes from the rank.
        """
        if called_name(iterable) not in _RANGES or not isinstance(iterable, ast.Call):
            return True
        return any(map(self._is_computed, iterable.args))

    def _is_computed(self, expression: ast.expr, depth: int = 0) -> bool:
        match expression:
            case ast.Constant():
                return False
            case ast.Call(args=arguments):
                name = called_name(expression)
                if name in names.WORLD_CALLS | _ENVIRONMENT_CALLS:
                    return False
                return name not in _NUMBERS or any(self._is_computed(a, depth) for a in arguments)
            case ast.BinOp(left=left, right=right):
                return self._is_computed(left, depth) or self._is_computed(right, depth)
            case ast.UnaryOp(operand=operand):
                return self._is_computed(operand, depth)
            case ast.Subscript(slice=ast.Constant()):
                return False
            case ast.Name() | ast.Attribute() if depth < _DEPTH and not self._is_rank(expression):
                slot = _slot(expression)
                bound = self._bindings.get(slot or "", [])
                if not bound and isinstance(expression, ast.Name):
                    return True
                return any(self._is_computed(o, depth + 1) for o in bound if _slot(o) != slot)
        return True

    def is_configured(self, test: ast.expr, depth: int = 0) -> bool:
        """Whether a condition reads only settings that the program itself gives to all ranks.

        A setting is an argument or an option that has a name, as in ``Namespace(sync=True)`` or
        ``add_argument("--sync")``, and that nothing assigns later.
        """
        match test:
            case ast.Constant():
                return True
            case ast.UnaryOp(operand=operand):
                return self.is_configured(operand, depth)
            case ast.BoolOp(values=parts):
                return all(self.is_configured(part, depth) for part in parts)
            case ast.Compare(left=left, comparators=others):
                return all(self.is_configured(part, depth) for part in (left, *others))
            case ast.Attribute(attr=name):
                return name in self._options and f".{name}" not in self._bindings
            case ast.Name(id=name) if depth < _DEPTH and not self._is_rank(test):
                bound = self._bindings.get(name, [])
                return len(bound) == 1 and self.is_configured(bound[0], depth + 1)
        return False

    def is_alike(self, expression: ast.expr, known: set[str], depth: int = 0) -> bool:
        """Whether an expression has one value on all ranks.

        It does if it is computed from ``known`` names, constants and settings alone, also by way
        of names that the program binds once.
        """
        match expression:
            case ast.Constant():
                return True
            case ast.UnaryOp(operand=operand):
                return self.is_alike(operand, known, depth)
            case ast.BinOp(left=left, right=right):
                return all(self.is_alike(part, known, depth) for part in (left, right))
            case ast.BoolOp(values=parts):
                return all(self.is_alike(part, known, depth) for part in parts)
            case ast.Compare(left=left, comparators=others):
                return all(self.is_alike(part, known, depth) for part in (left, *others))
            case ast.Name(id=name) if name in known:
                return True
            case ast.Name(id=name) if depth < _DEPTH and name not in self._resized:
                bound = self._bindings.get(name, [])
                return len(bound) == 1 and self.is_alike(bound[0], known, depth + 1)
            case ast.Attribute():
                return self.is_configured(expression)
        return False

    @cached_property
    def _options(self) -> set[str]:
        """The names of constants and options that the program gives by name."""
        found: set[str] = set()
        for call in (n for nodes in self._documents for n in nodes if isinstance(n, ast.Call)):
            found |= {
                one.arg for one in call.keywords if one.arg and isinstance(one.value, ast.Constant)
            }
            if called_name(call) == "add_argument":
                given = [a.value for a in call.args if isinstance(a, ast.Constant)]
                found |= {a.lstrip("-").replace("-", "_") for a in given if isinstance(a, str)}
        return found - _RANK

    def _is_setting(self, expression: ast.expr, depth: int = 0) -> bool:
        if isinstance(expression, ast.Constant):
            return True
        if isinstance(expression, ast.BinOp):
            return all(self._is_setting(e, depth) for e in (expression.left, expression.right))
        if isinstance(expression, ast.Subscript):
            return isinstance(expression.slice, ast.Constant)
        slot = _slot(expression)
        if depth > _DEPTH or slot is None or isinstance(expression, ast.Call):
            return False
        bound = self._bindings.get(slot, [])
        if self._is_rank(expression) or not (bound or isinstance(expression, ast.Attribute)):
            return False
        return all(self._is_setting(one, depth + 1) for one in bound if _slot(one) != slot)

    # -- values ----------------------------------------------------------------------------------

    def truth(self, test: ast.expr, rank: int, world_size: int) -> bool | None:
        """Whether a condition holds on a rank, None if the source does not show it."""
        return operators.truth(self._evaluated(test, rank, world_size))

    def number(self, expression: ast.expr, world_size: int) -> int | None:
        """The whole number that an expression is among so many ranks; None if that is not shown."""
        held = self._evaluated(expression, 0, world_size).value
        return held if type(held) is int else None

    def _evaluated(self, expression: ast.expr, rank: int, world_size: int) -> Value:
        if (rank, world_size) not in self._on_rank:
            known = {
                name: value
                for name, value in self._values.items()  # a list that grows later tells nothing
                if not isinstance(value, ast.List) or name not in self._resized
            }
            self._on_rank[rank, world_size] = _OnRank(known, rank, world_size)
        try:
            return self._on_rank[rank, world_size].evaluate(expression)
        except RecursionError:
            return ANYTHING


class _OnRank:
    """Evaluates expressions on one rank, with the value that the program binds to each name.

    Parameters
    ----------
    values
        As in `Conditions.value`.
    rank, world_size
        Number of the rank, and how many there are.
    """

    def __init__(self, values: Mapping[str, ast.expr | None], rank: int, world_size: int) -> None:
        self._values = values
        self._known: dict[str, Value] = {}
        self._evaluator = _EvaluatorOfProgram(self, rank, world_size)
        self._scope = _ScopeOfProgram(self)

    def evaluate(self, node: ast.expr) -> Value:
        """The value of an expression."""
        return self._evaluator.evaluate(node, self._scope)

    def bound(self, name: str) -> Value | None:
        """The value that the program binds to a name; None if it is not bound exactly once."""
        value = self._values.get(name)
        if value is None:
            return None
        if name not in self._known:
            self._known[name] = ANYTHING  # for the evaluation: it may be computed from itself
            self._known[name] = self.evaluate(value)
        return self._known[name]

    def call(self, node: ast.Call, scope: Scope) -> Value:
        """Evaluate a call; the program's functions only if they return a single expression."""
        name, evaluator = called_name(node), self._evaluator
        if name in _ENVIRONMENT_CALLS and node.args:
            return evaluator.environment(self.evaluate(node.args[0]))
        if node.args:
            args = [self.evaluate(argument) for argument in node.args]
            known = operators.call(name, args) if isinstance(node.func, ast.Name) else None
            return known or ANYTHING
        if name in _RANK_CALLS:
            return evaluator.own_rank
        if name in names.WORLD_CALLS:
            return Value(evaluator.world_size)
        if name in names.AGREED_CALLS:
            return Value(True)
        return self.bound(f"{name}()") or self.first_rank(name) or ANYTHING

    def first_rank(self, name: str) -> Value | None:
        """The value of an unbound name such as ``is_main_process``."""
        return self._evaluator.is_first if name in names.FIRST_RANK else None

    def call_function(
        self, function: object, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Return `ANYTHING`: functions are not followed here."""
        return ANYTHING

    def imported(self, name: FromProject) -> Value:
        """Return `ANYTHING`: other files are not read here."""
        return ANYTHING

    def resume(self) -> bool:
        """Return False: ``with`` statements are not followed here."""
        return False


class _EvaluatorOfProgram(Evaluator):
    """Evaluates an attribute of any object by the value bound to an attribute of this name."""

    def __init__(self, program: _OnRank, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size, Recorder(rank), program)
        self._program = program

    def attribute(self, base: Value, node: ast.Attribute) -> Value:
        """An attribute of a value; attributes such as ``.rank`` are known by their names."""
        bound = None if node.attr in names.RANK_NAMES else self._program.bound(f".{node.attr}")
        return bound or super().attribute(base, node)


class _ScopeOfProgram(Scope):
    """Finds every name that the program binds exactly once."""

    def __init__(self, program: _OnRank) -> None:
        super().__init__()
        self._program = program

    def get(self, name: str) -> Value | None:
        """What is bound to a name."""
        return super().get(name) or self._program.bound(name) or self._program.first_rank(name)


def is_world_size(node: ast.AST) -> bool:
    """Whether an expression is the world size: ``world_size``, ``dist.get_world_size()``."""
    match node:
        case ast.Call():
            return called_name(node) in names.WORLD_CALLS
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in names.WORLD_NAMES
    return False


def mentions_rank(node: ast.AST, known: Container[str] = _RANK) -> bool:
    """Whether a variable, an attribute, a function or a key occurs whose name means the rank.

    Parameters
    ----------
    known
        Names that count as the rank.
    """
    return any(_last_name_or_key(inner) in known for inner in ast.walk(node))


def _last_name_or_key(node: ast.AST) -> str:
    """The last name of a node; of ``settings["rank"]`` its key."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
    return last_name(node)


def _slot(node: ast.AST) -> str | None:
    """The key for the value of a name, an attribute of any object, or a function."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return f".{name}"
        case ast.Call():
            return f"{called_name(node)}()"
    return None


def _is_clock(node: ast.AST) -> bool:
    """Whether a node is the call of a clock: ``time.time()``, ``perf_counter()``."""
    if not isinstance(node, ast.Call):
        return False
    name = called_name(node)
    if name in _CLOCKS:
        return True
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    last = getattr(owner, "attr", getattr(owner, "id", None))
    return name in ("time", "now") and (owner is None or last in _CLOCK_OWNERS)


def _is_property(function: FunctionNode) -> bool:
    return any(last_name(by) in _PROPERTIES for by in function.decorator_list)


def _deciding(function: FunctionNode) -> list[ast.expr]:
    """What a function returns, and the conditions under which it returns something."""
    parts: list[ast.expr] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            parts.append(node.value)
        elif isinstance(node, ast.If) and any(isinstance(one, ast.Return) for one in node.body):
            parts.append(node.test)
    return parts


def _agreed(call: ast.Call) -> str | None:
    """The variable that a collective makes equal on every rank; its inputs stay different."""
    operation = COLLECTIVES.get(called_name(call))
    if operation is None or not operation.agrees:
        return None
    given = operation.bind(call.args, {k.arg: k.value for k in call.keywords if k.arg})
    result = given.get(operation.result or "")
    return result.id if isinstance(result, ast.Name) else None


def _deciding_part(value: ast.expr) -> ast.expr:
    """The condition of a value that is a constant otherwise: ``rank == 0``, or the value itself.

    ``1 if rank == 0 else 0`` is a truth value, and so is ``Writer(path) if rank == 0 else None``.
    """
    if isinstance(value, ast.IfExp) and (
        isinstance(value.body, ast.Constant) or isinstance(value.orelse, ast.Constant)
    ):
        return value.test
    return value


def _is_simple(value: ast.expr) -> bool:
    return all(
        called_name(node) in _SIMPLE_CALLS or names.is_place_in_group(called_name(node))
        if isinstance(node, ast.Call)
        else isinstance(node, _SIMPLE)
        for node in ast.walk(value)
    )


def _given(
    function: ast.FunctionDef, calls: list[ast.Call]
) -> Iterator[tuple[str, ast.expr | None]]:
    """Each parameter, and the argument in the only call of a function; None if that is unclear."""
    every = parameters(function)
    positional = [name for name in every if name not in ("self", "cls")]
    one = calls[0] if len(calls) == 1 else None
    plain = one is not None and not any(isinstance(a, ast.Starred) for a in one.args)
    for name in every:
        value = None
        if one is not None and plain:
            value = next((k.value for k in one.keywords if k.arg == name), None)
            position = positional.index(name) if name in positional else len(one.args)
            if value is None and position < len(one.args):
                value = one.args[position]
        yield name, value


def _counting(node: ast.AST) -> Iterator[str]:
    """The variable of a loop over ``range``, or the first of one over ``enumerate``."""
    match node:
        case ast.For(target=ast.Name(id=name), iter=ast.Call() as call):
            if called_name(call) == "range":
                yield name
        case ast.For(target=ast.Tuple(elts=[ast.Name(id=name), *_]), iter=ast.Call() as call):
            if called_name(call) == "enumerate":
                yield name


def _resized(node: ast.AST) -> Iterator[str]:
    """Names that something else than an assignment binds, and lists that change their length."""
    match node:
        case ast.arg(arg=name):
            yield name
        case ast.For(target=target) | ast.comprehension(target=target):
            yield from variables_in(target)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            if method in _RESIZING:
                yield name
        case ast.Subscript(value=ast.Name(id=name), slice=index, ctx=context):
            whole = isinstance(context, ast.Store) and not isinstance(index, ast.Slice)
            if not whole and not isinstance(context, ast.Load):
                yield name


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                slot = _slot(target)
                if slot is not None:
                    yield slot, value
                elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    for name, item in zip(target.elts, value.elts, strict=False):
                        if isinstance(name, ast.Name):
                            yield name.id, item
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield _slot(target) or "", value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            yield name, value
        case ast.AugAssign(target=target, value=value):
            # Twice, so that the name counts as bound more than once.
            yield _slot(target) or "", value
            yield _slot(target) or "", value
