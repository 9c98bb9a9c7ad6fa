"""Finds the values that a rank computes from its own shard of the data."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ddt_notebook.model import Place

from .collective_functions import collective_functions
from .nodes import (
    LEAVES,
    FunctionNode,
    argument,
    called_name,
    calls_in,
    contains,
    is_call,
    is_metadata,
    key,
    keys_in,
    parameters,
)
from .program import Program
from .result_use import ReturnedValues, Trail, Use, parts

#: Calls that take a part of the data if the rank is among their arguments.
_PARTS = frozenset({"range", "arange", "Subset", "islice", "narrow"})
#: Calls that cut a batch into one part for each rank.
_CUTS = frozenset({"chunk", "split", "tensor_split", "array_split"})
#: Calls that take one part of a tensor.
_SLICES = frozenset({"narrow", "index_select", "scatter", "islice"})
#: Calls that bring items more than once, or join lists.
_REPEATS = frozenset({"cycle", "repeat", "extend", "choice", "choices", "randint"})
#: Calls around an iterable that do not change its items.
_WRAPPERS = frozenset({"enumerate", "tqdm", "iter", "list"})
_DEPTH = 8  #: how many names and functions a value is followed through

Owner = ast.FunctionDef | None  #: the function that contains something
#: The nodes that can take or hold a part of something.
_MAY = (ast.Attribute, ast.Call, ast.Name, ast.Subscript)
_Value = tuple[ast.expr | None, Owner]  #: an expression, and the function that contains it


#: A name together with the function whose variable it is; None for a global name or an attribute.
_Variable = tuple[ast.AST | None, str]


class Scopes:
    """Finds the function to which a name belongs, so that functions may use one name differently.

    Parameters
    ----------
    program
        The program.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._bound: dict[ast.AST, frozenset[str]] = {}

    def variable(self, name: str, at: ast.AST) -> _Variable:
        """The variable that a name, or the first name of ``name[0]``, is at a node."""
        if "." in name:
            return None, name
        root, parents = name.partition("[")[0], self._program.tree_of(at).parents
        function = parents.get(at)
        while function is not None:
            if isinstance(function, FunctionNode) and root in self._bound_in(function):
                return function, name
            function = parents.get(function)
        return None, name

    def _bound_in(self, function: FunctionNode) -> frozenset[str]:
        """The names that a function binds itself, or a function within it."""
        if function not in self._bound:
            shared: set[str] = set()
            stored = set(parameters(function))
            for node in ast.walk(function):
                if isinstance(node, (ast.Global, ast.Nonlocal)):
                    shared.update(node.names)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    stored.add(node.id)
            self._bound[function] = frozenset(stored - shared)
        return self._bound[function]


