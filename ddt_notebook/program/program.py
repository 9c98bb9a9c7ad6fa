"""A program: its cells or files as syntax trees, and common questions about them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from ddt_notebook.model import Place, Position, Snapshot
from ddt_notebook.model.position import Role

from .conditions import Conditions
from .nodes import FunctionNode, LoopNode, called_name, calls_in, covers, is_call
from .parse import Document
from .tree import Block, Tree, tree_of

Located = ast.stmt | ast.expr | ast.ExceptHandler | ast.pattern  #: nodes that have a line


class Program:
    """Documents that share their names, as the cells of a notebook do.

    The results for a document are cached, so that another program of the same cells is cheap.

    Parameters
    ----------
    documents
        Cells or files. Those that are not Python are left out.
    world_size
        How many ranks run it.
    """

    def __init__(self, documents: Iterable[Document], world_size: int) -> None:
        self.world_size = world_size
        self.documents = {document.name: document for document in documents}
        #: The cells of a session, the latest first, and the lines at which its ranks were.
        self._cells: tuple[str, ...] = ()
        self._ran: frozenset[Position] = frozenset()

    @classmethod
    def of(cls, snapshot: Snapshot) -> Program:
        """The cells of a session up to the one that ran, and the user's files that it ran."""
        cells = (*snapshot.earlier_cells, snapshot.cell)
        files = (Document(file.path, file.source) for file in snapshot.files)
        program = cls((*map(Document.of, cells), *files), snapshot.world_size)
        if snapshot.earlier_cells:
            program._cells = (snapshot.cell.name, *(one.name for one in snapshot.earlier_cells))
            program._ran = frozenset(_lines_run(snapshot))
        return program

    @cached_property
    def trees(self) -> dict[str, Tree]:
        """The trees of the documents, by the documents' names."""
        known = ((name, tree_of(document)) for name, document in self.documents.items())
        return {name: tree for name, tree in known if tree is not None}

    @property
    def nodes(self) -> Iterator[ast.AST]:
        """All nodes of all documents, without what a later cell defines again."""
        return (node for nodes in self._nodes_in_force.values() for node in nodes)

    @cached_property
    def conditions(self) -> Conditions:
        """On what expressions depend, and their values on a rank."""
        return Conditions(self._nodes_in_force.values())

    @cached_property
    def _nodes_in_force(self) -> dict[str, tuple[ast.AST, ...]]:
        """The nodes of each document, without what a later cell defines again under its name.

        A corrected cell replaces the functions and classes of the one before. A former one that a
        rank was seen to run is kept: objects that were made before still use it.
        """
        found = {name: tree.nodes for name, tree in self.trees.items()}
        later: set[str] = set()
        for name in self._cells:
            tree = self.trees.get(name)
            body = [] if tree is None else tree.module.body
            defined = [one for one in body if isinstance(one, (FunctionNode, ast.ClassDef))]
            former = [s for s in defined if s.name in later and not self._has_run(name, s)]
            if former:
                gone = {node for statement in former for node in ast.walk(statement)}
                found[name] = tuple(node for node in found[name] if node not in gone)
            later.update(statement.name for statement in defined)
        return found

    def _has_run(self, name: str, statement: ast.stmt) -> bool:
        return any(one.file == name and covers(statement, one.line) for one in self._ran)

    def truth(self, test: ast.expr, rank: int) -> bool | None:
        """Whether a condition holds on a rank; None if the source does not show it."""
        return self.conditions.truth(test, rank, self.world_size)

    # -- places ----------------------------------------------------------------------------------

    def tree_at(self, place: Position) -> Tree | None:
        """The tree of the document that contains a line."""
        return self.trees.get(place.file)

    def tree_of(self, node: ast.AST) -> Tree:
        """The tree to which a node belongs; raises `KeyError` for a node of another program."""
        for tree in self.trees.values():
            if node in tree.parents or node is tree.module:
                return tree
        raise KeyError(node)

    def place(self, node: Located, role: Role = "source") -> Place:
        """The line of a node, with its code and its role."""
        document = self.tree_of(node).document
        code = document.line(node.lineno).strip()
        return Place(file=document.name, line=node.lineno, code=code, role=role)

    def statement_at(self, place: Position) -> ast.stmt | None:
        """The innermost statement at a line."""
        tree = self.tree_at(place)
        return tree.statement_at(place.line) if tree is not None else None

    def blocks(self, node: ast.AST | None) -> list[Block]:
        """The blocks around a node, innermost first, within its function, class or document."""
        found: list[Block] = []
        for block in self.tree_of(node).blocks(node) if node is not None else ():
            found.append(block)
            if isinstance(block.owner, (FunctionNode, ast.ClassDef)):
                break
        return found

    def loops(self, place: Position) -> list[LoopNode]:
        """The loops around a line, innermost first, within its function."""
        blocks = self.blocks(self.statement_at(place))
        return [block.owner for block in blocks if isinstance(block.owner, LoopNode)]

    def is_last(self, place: Position) -> bool:
        """Whether a line is the last one that its file runs, such as ``sys.exit(main())``."""
        statement = self.statement_at(place)
        blocks = self.blocks(statement)
        return bool(blocks) and all(
            not block.after and isinstance(block.owner, (ast.Module, ast.If)) for block in blocks
        )

    def functions_around(self, place: Position) -> list[str]:
        """The names of the functions in which a line is, innermost first."""
        node: ast.AST | None = self.statement_at(place)
        if node is None:
            return []
        parents, found = self.tree_of(node).parents, []
        while node is not None:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.append(node.name)
            node = parents.get(node)
        return found

    def following(self, statement: ast.stmt) -> tuple[list[list[ast.stmt]], ast.FunctionDef | None]:
        """The statements after one in its scope, the nearest block first, and its function."""
        rest: list[list[ast.stmt]] = []
        for block in self.tree_of(statement).blocks(statement):
            rest.append(block.after)
            if isinstance(block.owner, ast.FunctionDef):
                return rest, block.owner
        return rest, None

    def call_at(self, place: Position, op: str) -> ast.Call | None:
        """The call of ``op`` at a line; None unless there is exactly one."""
        statement = self.statement_at(place)
        found = [
            call
            for call in (calls_in(statement) if statement is not None else ())
            if is_call(call, op) and call.lineno <= place.line <= (call.end_lineno or call.lineno)
        ]
        return found[0] if len(found) == 1 else None

    def is_called_back(self, inner: Position, outer: Position) -> bool:
        """Whether a library called the function of a line: a hook, but no ``forward`` of a module.

        ``outer`` is the program's line that called the library.
        """
        name = next(iter(self.functions_around(inner)), "forward")
        if name == "forward" or name.startswith("__"):
            return False
        return all(called_name(call) != name for call in self.calls_at(outer))

    def calls_at(self, place: Position) -> list[ast.Call]:
        """All calls that include a line."""
        tree = self.tree_at(place)
        every, line = tree.of_kind(ast.Call) if tree is not None else [], place.line
        return [call for call in every if call.lineno <= line <= (call.end_lineno or call.lineno)]

    def conditions_only_on(self, rank: int, document: str) -> list[Place]:
        """The lines of conditions within loops and functions that hold on this rank alone.

        Conditions that do not read the rank, or whose value is not known on every rank, are left
        out.
        """
        tree = self.trees.get(document)
        found: dict[Place, None] = {}
        for node in tree.nodes if tree is not None else ():
            if not isinstance(node, (ast.If, ast.IfExp)) or not self.is_repeated(node):
                continue
            if self.conditions.reads_rank(node.test):
                holds = [self.truth(node.test, one) for one in range(self.world_size)]
                if None not in holds and [i for i, true in enumerate(holds) if true] == [rank]:
                    found[self.place(node)] = None
        return list(found)

    def is_repeated(self, node: ast.AST) -> bool:
        """Whether a node is in a loop or in a function, and so may run several times."""
        blocks = self.tree_of(node).blocks(node)
        return any(isinstance(block.owner, (LoopNode, FunctionNode)) for block in blocks)

    # -- calls and definitions -------------------------------------------------------------------

    def calls(self, *names: str) -> list[ast.Call]:
        """All calls of functions or methods of these names."""
        return [
            call
            for tree in self.trees.values()
            for name in names
            for call in tree.calls.get(name, ())
        ]

    def statements_calling(self, name: str) -> list[ast.stmt]:
        """The innermost statements in which a function is called."""
        found = (self.tree_of(call).statement_of(call) for call in self.calls(name))
        return [statement for statement in found if statement is not None]

    @cached_property
    def functions(self) -> dict[str, list[ast.FunctionDef]]:
        """The functions and methods that the program defines, by name."""
        found: dict[str, list[ast.FunctionDef]] = {}
        for document, tree in self.trees.items():
            known = self._nodes_in_force[document]
            kept = None if len(known) == len(tree.nodes) else set(known)
            for name, functions in tree.functions.items():
                mine = [one for one in functions if kept is None or one in kept]
                if mine:
                    found.setdefault(name, []).extend(mine)
        return found

    def defines(self, name: str) -> bool:
        """Whether the program assigns or defines a name, or an attribute of this name."""
        known = self.conditions.knows
        return name in self.functions or known(name) or known(f".{name}")


def _lines_run(snapshot: Snapshot) -> Iterator[Position]:
    """The lines that ranks were seen to run: those of their calls, and where they stand."""
    for report in snapshot.ranks:
        yield from report.stack
        for call in report.calls:
            if call.where is not None:
                yield call.where
            yield from call.callers
