"""Conditions have one value, whether names are looked up or the program is followed.

`Conditions` answers for one expression on any rank; `Interpreter` follows whole programs.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from ddt_notebook import faults
from ddt_notebook.program import operators
from ddt_notebook.program.evaluator import Evaluator
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program
from ddt_notebook.program.traced_program import TracedProgram
from ddt_notebook.program.tree import Tree
from ddt_notebook.program.values import Scope, Value

_FIXTURES = Path(__file__).parents[2] / "fixtures"
_WORLD_SIZE = 3


def _sources() -> list[str]:
    cells = [cell for card in faults.cards() for cell in (card.broken, card.fixed)]
    for name in ("faults", "healthy", "held_out_faults", "held_out_healthy"):
        cases = tomllib.loads((_FIXTURES / f"{name}.toml").read_text())["case"]
        cells += [case["source"] for case in cases if "source" in case]
    return cells


def _followed(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[ast.expr, int], set[bool]]:
    """The values of the conditions that the interpreter reaches, by node and rank."""
    found: dict[tuple[ast.expr, int], set[bool]] = {}
    read = Evaluator.read

    def noted(self: Evaluator, node: ast.expr, scope: Scope, *, shown: bool = False) -> Value:
        value = read(self, node, scope, shown=shown)
        holds = operators.truth(value)
        if holds is not None:
            found.setdefault((node, self.rank), set()).add(holds)
        return value

    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "read", noted)
        assert TracedProgram(tree, _WORLD_SIZE).passages is not None
    return found


def test_both_agree_on_every_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for source in _sources():
        program = Program([Document("cell[1]", source)], _WORLD_SIZE)
        tree = program.trees.get("cell[1]")
        if tree is None:
            continue
        reads_rank = program.conditions.reads_rank
        tests = [node.test for node in tree.of_kind(ast.If) if reads_rank(node.test)]
        followed = _followed(tree, monkeypatch) if tests else {}
        for test in tests:
            for rank in range(_WORLD_SIZE):
                looked_up, seen = program.truth(test, rank), followed.get((test, rank))
                if looked_up is not None and seen is not None:
                    assert seen == {looked_up}, f"rank {rank}: {ast.unparse(test)}\n{source}"
                    compared += 1
    assert compared > 300
