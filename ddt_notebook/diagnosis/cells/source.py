"""The cells of a session as parsed source: what stands around a line, and why a rank passed it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from ddt_notebook.model import Call, Place, Position, RankReport, Role, Snapshot

from . import syntax
from .expressions import Names
from .syntax import Block, Loop
from .ways import Reason, Walk


class Sources:
    """The parsed cells of a session.

    Parameters
    ----------
    snapshot
        Its cell and its earlier cells are read.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._world_size = snapshot.world_size
        self._partition = {part.rank: part for part in snapshot.partition}
        self._cells = {cell.number: cell for cell in (*snapshot.earlier_cells, snapshot.cell)}

    @cached_property
    def _trees(self) -> dict[int, ast.Module]:
        trees = {}
        for number, cell in self._cells.items():
            tree = syntax.parse(cell)
            if tree is not None:
                trees[number] = tree
        return trees

    @cached_property
    def _names(self) -> Names:
        return Names(self._trees.values())

    def why_absent(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None:
        """Why ``absent`` did not come to ``call``, in which ``caller`` stands.

        Parameters
        ----------
        at
            Where ``absent`` was instead; None if it had finished the cell.

        Returns
        -------
        Reason or None
            None if the source does not tell.
        """
        found: list[Reason] = []
        for place in self._frames(call, caller):
            found += Walk(self, place, call, caller, absent, at).reasons()
        return min(found, key=lambda reason: reason.priority, default=None)

    def chain(self, place: Position) -> list[Block]:
        """The compound statements around a line, outermost first, within its function."""
        tree = self._trees.get(place.cell) if place.cell is not None else None
        if tree is None:
            return []
        blocks: list[Block] = []
        for node, field in syntax.enclosing(tree, place.line):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                blocks = [(node, field)]
            else:
                blocks.append((node, field))
        return blocks

    def body(self, place: Position) -> list[ast.stmt]:
        """The statements at the top level of the cell in which a line stands."""
        return self._trees[place.cell].body if place.cell in self._trees else []

    def statement(self, place: Position) -> ast.stmt | None:
        """The innermost statement at a line."""
        blocks = self.chain(place)
        block = syntax.statements(blocks[-1], place.line) if blocks else self.body(place)
        return next((node for node in block if syntax.covers(node, place.line)), None)

    def comes_again(self, place: Position, op: str) -> bool | None:
        """Whether a rank would call ``op`` again after a line: in its loop, or in its block.

        None if the source is not known.
        """
        if place.cell not in self._trees:
            return None
        blocks = self.chain(place)
        if any(isinstance(node, Loop) for node, _ in blocks):
            return True
        block = syntax.statements(blocks[-1], place.line) if blocks else self.body(place)
        here = [index for index, node in enumerate(block) if syntax.covers(node, place.line)]
        following = block[here[0] + 1 :] if here else []
        return any(
            syntax.calls(node, op) for statement in following for node in ast.walk(statement)
        )

    def same_rounds(self, call: Call, caller: RankReport) -> bool:
        """Whether all loops around a call make the same number of rounds on every rank."""
        places = self._frames(call, caller)
        loops = [n for p in places for n, _ in self.chain(p) if isinstance(n, Loop)]
        return bool(loops) and all(
            not isinstance(loop, ast.While)
            and self._names.is_fixed_range(loop.iter)
            and not any(syntax.break_conditions(loop))
            for loop in loops
        )

    def gives_as_many(self, cell: int | None, line: int, ranks: tuple[int, int]) -> bool:
        """Whether the loader of a loop is known to have as many batches on both ranks."""
        place, lengths = f"cell[{cell}] line {line}", []
        for rank in ranks:
            loaders = self._partition[rank].loaders if rank in self._partition else ()
            here = [one for one in loaders if any(epoch.place == place for epoch in one.epochs)]
            lengths.append({one.expected_batches for one in here})
        return len(lengths[0]) == 1 and lengths[0] == lengths[1] and None not in lengths[0]

    def _frames(self, call: Call, caller: RankReport) -> list[Position]:
        """The lines in cells that led to the call, innermost first."""
        stack = caller.stack or (caller.error.frames if caller.error else ())
        frames = [frame for frame in reversed(stack) if frame.cell is not None]
        if call.where is None or call.where.cell is None:
            return frames
        lines = [(frame.file, frame.line) for frame in frames]
        if (call.where.file, call.where.line) in lines:
            return frames[lines.index((call.where.file, call.where.line)) :]
        return self._callers(call.where)

    def _callers(self, place: Position) -> list[Position]:
        """Without a stack: the line, and every line of the cells that calls its function."""
        frames, names = [place], set()
        for frame in frames:
            blocks = self.chain(frame)
            name = getattr(blocks[0][0], "name", None) if blocks else None
            if name is None or name in names:
                continue
            names.add(name)
            frames += self._calls_of(name)
        return frames

    def _calls_of(self, name: str) -> Iterator[Position]:
        for number, tree in self._trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and syntax.calls(node, name):
                    yield Position(file=f"cell[{number}]", line=node.lineno)

    @property
    def names(self) -> Names:
        return self._names

    def tree(self, cell: int | None) -> ast.Module | None:
        """A parsed cell, None if it is not known."""
        return self._trees.get(cell) if cell is not None else None

    @property
    def trees(self) -> dict[int, ast.Module]:
        """All parsed cells by number."""
        return self._trees

    @cached_property
    def functions(self) -> dict[str, list[ast.FunctionDef]]:
        """The functions and methods that cells define, by name."""
        found: dict[str, list[ast.FunctionDef]] = {}
        for tree in self._trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    found.setdefault(node.name, []).append(node)
        return found

    def defines(self, name: str) -> bool:
        """Whether a cell gives a name of its own, or an attribute of it, to something."""
        known = self._names.knows
        return name in self.functions or known(name) or known(f".{name}")

    def statements_calling(self, name: str) -> Iterator[tuple[int, ast.stmt]]:
        """The innermost statements in which a function is called, each with its cell."""
        for place in self._calls_of(name):
            statement = self.statement(place)
            if statement is not None and place.cell is not None:
                yield place.cell, statement

    def truth(self, test: ast.expr, rank: int) -> bool | None:
        """Whether a condition holds on a rank, None if the source does not tell."""
        return self._names.truth(test, rank, self._world_size)

    def place(self, cell: int | None, line: int, role: Role = "stood") -> Place:
        """A line of a cell, and what a rank did there."""
        known = self._cells.get(cell) if cell is not None else None
        code = known.line(line).strip() if known else ""
        return Place(file=f"cell[{cell}]", line=line, code=code, role=role)
