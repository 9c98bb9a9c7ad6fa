"""Grades the notebooks that students handed in; a broken notebook does not stop the others.

A graded cell may need other cells of its notebook. On request these run before it, as one program:
a helper cell can do nothing that the graded cell could not do itself.
"""

from __future__ import annotations

import csv
import json
import symtable
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TextIO

from ddt_notebook.host.errors import SessionError
from ddt_notebook.program.parse import exercise_of, without_cell_magic
from ddt_notebook.views import safe

from .exercise import Exercise, UnknownExercise, exercise
from .exercise_data import grading_seed
from .grade import Grade
from .grader import Grader, Limits

#: The key in the metadata of a cell under which its exercise is: ``{"exercise": NAME}``.
METADATA = "ddt_notebook"
#: The folder of nbgrader with one folder for each student.
_SUBMITTED = "submitted"
#: The longest cell that is searched for names, in characters: no person writes a longer one.
_LONGEST = 50_000


@dataclass(frozen=True, slots=True)
class CodeCell:
    """A code cell of a notebook.

    Attributes
    ----------
    number
        Its number among the code cells of the notebook, from 1.
    source
        Its text, which may begin with a magic.
    """

    number: int
    source: str

    @property
    def body(self) -> str:
        """Its text without the line of the magic."""
        return without_cell_magic(self.source).rstrip("\n")