class Shards:
    """Traces names, attributes, parameters and results of functions back to their origin.

    Parameters
    ----------
    program
        The program.
    carriers
        Names of calls that may carry a value to other ranks: their result is no longer a shard.
    """

    def __init__(self, program: Program, carriers: Container[str]) -> None:
        self._program = program
        self._carriers = carriers
        self._known: dict[tuple[Owner, str], bool] = {}
        self._taken: dict[ast.AST, tuple[bool, tuple[ast.AST, ...]]] = {}

    @cached_property
    def scopes(self) -> Scopes:
        """Which function each name belongs to."""
        return Scopes(self._program)

    @cached_property
    def carried(self) -> frozenset[_Variable]:
        """Variables that are arguments of calls that may carry them to other ranks."""
        return frozenset(
            self.scopes.variable(name, call)
            for tree in self._program.trees.values()
            for called, calls in tree.calls.items()
            if called in self._carriers
            for call in calls
            for given in (*call.args, *(keyword.value for keyword in call.keywords))
            for name in keys_in(given)
        )

    def holds(self, node: ast.AST | None, owner: Owner, depth: int = 0) -> bool:
        """Whether an expression takes a part of something, chosen by the rank."""
        if node is None or depth > _DEPTH:
            return False
        if node not in self._taken:
            self._taken[node] = self._takes(node)
        takes, inside = self._taken[node]
        return takes or any(self._is_part(inner, owner, depth + 1) for inner in inside)

    def _takes(self, node: ast.AST) -> tuple[bool, tuple[ast.AST, ...]]:
        """Whether an expression itself takes a part, and the nodes in it that may hold one."""
        inside = [one for one in _contents(node, self._program.functions) if isinstance(one, _MAY)]
        if any(isinstance(i, ast.Call) and called_name(i) in self._carriers for i in inside):
            return False, ()
        return any(map(self._takes_part, inside)), tuple(inside)

    def _takes_part(self, node: ast.AST) -> bool:
        """Whether this node itself takes a part of the data by the rank."""
        reads_rank = self._program.conditions.reads_rank
        match node:
            case ast.Subscript(slice=ast.Constant()):
                return False  # `os.environ["RANK"]` is the rank itself
            case ast.Subscript(slice=index):
                return reads_rank(index)
            case ast.Call(args=arguments):
                name = called_name(node)
                if name == "DistributedSampler":
                    replicas = argument(node, 1, "num_replicas")
                    return not (isinstance(replicas, ast.Constant) and replicas.value == 1)
                return name in _PARTS and any(map(reads_rank, arguments))
        return False

    def _is_part(self, node: ast.AST, owner: Owner, depth: int) -> bool:
        """Whether a name, an attribute or the result of a function holds a part."""
        match node:
            case ast.Call():
                return self._all_parts(self._returned(called_name(node)), depth)
            case ast.Attribute(attr=name, ctx=ast.Load()):
                value = self._program.conditions.value(f".{name}")
                return value is not None and self.holds(value, self._owners.get(value), depth)
            case ast.Name(id=name, ctx=ast.Load()):
                if self.scopes.variable(name, node) in self.carried:
                    return False
                if owner is not None and name in parameters(owner):
                    return self._is_part_argument(owner, name, depth)
                return self._is_part_name(name, owner, depth)
        return False

    def _is_part_name(self, name: str, owner: Owner, depth: int) -> bool:
        scope = owner if (owner, name) in self._bindings else None
        if (scope, name) not in self._known:
            self._known[scope, name] = False  # for the search: it may be computed from itself
            values = self._bindings.get((scope, name), [])
            self._known[scope, name] = self._all_parts(values, depth)
        return self._known[scope, name]

    def _all_parts(self, values: list[_Value], depth: int) -> bool:
        return bool(values) and all(self.holds(one, scope, depth) for one, scope in values)

    @cached_property
    def _bindings(self) -> dict[tuple[Owner, str], list[_Value]]:
        """The expressions that names are bound to, at the top level and in each function."""
        found: dict[tuple[Owner, str], list[_Value]] = {}
        for tree in self._program.trees.values():
            for owner, node in scoped(tree.module):
                for name, value in self._bound(node, owner):
                    found.setdefault((owner, name), []).append(value)
        return found

    @cached_property
    def _owners(self) -> dict[ast.expr | None, Owner]:
        """The function that contains each bound value."""
        bound = (pair for values in self._bindings.values() for pair in values)
        return {value: owner for value, owner in bound if value is not None}

    def _bound(self, node: ast.stmt, owner: Owner) -> Iterator[tuple[str, _Value]]:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Call() as call):
                known = called_name(call) in self._program.functions
                for index, target in enumerate(targets):
                    returned = self._returned(called_name(call), index)
                    one = returned[0] if len(returned) == 1 else (None, None)
                    yield key(target) or "", one if known else (call, owner)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield key(target) or "", (value, owner)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield key(target) or "", (value, owner)
            case ast.AugAssign(target=target) | ast.For(target=target):
                for name in keys_in(target):
                    yield name, (None, None)

    def _returned(self, name: str, index: int | None = None) -> list[_Value]:
        """The values that a function of the program returns, or one item of each of them."""
        functions = self._program.functions.get(name, [])
        if len(functions) != 1:
            return []
        found: list[_Value] = []
        for node in ast.walk(functions[0]):
            match node:
                case ast.Return(value=ast.Tuple(elts=several)) if index is not None:
                    found.append((several[index] if index < len(several) else None, functions[0]))
                case ast.Return(value=value):
                    found.append((value if index is None else None, functions[0]))
        return found

    def _is_part_argument(self, function: ast.FunctionDef, name: str, depth: int) -> bool:
        """Whether all calls of a function pass a shard for this parameter."""
        if depth > _DEPTH:
            return False
        every = parameters(function)
        position = every.index(name) - (every[0] == "self")
        given: list[_Value] = []
        for call, owner in self._calls_of(self._constructors.get(function, function.name)):
            named = [k.value for k in call.keywords if k.arg == name]
            given += [(value, owner) for value in named or call.args[position : position + 1]]
        return bool(given) and all(self.holds(one, by, depth + 1) for one, by in given)

    def _calls_of(self, name: str) -> list[tuple[ast.Call, Owner]]:
        """The calls of a function, each with the function that contains it."""
        if name not in self._callers:
            self._callers[name] = [
                (call, self._program.following(statement)[1])
                for call in self._program.calls(name)
                if (statement := self._program.tree_of(call).statement_of(call)) is not None
            ]
        return self._callers[name]

    @cached_property
    def _callers(self) -> dict[str, list[tuple[ast.Call, Owner]]]:
        return {}

    @cached_property
    def _constructors(self) -> dict[Owner, str]:
        """The name by which each ``__init__`` is called."""
        return {
            method: node.name
            for node in self._program.nodes
            if isinstance(node, ast.ClassDef)
            for method in node.body
            if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        }


