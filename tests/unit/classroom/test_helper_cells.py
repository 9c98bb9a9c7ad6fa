"""Which cells above a graded one it needs; no ranks."""

from __future__ import annotations

import pytest

from ddt_notebook.classroom.submissions import CodeCell, defining, program

ANSWER = CodeCell(9, "%%ddt\n# exercise: own-clock\ntotal = 1\ntrain(total)")


def cells(*sources: str) -> list[CodeCell]:
    return [CodeCell(number, source) for number, source in enumerate(sources, 1)]


def numbers(*sources: str, missing: str = "train") -> list[int]:
    return [cell.number for cell in program(ANSWER, cells(*sources), missing).cells]


def test_only_cells_that_define_a_needed_name_run() -> None:
    assert numbers("look = 1", "%%ddt\ndef train(x): pass", "model = total = 3") == [2, 9]


def test_cells_that_a_helper_needs_run_before_it() -> None:
    above = ("RATE = 0.1", "def step():\n    return RATE", "def train(x):\n    return step()")
    assert numbers(*above) == [1, 2, 3, 9]
    assert numbers(*reversed(above)) == [1, 9], "what is defined below was not there"


def test_a_name_that_a_helper_makes_itself_needs_nothing() -> None:
    assert numbers("x = slow()", "def train(x):\n    y = [z for z in x]\n    return y") == [2, 9]


@pytest.mark.parametrize(
    "source",
    [
        "from mine import train",
        "import train",
        "class train: pass",
        "train = lambda x: x",
        "with open('f') as train: pass",
        "def begin():\n    global train\n    train = 3",
        "%matplotlib inline\ndef train(x): pass",
        "async def train(x): pass\nawait train(1)",
    ],
)
def test_a_name_may_be_defined_in_any_way(source: str) -> None:
    assert numbers(source) == [1, 9]
    assert defining("train", cells("y = 1", source)) == CodeCell(2, source)


@pytest.mark.parametrize(
    "source",
    [
        "train",
        "def f():\n    train = 1",
        "%%bash\ntrain=1",
        "def train(:",
        "x = (",
        "\x00",
        "(" * 999,
    ],
)
def test_a_cell_that_defines_nothing_is_left_out(source: str) -> None:
    assert numbers(source) == [9]
    assert defining("train", cells(source)) is None


def test_a_cell_that_no_person_wrote_is_not_read() -> None:
    assert numbers("train = 1" + " + 1" * 50_000) == [9]


def test_the_line_shows_the_cell() -> None:
    whole = program(
        ANSWER, cells("%%ddt -n 2\nA = 1\n\n\n", "def train(x):\n    return A"), "train"
    )
    assert whole.source.splitlines() == [
        "A = 1",
        "def train(x):",
        "    return A",
        "# exercise: own-clock",
        "total = 1",
        "train(total)",
    ]
    assert [whole.cell_at(line).number for line in range(1, 8)] == [1, 2, 2, 9, 9, 9, 9]
