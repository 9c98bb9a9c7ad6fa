"""`lint` finds faults in the source alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ddt_notebook.model import Fact, Finding
from ddt_notebook.program.parse import Document, syntax_tree
from ddt_notebook.program.project import Project
from ddt_notebook.program.traced_program import TracedProgram
from ddt_notebook.program.tree import Tree

from ..advice import conclude
from ..wording import worded
from . import checkpoints, data, divergence, models, results, setup
from .foreseen import Foreseen, Rule, Sources

RULES: tuple[Rule, ...] = (
    *divergence.RULES,
    *results.RULES,
    *data.RULES,
    *models.RULES,
    *checkpoints.RULES,
    *setup.RULES,
)


def lint(
    source: str, *, name: str = "cell", first_line: int = 1, file: Path | None = None
) -> list[Finding]:
    """Look for faults in a cell or a file without running it.

    Parameters
    ----------
    source
        Python code; a cell may contain IPython's magics.
    name
        Its name in findings: ``"cell"``, ``"cell[3]"``, or the name of a file.
    first_line
        Number of the first line.
    file
        Where the source is from. The files of its project that it imports are read, too; None
        to read none.

    Returns
    -------
    list of Finding
        In the order of the lines. The first fact of each has its line. Those of confidence
        ``"possible"`` are hints.
    """
    document = Document(name, source, first_line)
    try:
        tree, text = syntax_tree(source)
    except SyntaxError as error:
        return [_unreadable(error, document)]
    except (ValueError, RecursionError):
        return []
    project = Project(file) if file is not None else None
    program = TracedProgram(Tree(document, tree), project=project)
    noted = [foreseen for rule in RULES for foreseen in rule(program)]
    first: dict[tuple[int, str], Foreseen] = {}
    for foreseen in sorted(noted, key=lambda foreseen: foreseen.line):
        if not all(map(Project.is_elsewhere, foreseen.lines)):
            first.setdefault((foreseen.line, foreseen.cause), foreseen)
    sources = Sources(replace(document, source=text), project)
    return [worded(foreseen.finding(sources)) for foreseen in first.values()]


def _unreadable(error: SyntaxError, document: Document) -> Finding:
    place = Sources(document).place(error.lineno or 1)
    found = conclude(
        "D.1.11",
        "not-python",
        values={"message": error.msg},
        facts=[Fact(kind="source-line", place=place)],
    )
    mended = replace(found.fixes[0], advice="correct the line shown, or the one before it")
    return worded(replace(found, fixes=[mended]))