@dataclass(frozen=True, slots=True)
class Answer:
    """A cell that has to be graded.

    Attributes
    ----------
    exercise
        Name of the exercise.
    cell
        The cell.
    above
        The code cells above it that belong to no exercise.
    """

    exercise: str
    cell: CodeCell
    above: tuple[CodeCell, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result of one exercise of one student.

    Attributes
    ----------
    student, notebook, exercise
        Name of the student, path of the notebook, name of the exercise.
    passed
        Whether every behaviour holds.
    held, behaviours
        The number of behaviours that hold, and of all.
    points
        The level of the exercise if it is passed, else 0. The points in the notebook do not count,
        since a student can change them.
    message
        The first behaviour that fails, or why the cell could not be graded.
    seconds
        How long the grading took.
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
    """The exercise cells of a notebook; of several cells for one exercise the last.

    The metadata of a cell name its exercise, else its first line does.

    Raises
    ------
    ValueError
        If the file is not a notebook.
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
            name = _exercise_in(code.get("metadata", {})) or exercise_of(cell.source)
            if name:
                found[name] = Answer(name, cell, tuple(above))
            else:
                above.append(cell)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path.name} is not a notebook: {problem}") from error
    return list(found.values())


def _exercise_in(metadata: dict[str, Any]) -> str:
    ours = metadata.get(METADATA)
    return str(ours.get("exercise", "")) if isinstance(ours, dict) else ""


def notebooks_in(path: Path) -> list[Path]:
    """The notebooks in and below a folder, without Jupyter's checkpoints; or the file itself.

    Raises
    ------
    SessionError
        If a folder has none.
    """
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not found:
        raise SessionError(f"{path}: there is no notebook in this folder")
    return found


def student_of(path: Path) -> str:
    """The name of the student: the folder below nbgrader's ``submitted``, else the file name."""
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
        Called with a line about what is being graded.
    helper_cells
        Whether to grade a cell again, after the cells above it that define the names it uses, if it
        fails because a name is not defined. Otherwise no other cell of a notebook runs.
    """
    with Grader(limits) as grader:
        for path in paths:
            empty = Row(student=student_of(path), notebook=str(path))
            try:
                answers = handed_in(path)
            except (ValueError, OSError) as error:
                problem = error.strerror if isinstance(error, OSError) else str(error)
                yield replace(empty, message=problem or str(error))
                continue
            if not answers:
                yield replace(empty, message="this notebook has no cell of an exercise")
            for answer in answers:
                say(f"{empty.student}: {answer.exercise}")
                row = replace(empty, exercise=answer.exercise)
                yield _row(grader, answer, row, helper_cells=helper_cells)


def _row(grader: Grader, answer: Answer, row: Row, *, helper_cells: bool) -> Row:
    try:
        one = exercise(answer.exercise)
        grade, note = _grade(grader, one, answer, row.student, helper_cells=helper_cells)
    except UnknownExercise as error:
        return replace(row, message=str(error))
    except Exception as error:  # noqa: BLE001  (a cell may send the grader anything)
        grader.close()  # the cell may have damaged its ranks; the next one gets others
        return replace(row, message=f"it could not be graded: {error}")
    return replace(
        row,
        passed=grade.passed,
        held=grade.held,
        behaviours=len(grade.verdicts),
        points=float(one.level) if grade.passed else 0.0,
        message="; ".join(filter(None, (grade.message, note))),
        seconds=round(grade.seconds, 2),
    )


def _grade(
    grader: Grader, one: Exercise, answer: Answer, student: str, *, helper_cells: bool
) -> tuple[Grade, str]:
    """The grade of a cell, and a note about other cells."""
    seed = grading_seed(one.name, student)
    grade = grader.grade(one, answer.cell.source, seed)
    missing = grade.stop.undefined_name if grade.stop is not None else ""
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
    return grade, _note(whole, grade)


def _note(whole: Program, grade: Grade) -> str:
    *helpers, answer = whole.cells
    numbers = ", ".join(str(cell.number) for cell in helpers)
    note = f"code cell {numbers} ran before the graded cell {answer.number}, as one program"
    if grade.stop is None or not grade.stop.line:
        return note
    return f"{note}; it stopped in code cell {whole.cell_at(grade.stop.line).number}"


def write_csv(rows: Iterable[Row], file: TextIO) -> None:
    """Write a header and the rows; text that a spreadsheet would compute is marked as text."""
    writer = csv.writer(file)
    writer.writerow([field.name for field in fields(Row)])
    for row in rows:
        writer.writerow([_plain(value) for value in asdict(row).values()])


def _plain(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = safe.clean(value)
    # spreadsheets skip blanks before the sign of a formula
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


# -- helper cells ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Program:
    """Several cells as one.

    Attributes
    ----------
    source
        Their text, without the lines of their magics.
    cells
        The cells, in order.
    """

    source: str
    cells: tuple[CodeCell, ...]

    def cell_at(self, line: int) -> CodeCell:
        """The cell with a line of the program, counted from 1."""
        for cell in self.cells[:-1]:
            line -= cell.body.count("\n") + 1
            if line < 1:
                return cell
        return self.cells[-1]


def defining(name: str, cells: Sequence[CodeCell]) -> CodeCell | None:
    """The last of some cells that defines a name, None if none does."""
    return next((cell for cell in reversed(cells) if name in _names(cell).bound), None)


def program(answer: CodeCell, above: Sequence[CodeCell], missing: str) -> Program:
    """A cell after the cells above it that define the names it needs.

    Parameters
    ----------
    answer
        The graded cell.
    above
        The cells above it that may run, in order.
    missing
        The name that was not defined.
    """
    wanted = _names(answer).free | {missing}
    needed = [answer]
    for cell in reversed(above):
        names = _names(cell)
        if names.bound & wanted:
            needed.insert(0, cell)
            wanted = (wanted - names.bound) | names.free
    return Program("\n".join(cell.body for cell in needed), tuple(needed))


@dataclass(frozen=True, slots=True)
class _Names:
    """The names that a cell defines, and those that it uses without defining them."""

    bound: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()


def _names(cell: CodeCell) -> _Names:
    """The names of a cell; none if it is not Python."""
    from IPython.core.inputtransformer2 import TransformerManager

    if cell.body.lstrip().startswith("%%") or len(cell.body) > _LONGEST:
        return _Names()
    try:
        plain = TransformerManager().transform_cell(cell.body)  # type: ignore[no-untyped-call]
        top = symtable.symtable(plain, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Names()
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    used = {s.get_name() for s in top.get_symbols() if s.is_referenced()}
    for table in _nested(top):
        for symbol in table.get_symbols():
            if symbol.is_global():
                (bound if symbol.is_assigned() else used).add(symbol.get_name())
    return _Names(frozenset(bound), frozenset(used - bound))


def _nested(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _nested(child)
