"""Finds where each rank last stored what a condition looks at: a name, an attribute, an item.

Stores themselves are not recorded. The branch events show when a rank came to a line: by the
condition around it, or by the one before it that would have left the function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddt_notebook.model import Place
from ddt_notebook.model.branches import BranchOutcome, RankBranches
from ddt_notebook.program.branch_arms import Decision, decision_at
from ddt_notebook.program.nodes import LEAVES, FunctionNode, LoopNode, end
from ddt_notebook.program.program import Program
from ddt_notebook.program.tree import Tree

from .event_order import EventOrder

#: A value may come from another name, which was stored before: so many times.
_STEPS = 3
#: What is looked at, and each line that stored it last, with the ranks; None for no line.
Stored = tuple[str, tuple[tuple[Place | None, tuple[int, ...]], ...]]


@dataclass(frozen=True, slots=True)
class _Target:
    """What a condition looks at.

    Attributes
    ----------
    text
        As it stands in the condition.
    kind, name
        ``"attribute"``, ``"item"``, ``"global"`` or ``"local"``, and its name or key.
    of_self, of_file
        Whether it is an attribute of ``self``; or a global of the condition's own file.
    """

    text: str
    kind: str
    name: object
    of_self: bool = False
    of_file: bool = False


@dataclass(frozen=True, slots=True)
class _Store:
    """A statement that stores it, and the decision that brings a rank to it.

    ``decision`` is None if every run through the function comes to it. A ``local`` name belongs to
    one run of the function.
    """

    statement: ast.stmt
    function: ast.AST
    decision: tuple[ast.AST, bool] | None
    local: bool = False


class LastStores:
    """Looks stores up in one run.

    Parameters
    ----------
    program
        What the ranks ran.
    branches
        The events of each rank.
    """

    def __init__(self, program: Program, branches: Mapping[int, RankBranches]) -> None:
        self._program, self._branches = program, branches
        self._order = EventOrder(program)
        self._decisions: dict[tuple[object, ...], Decision | None] = {}

    def before(self, decision: Decision, until: Mapping[int, int]) -> Iterator[Stored]:
        """For each name in a condition, the lines that last stored it, if they differ by rank.

        Parameters
        ----------
        decision
            The condition, or the loop; of a loop, what it goes through.
        until
            For each rank, the number of the event with which it came to the condition.
        """
        test = decision.test
        if test is None and isinstance(decision.node, (ast.For, ast.AsyncFor)):
            test = decision.node.iter
        if test is not None:
            yield from self._before(test, decision.function, until, _STEPS)

    def all_of(self, test: ast.expr, function: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
        """Each name in a condition of a function, with each statement that stores it."""
        for target in self._targets(test, function):
            for store in self._stores(target, test, function):
                yield target.text, store.statement

    def _before(
        self, test: ast.expr, function: ast.AST, until: Mapping[int, int], steps: int
    ) -> Iterator[Stored]:
        for target in self._targets(test, function):
            stores = [s for s in self._stores(target, test, function) if not _holds(s, test)]
            if not stores:
                continue
            found = {
                rank: self._last(stores, self._branches[rank], last, test, function)
                for rank, last in until.items()
            }
            statements = {one and one[1].statement for one in found.values()}
            if len(statements) == 1:
                yield from self._from_other_names(found, steps - 1)
                continue
            last: dict[ast.stmt | None, list[int]] = {}
            for rank, one in found.items():
                last.setdefault(one[1].statement if one else None, []).append(rank)
            yield (
                target.text,
                tuple(
                    (self._program.place(one) if one is not None else None, tuple(ranks))
                    for one, ranks in sorted(
                        last.items(), key=lambda item: (item[0] is None, item[1])
                    )
                ),
            )

    def _from_other_names(
        self, found: Mapping[int, tuple[int, _Store] | None], steps: int
    ) -> Iterator[Stored]:
        """The same for the names in a value that all ranks stored at one line."""
        known = {rank: one for rank, one in found.items() if one is not None}
        store = next((one[1] for one in known.values()), None)
        value = getattr(store.statement, "value", None) if store is not None else None
        if steps and store is not None and isinstance(value, ast.expr):
            events = {rank: at for rank, (at, _) in known.items()}
            yield from self._before(value, store.function, events, steps)

    def times(self, statement: ast.stmt, rank: int) -> int | None:
        """How often a rank was seen to come to a statement; None if its ways are not known."""
        branches = self._branches.get(rank)
        if branches is None:
            return None
        store = _store(self._program.tree_of(statement), statement)
        return sum(one.times for one in branches.outcomes if self._came_to(store, one))

    def _last(
        self,
        stores: list[_Store],
        branches: RankBranches,
        until: int,
        test: ast.expr,
        function: ast.AST,
    ) -> tuple[int, _Store] | None:
        """The store that a rank ran last, and how many events precede it."""
        kept = branches.events[: max(0, until - branches.events_dropped)]
        events = [branches.outcomes[index] for index in kept]
        best: tuple[int, int, _Store] | None = None
        for store in stores:
            at = self._ran_at(store, branches, kept, events, test, function)
            if at is not None and (best is None or (at, store.statement.lineno) >= best[:2]):
                best = (at, store.statement.lineno, store)
        return None if best is None else (best[0] + branches.events_dropped, best[2])

    def _ran_at(
        self,
        store: _Store,
        branches: RankBranches,
        kept: Sequence[int],
        events: Sequence[BranchOutcome],
        test: ast.expr,
        function: ast.AST,
    ) -> int | None:
        """How many events precede a store, when it ran last; None if it is not known to have."""
        here = store.function is function
        begin = self._order.begin(function, events, len(events)) if here else 0
        if store.decision is not None:
            shows = {i for i, one in enumerate(branches.outcomes) if self._came_to(store, one)}
            last = next((n for n in reversed(range(len(kept))) if kept[n] in shows), None)
            if last is None or (store.local and last < begin):
                return None
            begin = last + 1
        elif here and store.statement.lineno < test.lineno:
            pass  # each run of the function comes to it before the condition
        elif store.local:
            return None
        else:
            of = (n for n in reversed(range(len(events))) if self._shows_end(events[n], store))
            last = next(of, None)
            if last is None:
                return None
            begin = self._order.begin(store.function, events, last + 1)
        return self._order.last_before(store.statement, store.function, events, begin, len(events))

    def _shows_end(self, event: BranchOutcome, store: _Store) -> bool:
        """Whether an event shows that a run of a function came past a statement of its own."""
        if event.kind == "return":
            return self._order.ends(event, store.function)
        later = event.kind in ("branch", "guard") and event.line > end(store.statement)
        return later and self._order.is_of(event, store.function)

    def _came_to(self, store: _Store, outcome: BranchOutcome) -> bool:
        """Whether an event shows that a rank ran the statement."""
        if outcome.file != self._program.tree_of(store.statement).document.name:
            return False
        if store.decision is None:
            function = store.function
            first, last = getattr(function, "lineno", 0), getattr(function, "end_lineno", 0) or 0
            return outcome.kind == "return" and (
                isinstance(function, FunctionNode)
                and outcome.function == function.name
                and first <= outcome.line <= last
            )
        if outcome.kind not in ("branch", "handled"):
            return False
        node, taken = store.decision
        known = self._decision(outcome)
        return known is not None and known.node is node and known.is_taken(outcome) is taken

    def _decision(self, outcome: BranchOutcome) -> Decision | None:
        if outcome.site not in self._decisions:
            self._decisions[outcome.site] = decision_at(self._program, outcome)
        return self._decisions[outcome.site]

    def _stores(self, target: _Target, test: ast.expr, function: ast.AST) -> Iterator[_Store]:
        here = self._program.tree_of(test)
        if target.kind == "local":
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Name)
                    and node.id == target.name
                    and _stored(node)
                    and _scope_of(here, node) is function
                    and (statement := here.statement_of(node)) is not None
                    and not isinstance(statement, (LoopNode, ast.ClassDef))
                ):
                    yield _store(here, statement, local=True)
            return
        of_class = _class_of(here, test)
        for tree in self._program.trees.values():
            if target.kind == "global" and target.of_file and tree is not here:
                continue
            for node in tree.nodes:
                if not _is_stored(node, target, tree):
                    continue
                own = target.of_self and _base(node) == "self"
                if own and not _related(_class_of(tree, node), of_class):
                    continue
                statement = tree.statement_of(node)
                if statement is not None:
                    yield _store(tree, statement)

    def _targets(self, test: ast.expr, function: ast.AST) -> Iterator[_Target]:
        """The names, attributes and items in a condition, without functions that it calls."""
        found = dict.fromkeys(self._all_targets(test, function))
        yield from found

    def _all_targets(self, test: ast.expr, function: ast.AST) -> Iterator[_Target]:
        tree = self._program.tree_of(test)
        called = {node.func for node in ast.walk(test) if isinstance(node, ast.Call)}
        own = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _stored(n)}
        for node in ast.walk(test):
            if node in called:
                continue
            if isinstance(node, ast.Attribute):
                if _base(node) in _imported(tree):
                    yield _Target(ast.unparse(node), "global", node.attr)
                else:
                    of_self = _base(node) == "self"
                    yield _Target(ast.unparse(node), "attribute", node.attr, of_self=of_self)
            elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                yield _Target(ast.unparse(node), "item", node.slice.value)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                in_function = isinstance(function, FunctionNode)
                if in_function and (node.id not in own or _is_global(node, tree)):
                    yield _Target(node.id, "global", node.id, of_file=True)
                elif node.id in own:
                    yield _Target(node.id, "local", node.id)


def _is_stored(node: ast.AST, target: _Target, tree: Tree) -> bool:
    if not _stored(node):
        return False
    if isinstance(node, ast.Attribute):
        return target.kind == "attribute" and node.attr == target.name
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return target.kind == "item" and node.slice.value == target.name
    named = isinstance(node, ast.Name) and target.kind == "global" and node.id == target.name
    return named and _is_global(node, tree)


def _stored(node: ast.AST) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)


def _is_global(node: ast.AST, tree: Tree) -> bool:
    """Whether a name is one of the module: stored at its top level, or declared so."""
    at: ast.AST | None = tree.parents.get(node)
    while at is not None and not isinstance(at, (FunctionNode, ast.ClassDef, ast.Lambda)):
        at = tree.parents.get(at)
    if at is None:
        return True
    name = getattr(node, "id", "")
    inner = ast.walk(at)
    return any(name in one.names for one in inner if isinstance(one, ast.Global))


def _imported(tree: Tree) -> set[str]:
    """The names under which modules are imported."""
    found: list[ast.Import | ast.ImportFrom] = [
        *tree.of_kind(ast.Import),
        *tree.of_kind(ast.ImportFrom),
    ]
    return {alias.asname or alias.name for one in found for alias in one.names}


def _base(node: ast.AST) -> str:
    base = getattr(node, "value", None)
    return base.id if isinstance(base, ast.Name) else ""


def _related(one: ast.ClassDef | None, other: ast.ClassDef | None) -> bool:
    """Whether two classes are the same, or one derives from the other."""
    if one is None or other is None:
        return False
    names = [
        {cls.name, *(ast.unparse(base).rpartition(".")[2] for base in cls.bases)}
        for cls in (one, other)
    ]
    return one.name in names[1] or other.name in names[0]


def _class_of(tree: Tree, node: ast.AST) -> ast.ClassDef | None:
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.ClassDef):
        at = tree.parents.get(at)
    return at


def _holds(store: _Store, test: ast.expr) -> bool:
    """Whether a name is stored from itself: it was another store that gave it its value."""
    return getattr(store.statement, "value", None) is test


def _scope_of(tree: Tree, node: ast.AST) -> ast.AST:
    """The function, class or module to which a variable that is stored at a node belongs."""
    at: ast.AST | None = tree.parents.get(node)
    while at is not None and not isinstance(at, (FunctionNode, ast.ClassDef, ast.Lambda)):
        at = tree.parents.get(at)
    return at if at is not None else tree.module


def _store(tree: Tree, statement: ast.stmt, *, local: bool = False) -> _Store:
    decision: tuple[ast.AST, bool] | None = None
    for block in tree.blocks(statement):
        decision = decision or _leaving(block.before)
        if isinstance(block.owner, (FunctionNode, ast.ClassDef)):
            return _Store(statement, block.owner, decision, local)
        decision = decision or _around(block.owner, block.field)
    return _Store(statement, tree.module, decision, local)


def _around(owner: ast.AST, field: str) -> tuple[ast.AST, bool] | None:
    if isinstance(owner, (ast.If, ast.While, ast.For, ast.AsyncFor)):
        return owner, field == "body"
    return (owner, True) if isinstance(owner, (ast.ExceptHandler, ast.match_case)) else None


def _leaving(before: list[ast.stmt]) -> tuple[ast.AST, bool] | None:
    """The last condition before a statement that would have led past it."""
    for one in reversed(before):
        if isinstance(one, ast.If):
            if one.body and isinstance(one.body[-1], LEAVES):
                return one, False
            if one.orelse and isinstance(one.orelse[-1], LEAVES):
                return one, True
    return None
