"""Writes a notebook for each exercise: ``python -m ddt_notebook.classroom.notebooks FOLDER``.

Lessons beside that folder get links to their exercises.

The cells have nbgrader's metadata, so that a notebook can be an assignment as it is. The cell that
checks has the points, and fails unless every behaviour holds. The cell to repair is not one of
nbgrader's solution cells, since nbgrader empties those before it hands out the notebook. nbval
skips the cells that need ranks; other tests run the exercises.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat

from ddt_notebook.symptoms import lessons

from .exercise import Exercise, exercise, exercise_names
from .submissions import METADATA

_SKIPPED = "nbval-skip"
_REFERENCES, _EXERCISES = "## References", "- Exercises: "
_KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def notebook_of(one: Exercise) -> nbformat.NotebookNode:
    """The notebook of an exercise, without its solution."""
    must = "\n".join(f"- {behaviour.title}" for behaviour in one.behaviours)
    story = (
        f"# Exercise {one.name}: {one.title}\n\n*{one.level_name}, about {one.minutes} minutes*\n\n"
        f"{one.story}\n\n**What must hold**, on {one.graded_n} ranks and with data that you have "
        f"not seen:\n\n{must}"
    )
    ready = (
        f"The next cell starts {one.n} ranks, if there are none, and gives them the variable "
        f"`exercise`:\n\n| `exercise.` | is |\n|---|---|\n{_attributes(one)}\n\n"
        "Run it again after a restart of the ranks."
    )
    task = (
        "This is the cell to repair. Run it as often as you like; `%ddt_debug`, `%ddt_show` and "
        "`%ddt_explain` are there to help. Its first comment names the exercise: keep it. The cell "
        "is graded alone, so it must contain all that it needs."
    )
    check = (
        "`%ddt_hint` gives one of three hints each time, and then a solution. "
        "`%ddt_check` runs your last version on fresh ranks and shows which behaviours hold; it "
        "fails until all of them hold.\n\n<details>\n<summary>The lesson to read on (its title "
        f"shows what kind of fault it is)</summary>\n\n{_lesson_link(one)}\n\n</details>"
    )
    cells = [
        _markdown(one, "story", story),
        _code(one, "load", "%load_ext ddt_notebook"),
        _markdown(one, "ready-text", ready),
        _code(one, "ready", f"%ddt_exercise {one.name} --prepare", skipped=True),
        _markdown(one, "task-text", task),
        # the cell to repair: the student may change it, and nbgrader keeps it
        nbformat.v4.new_code_cell(
            one.cell(), id="task", metadata={METADATA: {"exercise": one.name}, "tags": [_SKIPPED]}
        ),
        _markdown(one, "check-text", check),
        _code(one, "hint", f"%ddt_hint {one.name}", skipped=True),
        _code(one, "check", f"%ddt_check {one.name} --strict", skipped=True, points=one.level),
        _code(one, "stop", "%ddt_stop", skipped=True),
    ]
    metadata = {"kernelspec": _KERNEL, "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def _attributes(one: Exercise) -> str:
    """Rows of a table of all attributes; of those without a use in this exercise, it says so."""
    setting = one.setting
    return "\n".join(
        f"| `{name}` | {text} |"
        for name, text in {
            "dataset": "the training samples: `len(exercise.dataset)`, `exercise.dataset[index]`, "
            "and `exercise.dataset.take(indices)` for a batch `x, y`",
            "validation": "the validation samples, in the same form"
            if setting.validation
            else "validation samples; this exercise has none",
            "model()": "a new model with the initial weights"
            + (", other ones on each rank" if setting.random_start else ""),
            "epochs": "how many times to go through the data",
            "batch_size": "samples in a batch of one rank"
            if setting.batch
            else "0: the whole share of a rank is one batch",
            "accumulate": "batches whose gradients make one step",
            "learning_rate": "the learning rate of plain gradient descent",
            "late_rank": "the rank that is slow, in exercises with one",
            "folder": "a folder for files, the same on all ranks",
        }.items()
    )


def _lesson_link(one: Exercise) -> str:
    path = lessons.lesson_file(one.lesson).relative_to(lessons.notebooks_folder())
    return f"[{lessons.heading(path)}](../{path.as_posix()})"


def exercises_line(code: str) -> str:
    """The line of a lesson's references that names its exercises; empty if there is none."""
    links = [
        f"[{name}](../exercises/{file})"
        for name, file in file_names().items()
        if exercise(name).lesson == code
    ]
    return f"{_EXERCISES}{', '.join(links)}" if links else ""


def link_lessons(folder: Path) -> None:
    """Write that line into each lesson below the folder of notebooks, or renew it."""
    for part in lessons.lesson_folders():
        for path in sorted((folder / part).glob("*.ipynb")):
            book = nbformat.read(path, as_version=4)
            before = nbformat.writes(book)
            line = exercises_line(path.name.split("-")[0])
            for cell in book.cells:
                if cell.source.startswith(_REFERENCES):
                    kept = [x for x in cell.source.split("\n") if not x.startswith(_EXERCISES)]
                    cell.source = "\n".join([*kept[:2], *([line] if line else []), *kept[2:]])
            if nbformat.writes(book) != before:
                path.write_text(nbformat.writes(book) + "\n", encoding="utf-8")


def file_names() -> dict[str, str]:
    """The file name of the notebook of each exercise, numbered from easy to hard."""
    return {name: f"{at:02}-{name}.ipynb" for at, name in enumerate(exercise_names(), 1)}


def text_of(one: Exercise) -> str:
    """The text of the file."""
    text: str = nbformat.writes(notebook_of(one))
    return text + "\n"


def write(folder: Path) -> None:
    """Write all notebooks, in place of those that have another number; other files stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in file_names().items():
        for earlier in folder.glob(f"[0-9][0-9]-{name}.ipynb"):
            earlier.unlink()
        (folder / file).write_text(text_of(exercise(name)), encoding="utf-8")


def _markdown(one: Exercise, name: str, text: str) -> nbformat.NotebookNode:
    metadata = _locked(one, name, "markdown")
    return nbformat.v4.new_markdown_cell(text, id=name, metadata=metadata)


def _code(
    one: Exercise, name: str, source: str, *, skipped: bool = False, points: int = 0
) -> nbformat.NotebookNode:
    metadata = _locked(one, name, "code", points) | ({"tags": [_SKIPPED]} if skipped else {})
    return nbformat.v4.new_code_cell(source, id=name, metadata=metadata)


def _locked(one: Exercise, name: str, kind: str, points: int = 0) -> dict[str, Any]:
    """Metadata of a cell that nbgrader restores; with points, it gives them unless it fails."""
    nbgrader: dict[str, Any] = {
        "cell_type": kind,
        "grade": bool(points),
        "grade_id": f"{one.name}-{name}",
        "locked": True,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    return {"nbgrader": nbgrader | ({"points": points} if points else {})}


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    link_lessons(Path(sys.argv[1]).parent)
