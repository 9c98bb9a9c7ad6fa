"""Positions in source code: a frame of a stack, and what a rank did at a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_CELL = re.compile(r"cell\[(\d+)\]$")

#: What a rank did at a line; see `Place`.
Role = Literal[
    "stood", "waits", "passed", "raised", "died", "runs", "called", "created", "loops", "steps",
    "reads", "changes", "saves", "loads", "source",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One frame of a stack.

    Attributes
    ----------
    file
        ``"cell[14]"`` for notebook cells, else the path of the file.
    line
        Line number, counted from 1; in a cell, the number that the notebook shows.
    function
        Name of the function, ``"<module>"`` at the top level of a cell.
    code
        The stripped source line, empty if it could not be read.
    """

    file: str
    line: int
    function: str = "<module>"
    code: str = ""

    @property
    def cell(self) -> int | None:
        """Number of the cell, None if the line is in a file."""
        match = _CELL.match(self.file)
        return int(match.group(1)) if match else None

    def is_same_line(self, other: Position) -> bool:
        """Whether both are the same line of the same file."""
        return (self.file, self.line) == (other.file, other.line)

    @property
    def place(self) -> str:
        """``cell[14] line 6``."""
        name = self.file if self.cell is not None else self.file.rsplit("/", 1)[-1]
        return f"{name} line {self.line}"

    @property
    def label(self) -> str:
        """``cell[14] line 6: dist.all_reduce(loss)``."""
        return f"{self.place}: {self.code}" if self.code else self.place


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Position):
    """A line, and what a rank did there.

    Attributes
    ----------
    role
        ``"waits"``: the rank is blocked in a call here. ``"passed"``: it went past a call here.
        ``"raised"``, ``"died"``: it did so here. ``"runs"``: it was still running code here.
        ``"called"``: it made a call here, which returned.
        ``"created"``: it made a model, an optimizer or a loader. ``"loops"``: it read batches.
        ``"steps"``: it took optimizer steps. ``"reads"``, ``"changes"``: it used or changed a
        tensor. ``"saves"``, ``"loads"``: it did so with a checkpoint.
        ``"stood"``: it was last observed here. ``"source"``: the line comes from the source only.
    """

    role: Role = "stood"
