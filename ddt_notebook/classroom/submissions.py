"""Regrades the notebooks that students handed in; one that is broken stops none of the others."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TextIO

from ddt_notebook.session.errors import SessionError

from .exercise import named_in
from .grading import Grader, Limits
from .loader import UnknownExercise, exercise
from .task import grading_seed

#: What comes before the exercise's name in a cell's ``grade_id``.
GRADE_ID = "exercise-"
#: The folder of nbgrader that holds one folder for each student.
_SUBMITTED = "submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A cell that is to be graded."""

    exercise: str
    source: str
    points: float


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
        Those of the cell's metadata if it passed, else 0.
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


def handed_in(path: Path) -> list[Handed]:
    """The exercise cells of a notebook; of several for one exercise the last.

    A cell belongs to an exercise by its ``grade_id``, else by its first line.

    Raises
    ------
    ValueError
        If the file is no notebook.
    OSError
        If it cannot be read.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        found = {}
        for cell in cells:
            if cell["cell_type"] != "code":
                continue
            source = cell["source"]
            text = source if isinstance(source, str) else "".join(source)
            told = cell.get("metadata", {}).get("nbgrader", {})
            name = _by_grade_id(told) or named_in(text)
            if name:
                found[name] = Handed(
                    exercise=name, source=text, points=float(told.get("points") or 1.0)
                )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path.name} is no notebook: {type(error).__name__}: {error}") from error
    return list(found.values())


def _by_grade_id(told: dict[str, Any]) -> str:
    grade_id = str(told.get("grade_id", ""))
    return grade_id.removeprefix(GRADE_ID) if grade_id.startswith(GRADE_ID) else ""


def student_of(path: Path) -> str:
    """Who handed it in: the folder below nbgrader's ``submitted``, else the name of the file."""
    parts = path.resolve().parts
    if _SUBMITTED in parts[:-2]:
        return parts[len(parts) - parts[::-1].index(_SUBMITTED)]
    return path.stem


def regrade(
    paths: Iterable[Path], limits: Limits, say: Callable[[str], None] = lambda _: None
) -> Iterator[Row]:
    """Grade each exercise cell on fresh ranks; no other cell of a notebook runs.

    Parameters
    ----------
    paths
        Notebooks.
    limits
        For each cell.
    say
        Is told what is being graded.
    """
    with Grader(limits) as grader:
        for path in paths:
            empty = Row(student=student_of(path), notebook=str(path))
            try:
                cells = handed_in(path)
            except (ValueError, OSError) as error:
                yield replace(empty, message=str(error))
                continue
            if not cells:
                yield replace(empty, message="no cell of an exercise was found")
            for cell in cells:
                say(f"{empty.student}: {cell.exercise}")
                yield _grade(grader, cell, replace(empty, exercise=cell.exercise))


def _grade(grader: Grader, cell: Handed, row: Row) -> Row:
    try:
        one = exercise(cell.exercise)
        grade = grader.grade(one, cell.source, grading_seed(one.name, row.student))
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
        points=cell.points if grade.passed else 0.0,
        message=grade.message,
        seconds=round(grade.seconds, 2),
    )


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
