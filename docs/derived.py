"""Pages of the guide that are made from the project itself, so that no fact stands twice."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import catalogue
import faults
import gallery
from IPython.core.magic import Magics

from ddt_notebook.classroom.exercise import exercise
from ddt_notebook.classroom.notebooks import exercises_line, file_names
from ddt_notebook.magics import extension
from ddt_notebook.symptoms import lessons, stages, symptoms
from ddt_notebook.views.registry import VIEWS

FIGURES = "figures.json"
_MAGICS_HEAD = """# Magics

`%load_ext ddt_notebook` loads them. Each takes `-h`, and returns an object that shows itself as
text in a terminal and as HTML in a notebook. `%config DDT.timeout = 20` changes a default.
"""
#: Magics in the order in which one meets them; all others follow.
_MAGICS_AS_MET = (
    "ddt_start ddt ddt_debug ddt_push ddt_pull ddt_show ddt_status ddt_restart ddt_stop "
    "ddt_release ddt_explain ddt_lint ddt_doctor ddt_load ddt_attach ddt_replay ddt_live "
    "ddt_predict ddt_exercise ddt_hint ddt_check"
).split()
_LESSONS_HEAD = """# Lessons

A lesson for each named symptom of the study: a training run that really fails, what the assistant
says about it, why it happens, the repair, and what the same fault looks like on a cluster. Each
takes 10 to 15 minutes to read, 15 to 25 if you read English slowly, and some seconds to run.
`ddt-notebook lessons --copy FOLDER` copies them into a folder, without the outputs below
each question; there, `%ddt_predict` takes your answer.

Begin with the [quick start](notebooks/00-quickstart.ipynb) and
[the tour](notebooks/01-tour.ipynb); [your own job](notebooks/90-your-own-job.ipynb) records a
script that does not end, and repairs it.
"""
_PATH_HEAD = """
## A path

The sections below follow the order of the study. If you want to learn, take this path instead. It
begins with the hang; do the exercises of each lesson after it:

"""
#: From the first hang to rarer faults.
_PATH = ("D.2.1", "D.2.4", "C.7", "D.1.4", "C.1", "D.2.2", "C.4", "D.1.2", "B.1")
_PATH_TODAY = ("E.1", "E.2", "E.8", "E.9", "E.11")
_TODAY_HEAD = """
## E. Today

Faults that are common today. The study is older than most of them and has no stage for them, so the
frequencies of its repairs say nothing about them.

"""
_VIEWS_HEAD = """| view | shows | magic | function | of a session, it shows |
|---|---|---|---|---|
"""
_MEASURED_HEAD = """# Measured: every notebook

Run time of the whole notebook in a fresh kernel, and the highest memory of the kernel, the ranks
and all helpers together (proportional set size: memory that processes share counts once). Measured
by `make notebooks`; {machine}. A JupyterLab server needs {server} MB beside them.

| notebook | run time | memory | with the server |
|---|---|---|---|
"""


def write(docs: Path) -> None:
    """Copy the notebooks to where Sphinx finds them, and write the pages that are derived."""
    copies = docs / "notebooks"
    shutil.rmtree(copies, ignore_errors=True)
    lessons.copy_notebooks(copies, executed=True)
    made = {
        "magics.md": _MAGICS_HEAD + "".join(_magics()),
        "lessons.md": _LESSONS_HEAD + "".join(_lessons()),
        "measured.md": "".join(_measured(docs / FIGURES)),
        "gallery.md": "".join(gallery.page()),
        "views_table.md": _VIEWS_HEAD + "".join(_views()),  # included by views.md
        "views_functions.md": "".join(_view_functions()),  # included by api.md
    }
    for name, text in (made | faults.pages() | catalogue.pages()).items():
        path = docs / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _views() -> Iterator[str]:
    for view in VIEWS.values():
        function = f"{{py:func}}`ddt_notebook.{view.name}`"
        of = "the ranks now" if view.asks_ranks else "the last run"
        yield f"| {view.name} | {view.shows} | `%ddt_show {view.name}` | {function} | {of} |\n"


def _view_functions() -> Iterator[str]:
    functions = "\n".join(f".. autofunction:: ddt_notebook.{name}" for name in VIEWS)
    yield f"```{{eval-rst}}\n{functions}\n```\n"


def _magics() -> Iterator[str]:
    classes = [one for one in vars(extension).values() if isinstance(one, type)]
    known = [one for one in classes if issubclass(one, Magics)]
    functions = {
        name: getattr(one, function)
        for one in known
        for names in one.magics.values()
        for name, function in names.items()
    }
    order = {name: at for at, name in enumerate(_MAGICS_AS_MET)}
    for name, function in sorted(functions.items(), key=lambda one: order.get(one[0], len(order))):
        text = str(function.__doc__).strip()
        yield f"\n## `%{name}`\n\n```text\n{text}\n```\n"


def _lessons() -> Iterator[str]:
    yield from _path()
    for stage in stages():
        yield f"\n## {stage.code}. {stage.title.capitalize()}\n\n"
        yield "| symptom | faults in the study | lesson |\n|---|---|---|\n"
        named = [one for one in symptoms() if one.stage == stage.code]
        for known in named:
            path = lessons.lesson(known.code)
            link = (
                f"[{known.title}](notebooks/{path})" if path else "none: they have little in common"
            )
            yield f"| {known.code} {known.title} | {known.faults} | {link} |\n"
    yield _TODAY_HEAD
    for path, title in lessons.lessons_of_today().items():
        yield f"- [{title}](notebooks/{path})\n"
    yield "\n## Exercises\n\n| exercise | level | minutes |\n|---|---|---|\n"
    for name, file in file_names().items():
        one = exercise(name)
        title = f"{one.title[0].upper()}{one.title[1:]}"
        yield f"| [{title}](notebooks/exercises/{file}) | {one.level_name} | {one.minutes} |\n"
    yield "\n```{toctree}\n:hidden:\n\n"
    yield "\n".join(f"notebooks/{path}" for path in lessons.notebooks()) + "\n```\n"


def _path() -> Iterator[str]:
    """Yield the lessons of the path with their exercises."""
    yield _PATH_HEAD
    folder = lessons.notebooks_folder()
    for code in (*_PATH, *_PATH_TODAY):
        path = lessons.lesson_file(code).relative_to(folder)
        links = exercises_line(code).replace("../exercises/", "notebooks/exercises/")
        practice = f" · {links.removeprefix('- ')}" if links else ""
        first = json.loads((folder / path).read_text(encoding="utf-8"))["cells"][0]
        minutes = re.search(r"· (\d+)\s+minutes", "".join(first["source"]))
        time = f", {minutes[1]} minutes" if minutes else ""
        yield f"1. [{lessons.heading(path)}](notebooks/{path.as_posix()}){time}{practice}\n"


def _measured(path: Path) -> Iterator[str]:
    figures = json.loads(path.read_text(encoding="utf-8"))
    server = figures["server_megabytes"]
    yield _MEASURED_HEAD.format(machine=figures["machine"], server=server)
    titles = {Path(name).stem: title for name, title in lessons.notebooks().items()}
    for name, one in figures["notebooks"].items():
        total = one["megabytes"] + server
        title = titles.get(name, name)
        seconds = "not measured" if one["seconds"] is None else f"{one['seconds']:.0f} s"
        yield f"| {title} | {seconds} | {one['megabytes']} MB | {total} MB |\n"
