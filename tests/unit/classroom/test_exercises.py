"""Exercises as data: what makes one complete, its seeds, its cells, its notebooks; no ranks."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from ddt_notebook.classroom import reference
from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.evidence import READ, TRAINED, Evidence, Journal
from ddt_notebook.classroom.exercise import (
    InvalidExercise,
    UnknownExercise,
    exercise,
    exercise_names,
)
from ddt_notebook.classroom.exercise_data import (
    Setting,
    _digits,
    draw_data,
    grading_seed,
    practice_seed,
)
from ddt_notebook.classroom.grade import Grade, Verdict
from ddt_notebook.classroom.grader import _judge
from ddt_notebook.classroom.notebooks import (
    exercises_line,
    file_names,
    notebook_of,
    text_of,
    write,
)
from ddt_notebook.classroom.progress import ExerciseList, ExercisePage, StudentProgress
from ddt_notebook.host.errors import SessionError
from ddt_notebook.model import Cell, RankError, RankReport, Snapshot
from ddt_notebook.program.parse import exercise_of, without_cell_magic
from ddt_notebook.symptoms.lessons import lesson_folders

from ...exercises.cases import SEED


def test_there_are_exercises_of_every_level_and_easy_ones_come_first() -> None:
    levels = [exercise(name).level for name in exercise_names()]
    assert len(levels) >= 15
    assert levels == sorted(levels)
    assert set(levels) == {1, 2, 3}


@pytest.mark.parametrize("trained", [False, True], ids=["empty cell", "no training"])
@pytest.mark.parametrize("name", exercise_names())
def test_a_cell_that_reads_no_sample_does_not_pass(name: str, trained: bool) -> None:
    """The cell leaves the model as it was given, or has none; tests/exercises/cases.py has both."""
    one = exercise(name)
    data = draw_data(one.setting, SEED, one.graded_n)
    ranks = range(one.graded_n)
    seen = Evidence(
        data=data,
        snapshot=Snapshot(
            cell=Cell(number=1, source=""), ranks=(), world_size=len(ranks), outcome="ok"
        ),
        errors={},
        journals={rank: Journal.parse(b"") for rank in ranks},
        variables={rank: {"model": list(data.initial)} if trained else {} for rank in ranks},
    )
    verdicts = {verdict.key: verdict.state for verdict in _judge(one, seen)}
    assert verdicts["ends"] == "ok"
    assert verdicts["reads-once"] == "fails"


def test_the_first_error_is_named_first() -> None:
    one = exercise("two-hosts")
    found = {
        0: RankError(type="RuntimeError", message="Connection closed by peer", at_s=2.0),
        1: RankError(type="RuntimeError", message="freed", at_s=0.5, released=True),
        2: RankError(type="FileNotFoundError", message="no file", at_s=1.0),
    }
    reports = tuple(RankReport(rank=r, state="failed", error=error) for r, error in found.items())
    cell = Cell(number=1, source="")
    seen = Evidence(
        data=draw_data(one.setting, SEED, 3),
        snapshot=Snapshot(cell=cell, ranks=reports, world_size=3, outcome="failed"),
        errors={rank: error.type for rank, error in found.items()},
        journals={},
    )
    message = next(_judge(one, seen)).message
    assert [word for word in message.split() if word.isdecimal()] == ["2", "0", "1"]


@pytest.mark.parametrize("name", exercise_names())
def test_no_word_gives_the_fault_away(name: str) -> None:
    one = exercise(name)
    text = f"{one.name} {one.title} {one.start}".lower()
    assert not any(fault.replace("-", " ") in text or fault in text for fault in one.faults)
    assert not any(word in one.start.lower() for word in ("fault", "bug", "wrong", "fixme"))
    assert one.solution not in json.dumps(notebook_of(one))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Shared Slice"}, "lower-case words"),
        ({"title": "Ends with a stop."}, "without full stop"),
        ({"level": 4}, "level has to be 1, 2 or 3"),
        ({"story": "short"}, "story is too short"),
        ({"faults": ()}, "one to three faults"),
        ({"faults": ("no-such-card",)}, "no fault card 'no-such-card'"),
        ({"solution": ""}, "another cell that solves it"),
        ({"hints": ("a", "a", "b")}, "three hints"),
        ({"behaviours": TRAINING[1:]}, "beginning with ENDS"),
        ({"behaviours": (*TRAINING, TRAINING[0])}, "each once"),
        ({"graded_n": 1}, "2 to 4 ranks"),
        ({"minutes": 0}, "1 to 60 minutes"),
    ],
)
def test_an_incomplete_exercise_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidExercise, match=message):
        dataclasses.replace(exercise("shared-slice"), **change)


def test_the_error_of_an_unknown_exercise_names_similar_ones() -> None:
    with pytest.raises(UnknownExercise, match="did you mean shared-slice"):
        exercise("shared-slices")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("%%ddt\n# exercise: own-clock\nx = 1", "own-clock"),
        ("# exercise: own-clock", "own-clock"),
        ("\n%%ddt_debug -n 3\n\n#exercise: own-clock\n", "own-clock"),
        ("%%ddt\nx = 1\n# exercise: own-clock", ""),
        ("%ddt_check own-clock", ""),
        ("", ""),
    ],
)
def test_the_first_line_names_the_exercise(source: str, name: str) -> None:
    assert exercise_of(source) == name


def test_the_magic_is_not_a_part_of_the_cell() -> None:
    assert without_cell_magic("%%ddt -r 0\nx = 1\n%%time") == "x = 1\n%%time"
    assert without_cell_magic("x = 1\n%%ddt\n") == "x = 1\n%%ddt\n"


def test_data_depend_on_the_student_and_do_not_change() -> None:
    setting = exercise("own-clock").setting
    anna, again = (draw_data(setting, practice_seed("own-clock", "anna"), 3) for _ in range(2))
    ben = draw_data(setting, practice_seed("own-clock", "ben"), 3)
    graded = draw_data(setting, grading_seed("own-clock", "anna"), 3)
    assert (anna.inputs == again.inputs).all()
    assert anna.special == again.special
    for other in (ben, graded):
        assert (anna.inputs != other.inputs).any()
        assert (anna.initial[0] != other.initial[0]).any()


def test_held_out_samples_stay_with_the_grader(tmp_path: Path) -> None:
    task = draw_data(Setting(per_rank=5, extra=1, validation=7), 1, 2)
    assert (len(task.labels), len(task.validation_labels)) == (11, 7)
    task.save(tmp_path / "exercise.npz")
    with np.load(tmp_path / "exercise.npz") as arrays:
        sizes = {len(arrays[name]) for name in arrays.files if arrays[name].ndim}
    assert len(task.held_labels) not in sizes


def test_the_error_of_a_missing_scikit_learn_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    _digits.cache_clear()
    with pytest.raises(SessionError, match=r"pip install 'ddt-notebook\[lab\]'"):
        draw_data(Setting(), 1, 2)


@pytest.mark.parametrize("hidden", [0, 6])
def test_the_reference_steps_along_the_negative_gradient(hidden: int) -> None:
    task = draw_data(Setting(per_rank=30, hidden=hidden), 3, 1)
    weights = [values.astype("float64") for values in task.initial]
    every = [np.arange(len(task.labels))]
    moved = reference.train(weights, task.inputs, task.labels, every, 1.0)
    before = reference.mean_loss(weights, task.inputs, task.labels)
    for at, values in enumerate(weights):
        nudged = [w.copy() for w in weights]
        place = np.unravel_index(np.abs(values - moved[at]).argmax(), values.shape)
        nudged[at][place] += 1e-6
        slope = (reference.mean_loss(nudged, task.inputs, task.labels) - before) / 1e-6
        assert slope == pytest.approx((values - moved[at])[place], rel=1e-3)


def test_a_journal_is_read_up_to_its_last_complete_event() -> None:
    events = np.array([[READ, 4], [TRAINED, 2], [READ, 1]], "<i4").tobytes()
    journal = Journal.parse(events + b"\x01\x00")
    assert list(journal.reads) == [4, 1]
    assert list(journal.trained) == [2]
    assert len(Journal.parse(b"").reads) == 0


def graded(*states: str) -> Grade:
    messages = {"fails": "rank 1 <b>read</b> nothing"}
    verdicts = tuple(
        Verdict(f"k{i}", f"it is `so` {i}", state, messages.get(state, ""))  # type: ignore[arg-type]
        for i, state in enumerate(states)
    )
    return Grade("own-clock", verdicts, world_size=3, seconds=1.0, symptoms=("D.2.1 hang",))


def test_a_grade_passes_only_if_every_behaviour_holds() -> None:
    assert graded("ok", "ok").passed
    assert not graded("ok", "not reached").passed
    assert not graded().passed
    assert graded("ok", "fails").failed == ("k1",)
    assert graded("ok", "fails").message == "it is `so` 1: rank 1 <b>read</b> nothing"


def test_a_grade_says_the_same_as_text_html_and_json() -> None:
    grade = graded("ok", "fails", "not reached")
    text, page, plain = grade.to_text(), grade.to_html(), grade.to_json()
    for behaviour in plain["behaviours"]:
        assert behaviour["title"] in text
        assert behaviour["state"] in text
        assert behaviour["state"] in page
    assert "rank 1 <b>read</b> nothing" in text
    assert "&lt;b&gt;read" in page
    assert "<b>read" not in page
    assert "1 of 3 behaviours hold" in text
    assert "1 of 3 behaviours hold" in page
    assert "D.2.1 hang" in text
    assert list(grade.to_frame()["state"]) == ["ok", "fails", "not reached"]


def test_the_catalogue_shows_the_students_progress() -> None:
    desk = StudentProgress("anna")
    assert desk.of("own-clock").state == "new"
    desk.of("own-clock").begun = True
    assert desk.of("own-clock").state == "begun"
    desk.of("own-clock").hints = 2
    desk.of("own-clock").record(graded("ok", "fails"))
    assert desk.of("own-clock").state == "1 of 2, 2 hints"
    desk.of("own-clock").record(graded("ok", "ok"))
    desk.of("own-clock").record(graded("fails", "ok"))
    assert desk.of("own-clock").state == "passed, 2 hints"
    shown = ExerciseList(desk)
    assert "1 passed" in shown.to_text()
    assert "1 passed" in shown.to_html()
    assert [row["name"] for row in shown.to_json()] == list(exercise_names())


def test_the_sheet_shows_the_story_and_no_hint() -> None:
    one = exercise("last-batch")
    page = ExercisePage(one, "2 ranks were started").to_html()
    text = " ".join(ExercisePage(one, "2 ranks were started").to_text().split())
    assert one.story[:60] in text
    assert "2 ranks were started" in text
    assert all(behaviour.title.split("`")[0] in page for behaviour in one.behaviours)
    assert not any(hint in text or hint in page for hint in one.hints)


def test_the_notebooks_are_those_of_the_exercises(root: Path, tmp_path: Path) -> None:
    folder = root / "notebooks" / "exercises"
    assert {path.name for path in folder.glob("*.ipynb")} == set(file_names().values())
    for name, file in file_names().items():
        committed = (folder / file).read_text(encoding="utf-8")
        assert committed == text_of(exercise(name)), (
            "python -m ddt_notebook.classroom.notebooks notebooks/exercises"
        )
    name, file = next(iter(file_names().items()))
    (tmp_path / f"99-{name}.ipynb").touch()  # its number before another exercise was added
    (tmp_path / "own.ipynb").touch()
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*file_names().values(), "own.ipynb"}


def test_the_description_of_the_variable_lists_every_attribute(root: Path) -> None:
    path = root / "ddt_notebook" / "classroom" / "exercise_variable.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))  # an import would need torch
    nodes = [n for n in tree.body if getattr(n, "name", "") == "ExerciseVariable"]
    inside = list(ast.walk(nodes[0]))
    has = {n.attr for n in inside if isinstance(n, ast.Attribute) and _is_set_on_self(n)}
    has |= {n.name for n in inside if isinstance(n, ast.FunctionDef)}
    for name in exercise_names():
        cells = notebook_of(exercise(name))["cells"]
        text = next(cell["source"] for cell in cells if cell["id"] == "ready-text")
        listed = set(re.findall(r"^\| `(\w+)", text, re.MULTILINE))
        assert listed == {n for n in has if not n.startswith("_")} | {"exercise"}


def _is_set_on_self(node: ast.Attribute) -> bool:
    on_self = isinstance(node.value, ast.Name) and node.value.id == "self"
    return on_self and isinstance(node.ctx, ast.Store)


def test_lessons_link_their_exercises_and_back(root: Path) -> None:
    linked = set()
    for folder in lesson_folders():
        for path in (root / "notebooks" / folder).glob("*.ipynb"):
            text = path.read_text(encoding="utf-8")
            code = path.name.split("-")[0]
            assert exercises_line(code) in text
            for name in set(re.findall(r"\(\.\./exercises/\d+-([\w-]+)\.ipynb\)", text)):
                assert exercise(name).lesson == code
                assert path.name in text_of(exercise(name))
                linked.add(name)
    assert linked == set(exercise_names())


#: Of nbgrader's metadata, version 3: what every cell has to have, and what it may.
NBGRADER_NEEDS = {"schema_version", "grade", "locked", "solution"}
NBGRADER_KNOWS = NBGRADER_NEEDS | {"task", "grade_id", "points", "checksum", "cell_type"}


@pytest.mark.parametrize("name", exercise_names())
def test_nbgrader_takes_the_notebook_as_an_assignment(name: str) -> None:
    cells = notebook_of(exercise(name))["cells"]
    marked = [c["metadata"]["nbgrader"] for c in cells if "nbgrader" in c["metadata"]]
    for cell in marked:
        assert NBGRADER_NEEDS <= set(cell) <= NBGRADER_KNOWS
        assert cell["schema_version"] == 3
        assert re.fullmatch(r"[\w-]+", cell["grade_id"], re.ASCII)
    ids = [cell["grade_id"] for cell in marked]
    assert len(set(ids)) == len(ids)
    assert not any(cell["solution"] for cell in marked), "nbgrader would empty it for the students"
    assert all(cell["locked"] for cell in marked)


@pytest.mark.parametrize("name", exercise_names())
def test_nbgrader_gives_points_for_the_check_and_leaves_the_cell_to_repair(name: str) -> None:
    one = exercise(name)
    cells = notebook_of(one)["cells"]
    (graded,) = (c for c in cells if c["metadata"].get("nbgrader", {}).get("grade"))
    assert "".join(graded["source"]) == f"%ddt_check {name} --strict"
    assert graded["metadata"]["nbgrader"]["points"] == one.level
    (free,) = (c for c in cells if "nbgrader" not in c["metadata"])
    assert "".join(free["source"]) == one.cell()
    assert cells.index(free) < cells.index(graded)
