"""``%ddt_exercise``, ``%ddt_hint``, ``%ddt_check``, ``%ddt_predict``: for one student."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import line_cell_magic, line_magic, magics_class
from IPython.display import display

from ..classroom.exercise import Exercise, UnknownExercise, exercise
from ..classroom.exercise_data import draw_data, grading_seed, practice_seed, student_name
from ..classroom.grade import Grade
from ..classroom.grader import Grader, give_variable
from ..classroom.prediction import PredictionView, question
from ..classroom.prediction_panel import PredictionPanel
from ..classroom.progress import ExerciseList, ExercisePage, HintView, SolutionView, StudentProgress
from ..host.session import Session, active
from ..program.parse import exercise_of
from ..symptoms import UnknownSymptom
from ..views import words
from ..views.displayable import Displayable, Message
from . import options as opt
from .base import RunningMagics, one_line
from .config import DDT
from .failure import NotPassed
from .output_stream import live_line

_NAME = opt.Option("name", nargs="?", metavar="NAME", help="name of the exercise")
_LESSON_AND_CHOICE = opt.Option(
    "words",
    nargs="*",
    default=[],
    metavar="LESSON|CHOICE",
    help="the lesson, such as D.2.1 (default: the notebook's own), and a choice: 3, or C; "
    "without a choice: list them",
)
_LESSON = re.compile(r"[A-E](\.\d+){1,2}", re.IGNORECASE)
_CHOICE = re.compile(r"[1-9A-F]", re.IGNORECASE)
_STUDENT = opt.Option(
    "--student", metavar="ID", help="the student for whom data is made (default: user name)"
)
_PREPARE = opt.Option(
    "--prepare",
    action="store_true",
    help="only give the ranks `exercise` again, such as after %%ddt_restart; add no cell",
)
_STRICT = opt.Option(
    "--strict",
    action="store_true",
    help="raise an error unless every behaviour holds, which Run All and nbgrader need",
)


@magics_class
class ClassroomMagics(RunningMagics):
    """Exercises: the cell, the hints, and the grader."""

    def __init__(self, shell: InteractiveShell, config: DDT) -> None:
        super().__init__(shell, config)
        self._progress = StudentProgress(student_name())

    @line_magic
    @opt.options(_NAME, _STUDENT, _PREPARE)
    def ddt_exercise(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """List the exercises, or insert the cell of one below and give the ranks its data."""
        if args.student:
            self._progress.student = args.student
        if not args.name:
            if args.prepare:
                return self._prepared(self._exercise(""))
            return ExerciseList(self._progress)
        one = self._exercise(args.name)
        self._progress.current = one.name
        if args.prepare:
            return self._prepared(one)
        notes = self._prepare(one)
        self._progress.of(one.name).begun = True
        self._shell.set_next_input(one.cell())
        return ExercisePage(one, notes)

    @line_magic
    @opt.options(_NAME)
    def ddt_hint(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Give the next of three hints, and then a solution."""
        one = self._exercise(args.name)
        progress = self._progress.of(one.name)
        total = len(one.hints)
        progress.hints = min(progress.hints + 1, total + 1)
        if progress.hints > total:
            return SolutionView(one)
        return HintView(one, progress.hints)

    @line_magic
    @opt.options(_LESSON_AND_CHOICE)
    def ddt_predict(self, args: argparse.Namespace, cell: str | None = None) -> Displayable:
        """Choose what will happen in a lesson, and read why or why not."""
        code, choice = _lesson_and_choice(args.words)
        code = code or self._lesson_of_notebook()
        if not code:
            raise UsageError("ddt_predict: name the lesson, such as %ddt_predict D.2.1")
        try:
            asked = question(code)
        except UnknownSymptom as error:
            raise UsageError(f"ddt_predict: {error}") from error
        if choice > len(asked.choices):
            raise UsageError(f"ddt_predict: {asked.code} has the choices 1 to {len(asked.choices)}")
        if not choice and self._has_buttons:
            return PredictionPanel(asked, self._shell)
        return PredictionView(asked, choice)

    def _lesson_of_notebook(self) -> str:
        """The lesson by the name of the notebook's file, as far as the front end tells it."""
        known = self._shell.user_ns.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME")
        names = (Path(str(name)).name.split("-")[0] for name in known if name)
        return next((name for name in names if _LESSON.fullmatch(name)), "")

    @line_cell_magic
    @opt.options(_NAME, _STUDENT, _STRICT)
    def ddt_check(self, args: argparse.Namespace, cell: str | None = None) -> Grade | None:
        """Grade the last cell of an exercise (%ddt_check), or this one (%%ddt_check NAME).

        It runs on fresh ranks with data of the grader; your session does not change.
        """
        if args.student:
            self._progress.student = args.student
        if cell is None:
            one, source = self._last_cell(args.name)
        else:
            one, source = self._exercise(args.name or exercise_of(cell)), cell
        self._progress.current = one.name
        seed = grading_seed(one.name, self._progress.student)
        with live_line(self._shell, f"grading {one.name} on {one.graded_n} fresh ranks …"):
            with one_line("ddt_check"), Grader() as grader:
                grade = grader.grade(one, source, seed)
        self._progress.of(one.name).record(grade)
        if not args.strict:
            return grade
        display(grade)
        if not grade.passed:
            raise NotPassed(grade)
        return None  # nbgrader would take a result for a number of points

    def _exercise(self, name: str | None) -> Exercise:
        wanted = name or self._progress.current
        if not wanted:
            raise UsageError("you have not begun an exercise: %ddt_exercise lists them")
        try:
            return exercise(wanted)
        except UnknownExercise as error:
            raise UsageError(str(error)) from error

    def _last_cell(self, name: str | None) -> tuple[Exercise, str]:
        """The last cell that ran and names an exercise in its first line."""
        if name:
            self._exercise(name)
        for source in reversed(self._shell.history_manager.input_hist_raw):
            found = exercise_of(source)
            if found and found == (name or found):
                return self._exercise(found), source
        which = name or self._progress.current or "NAME"
        raise UsageError(
            f"ddt_check: no cell that begins with `# exercise: {which}` has run yet; "
            f"%ddt_exercise {which} puts it below"
        )

    def _prepared(self, one: Exercise) -> Message:
        return Message(self._prepare(one))

    def _prepare(self, one: Exercise) -> str:
        """Give the ranks their data; start a session if there is none."""
        session = active.get()
        started = session is None
        if session is None:
            session = self._start(argparse.Namespace(world_size=one.n))
        elif session.world_size < one.n:
            raise UsageError(
                f"ddt_exercise: {one.name} needs {words.count(one.n, 'rank')}, and the session has "
                f"{session.world_size}: %ddt_stop ends it, then try again"
            )
        else:
            self._wake(session)
        with one_line("ddt_exercise"):
            self._give(session, one)
        what = "were started" if started else "of your session are used"
        return (
            f"{words.count(session.world_size, 'rank')} {what}; `exercise` holds data drawn for "
            f"{self._progress.student}. After a restart of the ranks: %ddt_exercise --prepare"
        )

    def _give(self, session: Session, one: Exercise) -> None:
        seed = practice_seed(one.name, self._progress.student)
        data = draw_data(one.setting, seed, session.world_size)
        give_variable(session, data, session.pool.directory / f"exercise-{one.name}")


def _lesson_and_choice(words: list[str]) -> tuple[str, int]:
    """The lesson's code, empty if it is not named, and the number of the choice, 0 for none."""
    code, choice = "", 0
    for word in words:
        if _LESSON.fullmatch(word) and not code:
            code = word.upper()
        elif _CHOICE.fullmatch(word) and not choice:
            choice = int(word) if word.isdecimal() else ord(word.upper()) - ord("A") + 1
        else:
            raise UsageError(f"ddt_predict: unexpected {word!r}: write %ddt_predict LESSON NUMBER")
    return code, choice
