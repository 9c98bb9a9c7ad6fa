"""``lint``: the findings that the source alone gives rise to."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.model import Fact, Finding

from ..advice import conclude_text
from ..wording import worded
from . import data, files, habits, messages, models, ranks, setup, tensors
from .note import Place
from .program import Program, parsed

RULES = (
    ranks.parted,
    ranks.after_exception,
    ranks.strangers,
    messages.waits,
    ranks.steps,
    tensors.too_early,
    tensors.changed,
    tensors.on_other_ranks,
    tensors.never_waited,
    tensors.own_metric,
    data.no_sampler,
    data.epochs,
    data.samplers,
    models.not_wrapped,
    models.past_wrapper,
    models.never_synchronised,
    models.other_copy,
    models.attribute_of_wrapper,
    models.changed_on_some,
    models.not_registered,
    models.never_used,
    files.by_every_rank,
    files.folders,
    files.wrapper_saved,
    files.onto_one_device,
    files.raced,
    setup.backends,
    setup.formed_twice,
    setup.arguments,
    setup.before_setup,
    setup.own_devices,
    setup.not_inherited,
    habits.gone,
    habits.averages,
    habits.narrow,
    habits.debugging,
    habits.ends,
    habits.checkpointed,
    habits.kept_graphs,
    habits.fixed_outputs,
)


def lint(
    source: str, *, name: str = "cell", number: int | None = None, first_line: int = 1
) -> list[Finding]:
    """Look for faults in a cell or a file without running it.

    Parameters
    ----------
    source
        Python, with IPython's magics if it is a cell.
    name
        What to call it: ``"cell"``, or the name of a file.
    number
        Of the cell.
    first_line
        Number of the first line.

    Returns
    -------
    list of Finding
        In the order of the lines. The first evidence of each names its line. Those of confidence
        ``"possible"`` are hints.
    """
    place = Place(name, number, first_line)
    try:
        tree, text = parsed(source)
    except SyntaxError as error:
        return [_unreadable(error, source, place)]
    except (ValueError, RecursionError):
        return []
    program = Program(tree, text)
    noted = [note for rule in RULES for note in rule(program)]
    first: dict[tuple[int, str], Finding] = {}
    for note in sorted(noted, key=lambda note: note.line):
        first.setdefault((note.line, note.cause), note.finding(program, place))
    return [worded(finding) for finding in first.values()]


def _unreadable(error: SyntaxError, source: str, place: Place) -> Finding:
    line = error.lineno or 1
    lines = source.split("\n")
    shown = lines[line - 1].strip() if line <= len(lines) else ""
    found = conclude_text(
        "D.1.11",
        f"the source is not Python: {error.msg}",
        evidence=[Fact(kind="shows", place=place.of(line, shown), values={"says": ""})],
    )
    mended = [
        replace(fix, advice="mend the line shown, or the one before it") for fix in found.fixes
    ]
    return worded(replace(found, fixes=mended[:1]))
