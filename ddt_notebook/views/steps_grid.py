"""A grid of steps and parameters: before which steps the ranks' replicas agreed or differed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..diagnosis.communication import hold_parts
from ..diagnosis.replicas import Replicas, replicas
from ..model import Snapshot
from . import html, safe, terminal, words
from .html import COLOURS, Markup
from .source_positions import group

#: Columns and rows; steps beyond are left out around the first difference, rows are counted.
STEPS, ROWS, GRIDS = 7, 8, 4
_EQUAL, _APART, _FIRST = "=", "≠", "≠ first"
_STYLES = {
    _EQUAL: f"border-bottom:3px solid {COLOURS['ok']};padding:0 8px",
    _APART: f"border-bottom:3px double {COLOURS['error']};padding:0 8px",
    _FIRST: f"{html.box('error')};padding:0 8px;white-space:nowrap",
}


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid of one optimizer.

    Attributes
    ----------
    subject
        Whose parameters they are, and where the ranks first differ.
    head, rows
        A column for each step; a row for parameters that agree and differ at the same steps.
    rest
        What is not in the grid; empty if nothing is left out.
    """

    subject: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    rest: str


def grids(snapshot: Snapshot, sizes: Mapping[str, str]) -> list[Grid]:
    """The grids of the optimizers that several ranks stepped on parameters of the same names.

    Parameters
    ----------
    snapshot
        With its ``training``.
    sizes
        By how much a parameter differs at the end of the run, by its name, where that is known.
    """
    found = [
        one
        for one in replicas(snapshot)
        if len(one.states) > 1 and one.first.watched and not _may_be_parts(one, snapshot)
    ]
    return [_grid(one, sizes) for one in found[:GRIDS]]


def as_text(grid: Grid) -> list[str]:
    """The grid in a terminal."""
    lines = terminal.wrap("", grid.subject)
    lines += terminal.columns(grid.rows, grid.head, indent=4)
    return [*lines, *([f"    {grid.rest}"] if grid.rest else [])]


def as_html(grid: Grid) -> list[Markup]:
    """The grid as a table whose cells are boxes."""
    rows = [[html.name(row[0]), *map(_box, row[1:-1]), row[-1]] for row in grid.rows]
    parts = [html.heading(grid.subject), html.table(rows, grid.head)]
    return [*parts, *([html.line(grid.rest)] if grid.rest else [])]


def _may_be_parts(one: Replicas, snapshot: Snapshot) -> bool:
    """Whether each rank may train another part of a model, so that nothing has to agree."""
    if one.first.wrapper:
        return False
    shapes = [shape for shape, times in one.first.shapes.items() for _ in range(times)]
    return hold_parts(snapshot.ranks, shapes)


def _box(word: str) -> Markup:
    return html.tag("div", word, style=_STYLES[word])


def _grid(one: Replicas, sizes: Mapping[str, str]) -> Grid:
    first = one.first_apart
    steps = _chosen(list(one.states), first)
    apart = {step: set(one.apart(step)) for step in steps}
    alike = group(
        range(len(one.first.watched)), lambda at: tuple(at in apart[step] for step in steps)
    )
    # those that parted first come first
    alike.sort(key=lambda pair: [not differs for differs in pair[0]])
    rows = []
    for pattern, members in alike[:ROWS]:
        names = [one.first.watched[at] for at in members]
        known = [sizes[name] for name in names if name in sizes]
        cells = [
            (_FIRST if step == first else _APART) if differs else _EQUAL
            for step, differs in zip(steps, pattern, strict=True)
        ]
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        rows.append((safe.middle(names[0], 32) + more, *cells, known[0] if known else ""))
    last = max(one.states)
    head = [
        "before step",
        *("end" if step == last else str(step + 1) for step in steps),
        "by up to",
    ]
    return Grid(_subject(one, first), tuple(head), rows, _rest(one, len(steps), alike[ROWS:]))


def _chosen(steps: list[int], first: int | None) -> list[int]:
    """The steps of the columns: the first, the last, and those around the first difference."""
    if len(steps) <= STEPS:
        return steps
    at = steps.index(first) if first is not None else STEPS // 2
    low = min(max(1, at - (STEPS - 2) // 2), len(steps) - 1 - (STEPS - 2))
    return [steps[0], *steps[low : low + STEPS - 2], steps[-1]]


def _subject(one: Replicas, first: int | None) -> str:
    whose = safe.middle(one.first.model or one.first.name, 60)
    about = f"{whose}, {words.ranks(one.ranks)}"
    if first is None:
        parted = any(map(one.apart, one.states))
        meanwhile = "they differed meanwhile" if parted else "and before the sampled steps"
        return f"{about}: its parameters agree at the end, {meanwhile}"
    name = safe.middle(one.first.watched[one.apart(first)[0]], 60)
    who = words.ranks(one.deviating(lambda rank: one.states[first][rank].values))
    before = one.before(first)
    if before is None:
        return f"{about}: they differed from the start, as {name} of {who}"
    if one.apart(before):
        return f"{about}: {name} of {who} differs since the sampled step {first + 1}"
    until = "the end" if first == max(one.states) else f"step {first + 1}"
    return f"{about}: equal before step {before + 1}; before {until}, {name} of {who} differs"


def _rest(one: Replicas, steps: int, hidden: list[tuple[tuple[bool, ...], list[int]]]) -> str:
    left_out = []
    if hidden:
        rows = sum(len(members) for _, members in hidden)
        left_out.append(f"{words.count(rows, 'more parameter')}")
    if len(one.states) > steps:
        left_out.append(f"{words.count(len(one.states) - steps, 'more step')}")
    unwatched = one.first.parameters - len(one.first.watched)
    if unwatched > 0:
        left_out.append(f"{words.count(unwatched, 'parameter')} compared at the end only")
    return f"and {', '.join(left_out)}" if left_out else ""