def _contents(node: ast.AST, known: Container[str]) -> Iterator[ast.AST]:
    """The nodes that an expression reads, without those of which it reads only size or type.

    The arguments of a known function are left out, since its result is examined instead.
    """
    if is_metadata(node):
        return
    yield node
    if isinstance(node, ast.Call) and called_name(node) in known:
        return
    for child in ast.iter_child_nodes(node):
        yield from _contents(child, known)


def scoped(node: ast.AST, owner: Owner = None) -> Iterator[tuple[Owner, ast.stmt]]:
    """Every statement with the function around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield owner, child
        yield from scoped(child, child if isinstance(child, ast.FunctionDef) else owner)


def slices_by_rank(program: Program) -> bool:
    """Whether the program takes a part of something, chosen by the rank."""
    depends = program.conditions.depends_on_rank
    for node in program.nodes:
        match node:
            case ast.Call(args=args) if called_name(node) in _SLICES:
                if any(map(depends, args)):
                    return True
            case ast.Subscript(value=value, slice=index) if depends(index):
                if contains(index, ast.Slice) or is_call(value, *_CUTS):
                    return True
    return False


def shares_in_class(program: Program, names: Container[str]) -> Iterator[Place]:
    """The statements in classes of these names that choose the rank's share by its number.

    They cut a part out or compare indices with the rank. A seed or a file's name of the rank is no
    share.
    """
    for node in program.nodes:
        if not isinstance(node, ast.ClassDef) or node.name not in names:
            continue
        for inner in ast.walk(node):
            match inner:
                case ast.Assign(value=chosen) | ast.For(iter=chosen) | ast.If(test=chosen):
                    pass
                case ast.Return(value=ast.expr() as chosen):
                    pass
                case _:
                    continue
            if any(
                _divides(part) and program.conditions.reads_rank(part) for part in ast.walk(chosen)
            ):
                yield program.place(inner)


def passes_once(program: Program, names: Container[str]) -> bool:
    """Whether streams of classes of these names end, and repeat no samples to fill a share up."""
    classes = [
        node for node in program.nodes if isinstance(node, ast.ClassDef) and node.name in names
    ]
    return bool(classes) and not any(
        isinstance(inner, ast.While)
        or is_call(inner, *_REPEATS)
        or (isinstance(inner, (ast.AugAssign, ast.BinOp)) and _joins(inner))
        for one in classes
        for inner in ast.walk(one)
    )


def _joins(node: ast.AugAssign | ast.BinOp) -> bool:
    """Whether a node adds a part of a list to one."""
    added = (node.value,) if isinstance(node, ast.AugAssign) else (node.left, node.right)
    return isinstance(node.op, ast.Add) and any(contains(one, ast.Slice) for one in added)


def _divides(node: ast.AST) -> bool:
    """Whether a node can choose some of many indices or samples."""
    match node:
        case ast.BinOp(op=ast.Mod(), left=left):
            return not isinstance(left, (ast.Constant, ast.JoinedStr))  # a text, formatted
        case ast.Compare(left=left, comparators=right):
            return not any(isinstance(one, ast.Constant) for one in (left, *right))
        case ast.Subscript(value=value):
            return is_call(value, *_CUTS)
        case ast.Call():
            return called_name(node) in {"range", *_SLICES}
    return isinstance(node, ast.Slice) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
    )


def leaves_part_out(program: Program) -> bool:
    """Whether the program joins the data before and after a rank's part, as in cross-validation.

    The ranks then train on overlapping data, each without the part that it evaluates on.
    """
    return any(
        isinstance(node, (ast.Call, ast.BinOp))
        and {"before", "behind"} <= {_side(program, part) for part in ast.walk(node)}
        for node in program.nodes
    )


def _side(program: Program, node: ast.AST) -> str:
    """The side of a part, chosen by the rank, that ``x[:part]`` and ``x[part:]`` take."""
    depends = program.conditions.depends_on_rank
    match node:
        case ast.Subscript(slice=ast.Slice(lower=None, upper=ast.expr() as upper)):
            return "before" if depends(upper) else ""
        case ast.Subscript(slice=ast.Slice(lower=ast.expr() as lower, upper=None)):
            return "behind" if depends(lower) else ""
    return ""


@dataclass(frozen=True, slots=True)
class ShardedValue:
    """A value that a rank computes from its own shard of the data.

    Attributes
    ----------
    statement
        The statement after which the value is complete.
    names
        The names that hold it.
    trains
        Whether the same pass over the data also computes gradients.
    shown
        Whether the statement prints it directly; its name is then the printed text.
    """

    statement: ast.stmt
    names: tuple[str, ...]
    trains: bool
    shown: bool = False


class ShardedValues:
    """Iterates over the values of a program that come from a rank's own shard of the data.

    Parameters
    ----------
    program
        The program.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.carriers = collective_functions(program)
        self._returned = ReturnedValues(program, self.carriers)
        self._shards = Shards(program, self.carriers)

    def __iter__(self) -> Iterator[ShardedValue]:
        todo, seen = list(self._computed()), set()
        for value in todo:
            seen.add(value)
            yield value
            todo += [one for one in self._passed_on(value) if one not in seen]

    def uses(self, value: ShardedValue, name: str, rank: int) -> Iterator[Use]:
        """The uses of a value on a rank, in the function of the value.

        It ends with a use that may change the value or what the rank runs.
        """
        statement = value.statement
        if value.shown:
            if self._is_reached(statement, rank):
                yield Use(statement, self._program.place(statement, "reads"), "print")
            return
        trail = Trail(self._program, rank, self.carriers, leaves=False)
        while (use := trail.follow(statement, name)) is not None:
            yield use
            if not use.keys or use.statement.lineno <= statement.lineno:
                return
            if not self._leaves_alone(use):
                return
            statement, name = use.statement, use.keys[0]

    def _is_reached(self, statement: ast.stmt, rank: int) -> bool:
        """Whether a rank certainly reaches a statement, past conditions on the rank alone."""
        for block in self._program.tree_of(statement).blocks(statement):
            if isinstance(block.owner, ast.If):
                holds = self._program.truth(block.owner.test, rank)
                if holds is None or holds is not (block.field == "body"):
                    return False
            elif not isinstance(block.owner, (ast.Module, ast.For, ast.With)):
                return False
            before = (
                one
                for one in block.statements
                if one.lineno < statement.lineno
                and not isinstance(one, (ast.FunctionDef, ast.ClassDef))
            )
            if any(contains(one, *LEAVES) for one in before):
                return False
        return True

    def _leaves_alone(self, use: Use) -> bool:
        """Whether a print or a condition changes neither the value nor what the rank runs."""
        if use.kind == "print":
            return True
        if use.kind != "decision" or not isinstance(use.statement, ast.If):
            return False
        return not any(
            isinstance(inner, LEAVES)
            or is_call(inner, *self.carriers)
            or (isinstance(getattr(inner, "ctx", None), ast.Store) and key(inner) in use.keys)
            for inner in ast.walk(use.statement)
        )

    def _passed_on(self, value: ShardedValue) -> Iterator[ShardedValue]:
        """The values that the callers of a function keep or print, if it returns the value."""
        for name in value.names:
            for use in self.uses(value, name, 0):
                node = use.statement
                if not isinstance(node, ast.Return) or node.value is None:
                    continue
                function = self._program.following(node)[1]
                if function is None:
                    continue
                trains = value.trains or _trains([function])
                for part in parts(node.value, use.keys):
                    for statement, target in self._returned.receivers(function, part):
                        if not self._is_sent(target, statement):
                            yield ShardedValue(statement, (target,), trains)
                    for statement, text in self._returned.prints(function, part):
                        yield ShardedValue(statement, (text,), trains, shown=True)

    def _computed(self) -> Iterator[ShardedValue]:
        """The values that are computed from a shard and not returned by a function."""
        for tree in self._program.trees.values():
            for owner, node in scoped(tree.module):
                if isinstance(node, ast.For) and self._shards.holds(_core(node.iter), owner):
                    if any(called_name(call) in self.carriers for call in calls_in(node)):
                        continue
                    added: dict[str, bool] = {}
                    for name, computed in _accumulated(node):
                        added[name] = added.get(name, False) or computed
                    names = tuple(name for name, computed in added.items() if computed)
                    if names and not any(self._is_sent(name, node) for name in added):
                        yield ShardedValue(node, names, _trains([node]))
                elif isinstance(node, ast.Assign) and self._computes(node.value, owner):
                    target = key(node.targets[0])
                    if target is not None and not self._is_sent(target, node):
                        yield ShardedValue(node, (target,), self._is_beside_training(node))

    def _computes(self, value: ast.expr, owner: Owner) -> bool:
        """Whether an expression computes from a shard, other than by the program's functions."""
        if any(called_name(call) in self._program.functions for call in calls_in(value)):
            return False
        return self._shards.holds(value, owner)

    def _is_sent(self, name: str, at: ast.AST) -> bool:
        """Whether a value, or the collection of which it is an item, may go to other ranks."""
        variable = self._shards.scopes.variable
        return any(variable(one, at) in self._sent for one in (name, name.partition("[")[0]))

    @cached_property
    def _sent(self) -> set[_Variable]:
        """The arguments of carriers, and the variables from which these are computed."""
        variable = self._shards.scopes.variable
        computed: dict[_Variable, set[_Variable]] = {}
        for node in self._program.nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                read = {variable(one, node) for one in keys_in(node.value)}
                for target in targets:
                    computed.setdefault(variable(key(target) or "", node), set()).update(read)
        found, todo = set(self._shards.carried), list(self._shards.carried)
        while todo:
            new = computed.get(todo.pop(), set()) - found
            found |= new
            todo += new
        return found

    def _is_beside_training(self, node: ast.stmt) -> bool:
        """Whether the innermost loop around a statement computes gradients itself."""
        blocks = self._program.tree_of(node).blocks(node)
        loop = next((b.owner for b in blocks if isinstance(b.owner, (ast.For, ast.While))), None)
        body = loop.body if loop is not None else []
        return _trains(one for one in body if not isinstance(one, (ast.For, ast.While)))


def _core(iterable: ast.expr) -> ast.expr:
    """An iterable without ``enumerate`` or a progress bar around it."""
    while isinstance(iterable, ast.Call) and called_name(iterable) in _WRAPPERS and iterable.args:
        iterable = iterable.args[0]
    return iterable


def _accumulated(loop: ast.For) -> Iterator[tuple[str, bool]]:
    """Names that a loop adds or appends to, and whether it computes more for them than a count."""
    for node in ast.walk(loop):
        match node:
            case ast.AugAssign(target=target, op=ast.Add(), value=added):
                name = key(target)
            case ast.Call(func=ast.Attribute(value=owner, attr="append"), args=[added]):
                name = key(owner)
            case _:
                continue
        if name is not None:
            yield name, any(isinstance(one, (ast.Name, ast.Call)) for one in _contents(added, ()))


def _trains(statements: Iterable[ast.stmt]) -> bool:
    return any(is_call(inner, "backward") for one in statements for inner in ast.walk(one))
