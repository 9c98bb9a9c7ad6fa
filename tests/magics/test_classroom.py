"""``%ddt_exercise``, ``%ddt_hint`` and ``%ddt_check`` in a real shell, with real ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.error import UsageError

from ddt_notebook.classroom.exercise import exercise
from ddt_notebook.classroom.prediction import question
from ddt_notebook.host.session import active
from ddt_notebook.magics.failure import CellFailed, NotPassed

from .conftest import Notebook

NAME = "shared-slice"


def laid(notebook: Notebook) -> str:
    """The cell that was inserted below."""
    return str(notebook.shell.payload_manager.read_payload()[-1]["text"])


@pytest.fixture
def lays_cells(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """A shell whose next input goes to a payload, as in a notebook."""
    manager = notebook.shell.payload_manager
    monkeypatch.setattr(
        notebook.shell,
        "set_next_input",
        lambda text: manager.write_payload({"source": "set_next_input", "text": text}),
    )
    return notebook


def test_an_exercise_from_the_cell_to_the_grade(lays_cells: Notebook) -> None:
    notebook, one = lays_cells, exercise(NAME)
    sheet = notebook.run(f"%ddt_exercise {NAME} --student anna")
    assert "2 ranks were started" in str(sheet)
    assert laid(notebook) == one.cell()
    session = active.get()
    assert session is not None
    assert session.world_size == one.n

    notebook.run(one.cell())
    before = session.last_run
    grade = notebook.run("%ddt_check")
    assert not grade.passed
    assert "reads-once" in grade.failed
    assert grade.world_size == one.graded_n
    assert active.get() is session
    assert session.last_run is before

    notebook.run(one.cell(one.solution))
    notebook.run("x = 1")
    assert notebook.run("%ddt_check").passed
    assert notebook.run(f"%%ddt_check {NAME}\nmodel = exercise.model()").failed
    assert "passed" in str(notebook.run("%ddt_exercise"))

    notebook.run("%ddt_restart")
    with pytest.raises(CellFailed) as failed:
        notebook.run(one.cell(one.solution))
    assert f"`%ddt_exercise {NAME} --prepare`" in str(failed.value.report)
    assert "of your session are used" in str(notebook.run("%ddt_exercise --prepare"))
    notebook.run(one.cell(one.solution))
    assert session.last_run is not None
    assert session.last_run.ok


def test_a_strict_check_fails_as_run_all_and_nbgrader_want_it(notebook: Notebook) -> None:
    one = exercise(NAME)
    notebook.run(f"# exercise: {NAME}\nmodel = 1")
    with pytest.raises(NotPassed) as raised:
        notebook.run(f"%ddt_check {NAME} --strict")
    assert "\n".join(raised.value._render_traceback_()) == raised.value.grade.headline
    assert "not yet: " in raised.value.grade.headline
    assert notebook.run(f"%%ddt_check {NAME} --strict\n{one.solution}") is None


def test_the_practice_data_depend_on_the_student(lays_cells: Notebook) -> None:
    seen = []
    for student in ("anna", "ben", "anna"):
        lays_cells.run(f"%ddt_exercise {NAME} --student {student}")
        lays_cells.run("%%ddt\ntotal = float(exercise.dataset.take(range(5))[0][:, 20:40].sum())")
        session = active.get()
        assert session is not None
        seen.append(session.pull("total"))
    assert seen[0] == seen[2] != seen[1]


def test_hints_come_one_by_one_and_then_a_solution(notebook: Notebook) -> None:
    one = exercise(NAME)
    shown = [str(notebook.run(f"%ddt_hint {NAME}")) for _ in range(5)]
    for number, (hint, text) in enumerate(zip(one.hints, shown, strict=False), 1):
        assert f"hint {number} of 3" in text
        assert hint in " ".join(text.split())
        assert "one solution" not in text
    changed = set(one.solution.splitlines()) - set(one.start.splitlines())
    assert changed
    assert all(f"+ {line}" in shown[3] for line in changed)
    assert shown[3] == shown[4]
    assert "begun, 3 hints, solution" in str(notebook.run("%ddt_exercise"))


def test_a_prediction_is_answered(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert "4. All four ranks wait for ever." in str(notebook.run("%ddt_predict D.2.1"))
    wrong, right = notebook.run("%ddt_predict d.2.1 A"), notebook.run("%ddt_predict D.2.1 3")
    assert (wrong.right, right.right) == (False, True)
    for choice, view in ((1, wrong), (3, right)):
        assert question("D.2.1").reasons[choice] in " ".join(str(view).split())
    assert notebook.run("%ddt_predict E.1 3").right
    monkeypatch.setenv("JPY_SESSION_NAME", "/lessons/d-training/D.2.1-hang.ipynb")
    assert notebook.run("%ddt_predict C").right


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%ddt_exercise shared-slices", "did you mean shared-slice"),
        ("%ddt_hint own_clock", "did you mean own-clock"),
        ("%ddt_check Own-Clocks", "did you mean own-clock"),
        ("%%ddt_check own-clok\nx = 1", "did you mean own-clock"),
        ("%ddt_exercise zebra", "there is no exercise 'zebra': %ddt_exercise lists them"),
        ("%ddt_predict 3", "name the lesson, such as"),
        ("%ddt_predict D.2.1 5", "D.2.1 has the choices 1 to 4"),
        ("%ddt_predict D.2.1 rank", "unexpected 'rank'"),
        ("%ddt_predict D.9.1 1", "D.9.1"),
        ("%ddt_exercise --prepare", "you have not begun an exercise"),
        ("%ddt_hint", "you have not begun an exercise"),
        ("%ddt_check", "no cell that begins with `# exercise: NAME`"),
        ("%ddt_check own-clock", "no cell that begins with `# exercise: own-clock`"),
        ("%%ddt_check\nx = 1", "you have not begun an exercise"),
    ],
)
def test_a_mistake_is_reported_in_one_line(
    notebook: Notebook, line: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    with pytest.raises(UsageError) as raised:
        notebook.run(line)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_too_small_a_session_is_refused(notebook: Notebook, tmp_path: Path) -> None:
    notebook.run("%ddt_start -n 2")
    with pytest.raises(UsageError, match="even-ranks needs 3 ranks, and the session has 2"):
        notebook.run("%ddt_exercise even-ranks")
