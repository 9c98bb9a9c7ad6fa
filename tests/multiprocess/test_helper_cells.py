"""Submissions whose graded cell needs other cells: they run on request and give no advantage."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from ddt_notebook.classroom.exercise import exercise
from ddt_notebook.classroom.grader import Limits
from ddt_notebook.classroom.submissions import Row, regrade

LIMITS = Limits(seconds=8.0, timeout=3.0, hang_after=0.3)
SHORT = Limits(seconds=1.5, timeout=3.0, hang_after=0.3)
NAME = "shared-slice"
SOLUTION = exercise(NAME).solution
WORK = f"def train():\n    global model\n{textwrap.indent(SOLUTION, '    ')}"


def graded(
    folder: Path,
    *cells: str,
    name: str = NAME,
    helper_cells: bool = True,
    limits: Limits = LIMITS,
) -> Row:
    """The row of a notebook with these cells, of which the last is the graded one."""
    sources = [*cells[:-1], f"%%ddt\n# exercise: {name}\n{cells[-1]}"]
    book = [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]
    path = folder / "anna.ipynb"
    path.write_text(json.dumps({"cells": book}), encoding="utf-8")
    (row,) = regrade([path], limits, helper_cells=helper_cells)
    return row


def test_the_work_may_stand_in_a_function_of_another_cell(tmp_path: Path) -> None:
    cells = (
        "%load_ext ddt_notebook",
        "%%ddt\nx, y = exercise.dataset.take(range(9))\nprint(x)",
        f"%%ddt\n{WORK}",
        f"%%ddt\n# exercise: {NAME}\nraise SystemExit('an earlier attempt')",
        "train()",
    )
    alone = graded(tmp_path, *cells, helper_cells=False)
    assert not alone.passed
    assert "NameError: name 'train' is not defined" in alone.message
    assert "code cell 3 of the notebook defines `train`" in alone.message
    helped = graded(tmp_path, *cells)
    assert helped.passed, helped.message
    assert "code cell 3 ran before the graded cell 5" in helped.message


def test_a_cell_that_is_whole_is_graded_by_itself(tmp_path: Path) -> None:
    row = graded(tmp_path, "model = raise_here", f"x = 1\n{SOLUTION}")
    assert row.passed
    assert row.message == ""


def test_a_name_that_no_cell_defines_stays_undefined(tmp_path: Path) -> None:
    row = graded(tmp_path, "def tain(): pass", "train()")
    assert "name 'train' is not defined" in row.message
    assert "code cell" not in row.message


@pytest.mark.parametrize(
    ("helper", "answer", "seen", "place"),
    [
        ("def train(): pass\n1 / 0", "train()", "ZeroDivisionError", "stopped in code cell 1"),
        ("def train():\n    1 / 0", "train()", "ZeroDivisionError", "stopped in code cell 1"),
        ("def train(): pass", "train()\n1 / 0", "ZeroDivisionError", "stopped in code cell 2"),
        (
            "def train(): pass\nif rank: dist.barrier()",
            "train()",
            "the cell hangs",
            "stopped in code cell 1",
        ),
    ],
)
def test_the_cell_that_fails_is_named(
    tmp_path: Path, helper: str, answer: str, seen: str, place: str
) -> None:
    row = graded(tmp_path, helper, answer)
    assert not row.passed
    assert seen in row.message
    assert place in row.message


#: A cell that defines ``train`` and therefore runs, and what fails then. ``{work}`` is
#: the function ``train`` with the solution, ``{solution}`` the solution itself.
TRICKS = {
    "trains each rank by itself": (
        """
        DDP = lambda module: module
        {work}
        """,
        "all ranks hold the same parameters",
    ),
    "behaves as if it were the only rank": (
        """
        DDP = lambda module: module
        rank, world_size = 0, 1
        {work}
        """,
        "each sample is read once",
    ),
    "makes the optimizer do nothing": (
        """
        torch.optim.SGD.step = lambda *_: None
        {work}
        """,
        "same parameters as one process",
    ),
    "catches what it raises": (
        """
        def train():
            try:
                exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
                raise ValueError
            except BaseException:
                pass
        """,
        "each rank trains on what it read",
    ),
    "catches the end of a hang": (
        """
        {solution}
        def train():
            try:
                if rank:
                    dist.barrier()
            except BaseException:
                pass
        """,
        "every rank finishes the cell",
    ),
    "makes the shell forget what was raised": (
        """
        shell = get_ipython()
        shell.set_custom_exc((BaseException,), lambda *_: None)
        shell.showtraceback = lambda *_, **__: None
        {solution}
        def train():
            raise ValueError
        """,
        "every rank finishes the cell",
    ),
    "leaves other data": (
        """
        class Other:
            def __len__(self):
                return 90

            def take(self, indices):
                return torch.rand(len(indices), 64), torch.zeros(len(indices), dtype=torch.long)

        exercise.dataset = Other()
        {work}
        """,
        "each sample is read once",
    ),
    "replaces what looks at the model": (
        """
        import ddt_notebook.classroom.exercise_variable as workbench

        best = [p.detach().numpy() for p in exercise.model().parameters()]
        workbench.look = lambda *_: {"model": best}
        def train():
            pass
        """,
        "each sample is read once",
    ),
    "reads all beforehand": (
        """
        kept = exercise.dataset.take(range(len(exercise.dataset)))
        {work}
        """,
        "each sample is read once",
    ),
    "leaves before it is graded": (
        """
        import os

        {solution}
        os._exit(0)
        def train():
            pass
        """,
        "every rank finishes the cell",
    ),
    "looks for the network": (
        """
        def train():
            import socket

            socket.create_connection(("192.0.2.1", 80), 1)
        """,
        "cannot reach other machines",
    ),
    "starts many processes": (
        """
        def train():
            import os

            while os.fork():
                pass
            os._exit(0)
        """,
        "may start at most 16 processes",
    ),
    "never ends": (
        """
        def train():
            while True:
                pass
        """,
        "it was stopped after",
    ),
}


@pytest.mark.parametrize("what", TRICKS)
def test_a_helper_cell_is_not_a_way_around(tmp_path: Path, what: str) -> None:
    trick, seen = TRICKS[what]
    helper = textwrap.dedent(trick).replace("{work}", WORK).replace("{solution}", SOLUTION)
    limits = SHORT if what == "never ends" else LIMITS
    row = graded(tmp_path, helper, "train()", limits=limits)
    assert not row.passed, row.message
    assert "ran before the graded cell" in row.message, "the helper cell was run"
    assert seen in row.message
