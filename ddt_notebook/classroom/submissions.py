"""Regrades the notebooks that students handed in; one that is broken stops none of the others."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TextIO

from ddt_notebook.host.errors import SessionError
from ddt_notebook.program.parse import exercise_of

from .exercise import Exercise
from .grade import Grade
from .grading import Grader, Limits
from .helpers import CodeCell, Program, defining, program, undefined_in
from .loader import UnknownExercise, exercise
from .task import grading_seed

#: Where a cell's metadata say which exercise it answers: ``{"exercise": NAME}``.
METADATA = "ddt_notebook"
#: The folder of nbgrader that holds one folder for each student.
_SUBMITTED = "submitted"


@dataclass(frozen=True, slots=True)
class Answer:
    """A cell that is to be graded.

    Attributes
    ----------
    exercise
        Name of the exercise.
    cell
        The cell.
    above
        The code cells above it that answer no exercise.
    """

    exercise: str
    cell: CodeCell
    above: tuple[CodeCell, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One exercise of one student.

    Attributes
    ----------
    student, notebook, exercise
        Whose, from which file, and which one.
    passed
        Whether every behaviour holds.
    held, behaviours
        How many hold, of how many.
    points
        The exercise's level if it passed, else 0: a student can change the points in a notebook.
    message
        What fails first, or why nothing could be graded.
    seconds
        How long it took.
    """

    student: str
    notebook: str
    exercise: str = ""
    passed: bool = False
    held: int = 0
    behaviours: int = 0
    points: float = 0.0
    message: str = ""
    seconds: float = 0.0


def handed_in(path: Path) -> list[Answer]:
    """The exercise cells of a notebook; of several for one exercise the last.

    A cell belongs to an exercise by its metadata, else by its first line.

    Raises
    ------
    ValueError
        If the file is no notebook.
    OSError
        If it cannot be read.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found: dict[str, Answer] = {}
        above: list[CodeCell] = []
        codes = [cell for cell in cells if cell["cell_type"] == "code"]
        for number, code in enumerate(codes, 1):
            cell = CodeCell(number, "".join(code["source"]))
            name = _marked(code.get("metadata", {})) or exercise_of(cell.source)
            if name:
                found[name] = Answer(name, cell, tuple(above))
            else:
                above.append(cell)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path.name} is no notebook: {type(error).__name__}: {error}") from error
    return list(found.values())


def _marked(metadata: dict[str, Any]) -> str:
    told = metadata.get(METADATA)
    return str(told.get("exercise", "")) if isinstance(told, dict) else ""


def notebooks_in(path: Path) -> list[Path]:
    """All notebooks in and below a folder, without the copies that Jupyter keeps; else the path.

    Raises
    ------
    SessionError
        If a folder holds none.
    """
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not found:
        raise SessionError(f"{path}: there is no notebook in this folder")
    return found


def student_of(path: Path) -> str:
    """Who handed it in: the folder below nbgrader's ``submitted``, else the name of the file."""
    parts = path.resolve().parts
    if _SUBMITTED in parts[:-2]:
        return parts[len(parts) - parts[::-1].index(_SUBMITTED)]
    return path.stem


def regrade(
    paths: Iterable[Path],
    limits: Limits,
    say: Callable[[str], None] = lambda _: None,
    *,
    helper_cells: bool = False,
) -> Iterator[Row]:
    """Grade each exercise cell on fresh ranks.

    Parameters
    ----------
    paths
        Notebooks.
    limits
        For each cell.
    say
        Is told what is being graded.
    helper_cells
        Whether a cell that fails for want of a name runs again after the cells above it that
        define what it uses. If not, no other cell of a notebook runs.
    """
    with Grader(limits) as grader:
        for path in paths:
            empty = Row(student=student_of(path), notebook=str(path))
            try:
                answers = handed_in(path)
            except (ValueError, OSError) as error:
                told = error.strerror if isinstance(error, OSError) else str(error)
                yield replace(empty, message=told or str(error))
                continue
            if not answers:
                yield replace(empty, message="no cell of an exercise was found")
            for answer in answers:
                say(f"{empty.student}: {answer.exercise}")
                row = replace(empty, exercise=answer.exercise)
                yield _row(grader, answer, row, helper_cells=helper_cells)


def _row(grader: Grader, answer: Answer, row: Row, *, helper_cells: bool) -> Row:
    try:
        one = exercise(answer.exercise)
        grade, told = _grade(grader, one, answer, row.student, helper_cells=helper_cells)
    except UnknownExercise as error:
        return replace(row, message=str(error))
    except (SessionError, OSError) as error:
        grader.close()  # whatever it has done to its ranks, the next one gets others
        return replace(row, message=f"it could not be graded: {error}")
    return replace(
        row,
        passed=grade.passed,
        held=grade.held,
        behaviours=len(grade.verdicts),
        points=float(one.level) if grade.passed else 0.0,
        message="; ".join(filter(None, (grade.message, told))),
        seconds=round(grade.seconds, 2),
    )


def _grade(
    grader: Grader, one: Exercise, answer: Answer, student: str, *, helper_cells: bool
) -> tuple[Grade, str]:
    """The grade of a cell, and what is to be said of other cells."""
    seed = grading_seed(one.name, student)
    grade = grader.grade(one, answer.cell.source, seed)
    missing = undefined_in(grade.stop.error) if grade.stop else ""
    source = defining(missing, answer.above) if missing else None
    if source is None:
        return grade, ""
    if not helper_cells:
        return grade, (
            f"code cell {source.number} of the notebook defines `{missing}`; no other cell was "
            "run: --helper-cells runs those that are needed"
        )
    whole = program(answer.cell, answer.above, missing)
    grade = grader.grade(one, whole.source, seed)
    return grade, _told_of(whole, grade)


def _told_of(whole: Program, grade: Grade) -> str:
    *helpers, answer = whole.cells
    numbers = ", ".join(str(cell.number) for cell in helpers)
    told = f"run first, as one with the graded cell {answer.number}: code cell {numbers}"
    if grade.stop is None or not grade.stop.line:
        return told
    return f"{told}; it stopped in code cell {whole.cell_at(grade.stop.line).number}"


def write_csv(rows: Iterable[Row], file: TextIO) -> None:
    """Rows with a line of titles; a text that a spreadsheet would compute is marked as text."""
    writer = csv.writer(file)
    titles = [field.name for field in fields(Row)]
    writer.writerow(titles)
    for row in rows:
        writer.writerow([_plain(value) for value in asdict(row).values()])


def _plain(value: object) -> object:
    dangerous = isinstance(value, str) and value.startswith(("=", "+", "-", "@"))
    return f"'{value}" if dangerous else value
