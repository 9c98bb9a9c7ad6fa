"""Two grids of who talks to whom: messages from rank to rank, and collectives of rank and group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..model.meetings import Meeting
from ..model.traffic import Traffic
from . import html, safe, sparklines, terminal, words
from .html import Markup

#: Ranks in one direction of a grid; more of them share its rows and columns.
RANKS = 8
#: Groups that have a row.
GROUPS = 8
#: Columns beside each other in a terminal, and the longest title of a row there.
_TEXT_COLUMNS, _TEXT_NAME = 6, 22
_NONE = "·"
#: What the sign before an amount means.
BAR = "a bar is as high as the amount's share of the largest"
_SUMMED = "a cell of several ranks holds their sum"


@dataclass(frozen=True, slots=True)
class Grid:
    """Amounts in rows and columns.

    Attributes
    ----------
    subject
        What the amounts are.
    head
        The corner and the columns.
    rows
        The title of each row and its amounts: a share of the largest, from 0 to 1, and the words.
    rest
        What is not in the grid; empty if nothing is left out.
    """

    subject: str
    head: tuple[str, ...]
    rows: list[tuple[str, list[tuple[float, str]]]]
    rest: str = ""


def of_messages(found: Mapping[tuple[int, int], Traffic], ranks: Sequence[int]) -> list[Grid]:
    """Bytes, and the time that receivers were blocked; empty without messages."""
    if not found:
        return []
    blocks = _blocks(ranks)
    at = {rank: number for number, block in enumerate(blocks) for rank in block}
    sums: dict[tuple[int, int], Traffic] = {}
    for (sender, receiver), traffic in found.items():
        if sender in at and receiver in at:
            cell = at[sender], at[receiver]
            sums[cell] = sums.get(cell, Traffic()) + traffic
    whole = sum(found.values(), Traffic())
    subject = (
        f"{words.count(whole.times, 'message')}, {words.size(whole.bytes)}, sender by receiver"
    )
    names = [_name(block) for block in blocks]
    rest = _SUMMED if len(blocks) < len(ranks) else ""
    return _amounts(
        (f"{subject}: bytes", "the same: how long the receiver was blocked"),
        ("from", *(f"to {name}" if not number else name for number, name in enumerate(names))),
        [
            (name, [sums.get((row, column)) for column in range(len(blocks))])
            for row, name in enumerate(names)
        ],
        rest,
    )


def of_groups(
    found: Mapping[str, Mapping[int, Traffic]], met: Sequence[Meeting], ranks: Sequence[int]
) -> list[Grid]:
    """Bytes and waiting in each group; empty if there are no groups beside the default one."""
    if len(found) < 2:
        return []
    blocks = _blocks(ranks)
    members = {meeting.group: meeting.members for meeting in met}
    shown = sorted(found)[:GROUPS]
    rows = []
    for group in shown:
        cells = []
        for block in blocks:
            inside = [found[group][rank] for rank in block if rank in found[group]]
            cells.append(sum(inside, Traffic()) if inside else None)
        rows.append((f"{safe.middle(group, 16)}: {_name(members[group])}", cells))
    hidden = len(found) - len(shown)
    rest = [f"and {words.count(hidden, 'more group')}"] if hidden else []
    rest += [_SUMMED] if len(blocks) < len(ranks) else []
    return _amounts(
        (
            f"{words.count(len(found), 'group')}: bytes that each rank passed in",
            "the same: how long each rank waited for the last one",
        ),
        ("group: ranks", *map(_name, blocks)),
        rows,
        "; ".join(rest),
    )


def as_text(grid: Grid) -> list[str]:
    """The grid in a terminal."""
    lines = terminal.wrap("", grid.subject)
    columns = len(grid.head) - 1
    tables = -(-columns // _TEXT_COLUMNS)
    each = -(-columns // tables)  # so that all of them are about equally wide
    for low in range(0, columns, each):
        head = (grid.head[0], *grid.head[1 + low : 1 + low + each])
        rows = [
            (safe.middle(name, _TEXT_NAME), *(word for _, word in cells[low : low + each]))
            for name, cells in grid.rows
        ]
        used = [row for row in rows if set(row[1:]) != {_NONE}]
        lines += terminal.columns(used, head, range(1, len(head)), indent=4) if used else []
    return [*lines, *([f"    {grid.rest}"] if grid.rest else [])]


def as_html(grid: Grid) -> list[Markup]:
    """The grid as a table; a bar beside each amount is as high as its share of the largest."""
    rows = [[name, *(_cell(share, word) for share, word in cells)] for name, cells in grid.rows]
    parts = [
        html.line(grid.subject),
        html.tag("div", html.table(rows, grid.head), role="traffic"),
    ]
    return [*parts, *([html.line(grid.rest)] if grid.rest else [])]


def _cell(share: float, word: str) -> str:
    if not share:
        return word
    return html.tag("span", f"{sparklines.level(share)} {word}", style="white-space:nowrap")


def _amounts(
    subjects: tuple[str, str],
    head: tuple[str, ...],
    rows: Sequence[tuple[str, Sequence[Traffic | None]]],
    rest: str = "",
) -> list[Grid]:
    """A grid of bytes and, if it is known, a grid of times."""
    size = _grid(subjects[0], head, rows, lambda one: one.bytes, lambda n: words.size(int(n)))
    time = _grid(subjects[1], head, rows, lambda one: one.blocked_s, words.duration)
    grids = [size, *([time] if any(share for _, cells in time.rows for share, _ in cells) else [])]
    return [Grid(one.subject, one.head, one.rows, rest) for one in grids]


def _grid(
    subject: str,
    head: tuple[str, ...],
    rows: Sequence[tuple[str, Sequence[Traffic | None]]],
    amount: Callable[[Traffic], float | None],
    word: Callable[[float], str],
) -> Grid:
    largest = max(((amount(one) or 0.0) for _, cells in rows for one in cells if one), default=0.0)

    def shown(one: Traffic | None) -> tuple[float, str]:
        value = amount(one) if one is not None else None
        if value is None:
            return 0.0, _NONE
        return value / largest if largest else 0.0, word(value)

    return Grid(subject, head, [(name, [shown(one) for one in cells]) for name, cells in rows])


def _blocks(ranks: Sequence[int]) -> list[Sequence[int]]:
    """The ranks of each row: one, or as many as it takes to have at most `RANKS` rows."""
    each = max(1, -(-len(ranks) // RANKS))
    return [ranks[low : low + each] for low in range(0, len(ranks), each)]


def _name(ranks: Sequence[int]) -> str:
    return safe.middle(words.ranks_cell(ranks), 16)
