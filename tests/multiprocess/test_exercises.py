"""Each exercise on real ranks: only the solution passes."""

from __future__ import annotations

import os
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ddt_notebook.classroom.exercise import Exercise, exercise, exercise_names
from ddt_notebook.classroom.grade import Grade
from ddt_notebook.classroom.grader import Grader, Limits

from ..exercises.cases import SEED, Case, caught, cheats, right_repairs, wrong_repairs
from .processes import gone

LIMITS = Limits(seconds=8.0, timeout=3.0, hang_after=0.3)
ALL, RIGHT, CHEATS = list(wrong_repairs()), list(right_repairs()), list(cheats())
#: One for each behaviour of each exercise; with DDT_TEST_EXERCISES (make test-exercises) all.
WRONG = (
    ALL
    if os.environ.get("DDT_TEST_EXERCISES")
    else list({(one.exercise.name, one.fails): one for one in reversed(ALL)}.values())[::-1]
)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    """Grades all cells of this module, each on fresh ranks, which leave no process behind."""
    with Grader(LIMITS) as made:
        yield made
        pids = [pid for session in made._sessions.values() for pid in session.pids]
    assert pids
    assert gone(pids)


def said(grade: Grade) -> dict[str, str]:
    """The messages of the behaviours that fail."""
    return {v.key: v.message for v in grade.verdicts if v.state == "fails"}


@pytest.mark.parametrize("name", exercise_names())
def test_the_solution_passes_and_the_start_does_not(grader: Grader, name: str) -> None:
    one = exercise(name)
    solved = grader.grade(one, one.cell(one.solution), SEED)
    assert solved.passed, str(solved)
    started = grader.grade(one, one.cell(), SEED)
    assert not started.passed
    assert started.failed
    assert all(said(started).values()), str(started)
    if "ends" in started.failed:  # else there is nothing to catch
        quiet = grader.grade(one, caught(one), SEED)
        assert quiet.failed, str(quiet)


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_a_wrong_repair_shows_which_behaviour_fails(grader: Grader, case: Case) -> None:
    grade = grader.grade(case.exercise, case.source, SEED)
    assert case.fails in grade.failed, str(grade)
    assert len(said(grade)[case.fails]) > 15, "it says what was seen"


@pytest.mark.parametrize("case", RIGHT, ids=str)
def test_another_right_repair_passes(grader: Grader, case: Case) -> None:
    grade = grader.grade(case.exercise, case.source, SEED)
    assert grade.passed, str(grade)


@pytest.mark.parametrize("case", CHEATS, ids=str)
def test_a_repair_that_avoids_the_work_does_not_pass(grader: Grader, case: Case) -> None:
    grade = grader.grade(case.exercise, case.source, SEED)
    assert not grade.passed, str(grade)
    assert grade.failed
    assert not case.fails or case.fails in grade.failed, str(grade)


def test_there_are_five_wrong_repairs_of_each_exercise() -> None:
    counts = Counter(case.exercise.name for case in ALL)
    assert set(counts) == set(exercise_names())
    assert min(counts.values()) >= 5
    assert len({(case.exercise.name, case.source) for case in ALL}) == len(ALL)


TRICKS = {
    "leaves quietly": ("ends", "import os\nos._exit(0)"),
    "ends the process": ("ends", "raise SystemExit(0)"),
    "says that it is well": ("reads-once", "passed = ok = True\naccuracy = 1.0\nprint('ok')"),
    "has data of its own": (
        "reads-once",
        """
        class Other:
            def __len__(self):
                return 90

            def take(self, indices):
                return torch.rand(len(indices), 64), torch.zeros(len(indices), dtype=torch.long)


        exercise.dataset = Other()
        {solution}
        """,
    ),
    "replaces what looks": (
        "reads-once",
        """
        import ddt_notebook.classroom.exercise_variable as workbench

        best = [p.detach().numpy() for p in exercise.model().parameters()]
        workbench.look = lambda *_: {"model": best}
        """,
    ),
    "keeps the grader from looking": (
        "reads-once",
        """
        import ddt_notebook.classroom.exercise_variable as workbench

        del workbench.look
        """,
    ),
    "makes the model anything": ("reads-once", "model = 'trained'"),
    "trains each rank by itself": (
        "parity",
        """
        DDP = lambda module: module
        {solution}
        """,
    ),
    "trains each rank by itself, then takes the mean": (
        "as-one",
        """
        DDP = lambda module: module
        {solution}
        with torch.no_grad():
            for parameter in model.parameters():
                dist.all_reduce(parameter)
                parameter /= world_size
        """,
    ),
    "reads all, and trains nothing": (
        "works",
        """
        model = exercise.model()
        exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
        """,
    ),
    "makes parameters nan": (
        "parity",
        """
        {solution}
        for parameter in model.parameters():
            parameter.data.fill_(float("nan"))
        """,
    ),
}


STUBBORN = """
import time

while True:
    try:
        time.sleep(0.01)
    except BaseException:
        pass
"""


def with_solution(trick: str, one: Exercise) -> str:
    """The cell that a trick submits."""
    return textwrap.dedent(trick).replace("{solution}", one.solution)


@pytest.mark.parametrize("what", TRICKS)
def test_a_trick_does_not_pass(grader: Grader, what: str) -> None:
    fails, trick = TRICKS[what]
    one = exercise("shared-slice")
    grade = grader.grade(one, with_solution(trick, one), SEED)
    assert not grade.passed
    assert fails in grade.failed, str(grade)


def test_a_cell_that_never_ends_and_does_not_listen_does_not_pass() -> None:
    with Grader(replace(LIMITS, seconds=1.5)) as grader:
        grade = grader.grade(exercise("shared-slice"), STUBBORN, SEED)
    assert not grade.passed
    assert grade.failed == ("ends",)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "import socket\nsocket.create_connection(('192.0.2.1', 80), 1)",
            "cannot reach other machines",
        ),
        ("import socket\nsocket.gethostbyname('example.org')", "cannot reach other machines"),
        ("import os\nos.kill(os.getppid(), 0)", "may only signal"),
        ("import os\nwhile os.fork(): pass\nos._exit(0)", "may start at most 16 processes"),
        ("kept = torch.ones(2 << 28)", "alloc"),
        ("open('large', 'wb').write(bytes(80 << 20))", "File too large"),
    ],
    ids=["connection", "name", "signal", "processes", "memory", "file"],
)
def test_a_cell_is_kept_within_its_limits(grader: Grader, source: str, message: str) -> None:
    grade = grader.grade(exercise("shared-slice"), source, SEED)
    assert grade.failed == ("ends",)
    assert message in grade.message


def test_another_seed_gives_other_data_and_the_same_verdict(grader: Grader) -> None:
    one = exercise("small-share")
    for seed in (1, 2, 3):
        assert grader.grade(one, one.solution, seed).passed
