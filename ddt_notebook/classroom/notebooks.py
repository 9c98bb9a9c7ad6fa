"""Writes a notebook for each exercise: ``python -m ddt_notebook.classroom.notebooks FOLDER``.

The cells carry nbgrader's metadata, so that a notebook can be an assignment as it is: the cell that
checks is the one with points, and fails unless every behaviour holds. The cell to repair is none of
nbgrader's solution cells, since it empties those before it hands them out. What takes ranks is
skipped by nbval: the exercises themselves are tested elsewhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from .exercise import Exercise
from .loader import exercise, exercise_names
from .submissions import METADATA

_SKIPPED = "nbval-skip"
_METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}


def sheet(one: Exercise) -> dict[str, Any]:
    """The notebook of an exercise, without its solution."""
    must = "\n".join(f"- {behaviour.title}" for behaviour in one.behaviours)
    story = (
        f"# Exercise: {one.title}\n\n*{one.level_name}, about {one.minutes} minutes*\n\n"
        f"{one.story}\n\n**What must hold**, on {one.graded_n} ranks and with data that you have "
        f"not seen:\n\n{must}"
    )
    ready = (
        f"The next cell starts {one.n} ranks, if there are none, and gives them the variable "
        "`exercise`. It holds `dataset` (`len(exercise.dataset)`, `exercise.dataset[index]`, "
        "`exercise.dataset.take(indices)` for a batch), `model()`, `epochs` and `learning_rate`. "
        "Run it again after a restart of the ranks."
    )
    task = (
        "This is the cell to repair. Run it as often as you like; `%ddt_debug`, `%ddt_show` and "
        "`%ddt_explain` are there to help. Its first comment says which exercise it is: leave it. "
        "The cell is graded by itself: what it needs stands in it."
    )
    check = (
        "`%ddt_hint` gives one hint after the other, three in all. `%ddt_check` runs your last "
        "version on fresh ranks and says which behaviours hold; it fails until all do."
    )
    return {
        "cells": [
            _text(one, "story", story),
            _code(one, "load", "%load_ext ddt_notebook"),
            _text(one, "ready-text", ready),
            _code(one, "ready", f"%ddt_exercise {one.name} --prepare", skipped=True),
            _text(one, "task-text", task),
            _task(one),
            _text(one, "check-text", check),
            _code(one, "hint", f"%ddt_hint {one.name}", skipped=True),
            _code(one, "check", f"%ddt_check {one.name} --strict", skipped=True, points=one.level),
            _code(one, "stop", "%ddt_stop", skipped=True),
        ],
        "metadata": _METADATA,
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def file_names() -> dict[str, str]:
    """Name of the notebook of each exercise; they are numbered from easy to hard."""
    return {name: f"{at:02}-{name}.ipynb" for at, name in enumerate(exercise_names(), 1)}


def text_of(one: Exercise) -> str:
    """The notebook as it stands in its file."""
    return json.dumps(sheet(one), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _text(one: Exercise, name: str, text: str) -> dict[str, Any]:
    metadata = _locked(one, name, "markdown")
    return {"cell_type": "markdown", "id": name, "metadata": metadata, "source": _lines(text)}


def _code(
    one: Exercise, name: str, source: str, *, skipped: bool = False, points: int = 0
) -> dict[str, Any]:
    metadata = _locked(one, name, "code", points)
    if skipped:
        metadata["tags"] = [_SKIPPED]
    return _cell(name, source, metadata)


def _task(one: Exercise) -> dict[str, Any]:
    """The cell to repair: nbgrader leaves it as it is, and the student may change it."""
    return _cell("task", one.cell(), {METADATA: {"exercise": one.name}, "tags": [_SKIPPED]})


def _cell(name: str, source: str, metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": metadata,
        "outputs": [],
        "source": _lines(source),
    }


def _locked(one: Exercise, name: str, kind: str, points: int = 0) -> dict[str, Any]:
    """What nbgrader puts back if a student changes it; with points, its error is no credit."""
    told: dict[str, Any] = {
        "cell_type": kind,
        "grade": bool(points),
        "grade_id": f"{one.name}-{name}",
        "locked": True,
        "schema_version": 3,
        "solution": False,
        "task": False,
    }
    if points:
        told["points"] = points
    return {"nbgrader": told}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write(folder: Path) -> None:
    """Write all notebooks; what else is in the folder stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in file_names().items():
        (folder / file).write_text(text_of(exercise(name)), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
