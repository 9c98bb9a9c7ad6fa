"""Finds the lesson on each symptom, and the folder of notebooks that contains it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from .loader import UnknownSymptom, stages, symptom

FOLDER = "notebooks"
_SHORT_STAGES = {
    "A": "a-package",
    "B": "b-communication",
    "C": "c-data-and-model",
    "D": "d-training",
}
#: Part E: faults that are common today and that the study does not name. It is no stage.
TODAY = "e-today"
EXERCISES = "exercises"
#: The title of symptoms that collect all other faults; there are no lessons on them.
_UNNAMED = "others"


def lesson(code: str) -> str | None:
    """The lesson on a symptom, such as ``"d-training/D.2.1-hang.ipynb"``.

    Parameters
    ----------
    code
        A code of the taxonomy.

    Returns
    -------
    str or None
        The path below the folder of notebooks; None for the three symptoms named "others".

    Raises
    ------
    UnknownSymptom
        If the code is not in the taxonomy.
    """
    known = symptom(code)
    if known.title == _UNNAMED:
        return None
    slug = re.sub(r"[^a-z0-9]+", "-", known.title.lower()).strip("-")
    return f"{_SHORT_STAGES[known.stage]}/{known.code}-{slug}.ipynb"


def address(path: str, folder: Path) -> str | None:
    """Where a lesson is, seen from a folder, such as ``"../d-training/D.2.1-hang.ipynb"``.

    Parameters
    ----------
    path
        As `lesson` returns it.
    folder
        A folder of lessons, or the one that contains these folders: that of the reader's notebook.

    Returns
    -------
    str or None
        The address of the file; None if the lesson is not there.
    """
    for above in (folder, folder.parent):
        if (above / path).is_file():
            return Path(os.path.relpath(above / path, folder)).as_posix()
    return None


def lesson_folders() -> tuple[str, ...]:
    """The folders of lessons: one for each stage of the study, in order, and part E."""
    return (*(_SHORT_STAGES[stage.code] for stage in stages()), TODAY)


def notebooks_folder() -> Path:
    """The folder of the project's notebooks, in a checkout or in an installed copy.

    Raises
    ------
    FileNotFoundError
        If the installation lacks it.
    """
    package = Path(__file__).parent.parent
    for folder in (package.parent / FOLDER, package / "_notebooks"):
        if folder.is_dir() and any(folder.glob("*.ipynb")):
            return folder
    raise FileNotFoundError("this installation lacks its notebooks: reinstall ddt-notebook")


def lesson_file(code: str) -> Path:
    """The file of the lesson on a symptom or of part E, in a checkout or in an installed copy.

    Raises
    ------
    UnknownSymptom
        If there is no lesson with this code.
    FileNotFoundError
        If the installation lacks it.
    """
    if code.upper().startswith("E."):
        today = {path.name.partition("-")[0]: path for path in _of_today()}
        if code.upper() not in today:
            first, *_, last = today
            raise UnknownSymptom(f"there is no lesson {code}: part E has {first} to {last}")
        return today[code.upper()]
    path = lesson(code)
    if path is None:
        known = symptom(code)
        raise UnknownSymptom(
            f"there is no lesson on {known.code}: it is what fits no other symptom of "
            f"{known.stage_title}"
        )
    return notebooks_folder() / path


def _of_today() -> list[Path]:
    return sorted((notebooks_folder() / TODAY).glob("*[0-9]-*.ipynb"), key=_numbers)


def notebooks() -> dict[str, str]:
    """Headings of the project's notebooks by their path below its folder, in order.

    In a checkout, the folder also holds what a user saves there: such notebooks are left out.
    """
    folder = notebooks_folder()
    found = sorted(path.relative_to(folder) for path in folder.glob("[0-9]*-*.ipynb"))
    for name in (*lesson_folders(), EXERCISES):
        found += sorted(
            (path.relative_to(folder) for path in (folder / name).glob("*[0-9]-*.ipynb")),
            key=_numbers,
        )
    return {path.as_posix(): heading(path) for path in found}


def _numbers(path: Path) -> list[int]:
    """The numbers of a name such as ``D.1.10-not-implemented-error``: 1 and 10."""
    return [int(number) for number in re.findall(r"\d+", path.name.split("-")[0])]


def lessons_of_today() -> dict[str, str]:
    """Headings of the lessons of part E by their path below the folder of notebooks, in order."""
    return {path: title for path, title in notebooks().items() if path.startswith(f"{TODAY}/")}


def copy_notebooks(target: Path, *, executed: bool = False) -> tuple[int, list[str]]:
    """Copy all notebooks and the files they need into ``target``; keep files that exist there.

    Parameters
    ----------
    target
        The folder, which is made if necessary.
    executed
        Whether lessons keep the outputs below their question, which give the answer away.

    Returns
    -------
    tuple
        How many files were copied, and the paths that were left as they are.
    """
    copied, kept = 0, []
    for name in notebooks_and_files():
        path, goal = notebooks_folder() / name, target / name
        if goal.exists():
            kept.append(name)
            continue
        goal.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".ipynb" and not executed:
            goal.write_text(for_learners(name), encoding="utf-8")
        else:
            shutil.copyfile(path, goal)
        copied += 1
    return copied, kept


def notebooks_and_files() -> list[str]:
    """The project's notebooks and the files that they need, by path below their folder."""
    source, known = notebooks_folder(), notebooks()
    found = []
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        hidden = any(part.startswith((".", "__pycache__")) for part in name.parts)
        of_a_user = path.suffix == ".ipynb" and name.as_posix() not in known
        if path.is_file() and not hidden and not of_a_user:
            found.append(name.as_posix())
    return found


def for_learners(name: str) -> str:
    """The text of a notebook, by its path below the folder of notebooks.

    A lesson comes without the outputs below its question, and with a cell that takes the choice.
    """
    path = notebooks_folder() / name
    text = path.read_text(encoding="utf-8")
    if not name.startswith(lesson_folders()):
        return text
    book = json.loads(text)
    cells = []
    asked = False
    for cell in book["cells"]:
        if asked and cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        cells.append(cell)
        if not asked and "".join(cell["source"]).startswith("## Predict"):
            asked = True
            cells.append(_choice_cell(path.name.split("-")[0]))
    return json.dumps(book | {"cells": cells}, indent=1, ensure_ascii=False) + "\n"


def _choice_cell(code: str) -> dict[str, object]:
    return {
        "cell_type": "code",
        "id": "predict",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": f"%ddt_predict {code}",
    }


def heading(path: Path) -> str:
    """The heading of a notebook, by its path below the folder of notebooks."""
    path = notebooks_folder() / path
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and source.startswith("# "):
            return source.splitlines()[0].removeprefix("# ").strip()
    return path.stem
