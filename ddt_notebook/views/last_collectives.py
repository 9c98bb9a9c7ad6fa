"""A picture of the last collectives before a hang: one lane for ranks that did the same.

It is a table and no SVG: it takes the colours of any theme, a screen reader reads it, and
JupyterLab's sanitizer keeps it (it would leave the words of an SVG without their places).
"""

from __future__ import annotations

from ..formatting import ranks_label
from ..model import Finding, Snapshot
from ..model.last_collectives import Entry, LastCollectives, Step, last_collectives
from . import html, marks, safe, sparklines, terminal, words
from .html import COLOURS, Markup

#: Collectives, and those that a terminal shows at least; more of them if 80 columns hold them.
COLUMNS, FEWEST = 10, 3
#: Lanes shown; the others are counted.
LANES = 8
_INDENT = 6

#: Where there is little room, the first ones are left out: the ranks parted at the last one.
_NARROW = Markup(
    "<style>"
    ".ddt-latest{container-type:inline-size}"
    "@container(max-width:32em){.ddt-latest tr>:nth-last-child(n+6):not(:first-child)"
    "{display:none}}"
    "@container(max-width:26em){.ddt-latest tr>:nth-last-child(n+5):not(:first-child)"
    "{display:none}.ddt-latest td:first-child{white-space:normal!important}}"
    "</style>"
)
_STYLES: dict[Step, str] = {
    "done": f"border-bottom:3px solid {COLOURS['ok']}",
    "issued": "border-bottom:3px dotted currentColor",
    "waiting": html.box("warning"),
    "failed": html.box("error"),
    "raised": html.box("error"),
    "died": html.box("error"),
    "missing": f"border:2px dashed {COLOURS['error']}",
}


def as_html(finding: Finding, snapshot: Snapshot) -> list[Markup]:
    """A table with a coloured box for each collective; empty if ranks do not wait in one."""
    found = last_collectives(snapshot, finding.waiting, COLUMNS)
    if found is None:
        return []
    roles = [marks.role(marks.of_call(found.group, number)) for number, _ in found.columns]
    head = ["", *_heads(found)]
    whole = snapshot.duration_s
    rows = [
        [_label(lane.ranks), *(_box(*one, whole) for one in zip(lane.entries, roles, strict=True))]
        for lane in found.lanes[:LANES]
    ]
    picture = html.tag("div", _NARROW, html.table(rows, head), role="latest")
    return [picture, *map(html.line, [*_rest(found), *_scale(found, snapshot)])]


def as_text(finding: Finding, snapshot: Snapshot) -> list[str]:
    """The same in a terminal, with as many collectives as fit."""
    found = last_collectives(snapshot, finding.waiting, COLUMNS)
    if found is not None and (fitting := _fitting(found, snapshot.duration_s)) < len(found.columns):
        found = last_collectives(snapshot, finding.waiting, fitting)
    if found is None:
        return []
    whole = snapshot.duration_s
    rows = [
        [_label(lane.ranks), *(_word(entry, whole) for entry in lane.entries)]
        for lane in found.lanes[:LANES]
    ]
    drawn = terminal.columns(rows, ["", *_heads(found)], indent=_INDENT)
    below = [*_rest(found), *_scale(found, snapshot)]
    return [*drawn, *(f"{' ' * _INDENT}{line}" for line in below)]


def _fitting(found: LastCollectives, whole: float) -> int:
    """How many of the columns fit a terminal, the last ones; at least `FEWEST`."""
    lanes = found.lanes[:LANES]
    entries = [
        max(len(_word(lane.entries[at], whole)) for lane in lanes)
        for at in range(len(found.columns))
    ]
    used, count = _INDENT + max(len(_label(lane.ranks)) for lane in lanes), 0
    columns = zip(found.columns, _heads(found), entries, strict=True)
    for (number, op), head, entry in reversed(list(columns)):
        first = used + terminal.GAP + max(entry, len(_head(number, op)))
        if count >= FEWEST and first > terminal.WIDTH:
            break
        used += terminal.GAP + max(entry, len(head))
        count += 1
    return count


def _heads(found: LastCollectives) -> list[str]:
    """The number of each collective; its operation, too, where it changes and for the last one."""
    ops = [op for _, op in found.columns]
    heads = [
        f"#{number}" if op == before else _head(number, op)
        for (number, op), before in zip(found.columns, ["", *ops[:-1]], strict=True)
    ]
    return [*heads[:-1], _head(*found.columns[-1])]


def _head(number: int, op: str) -> str:
    return f"#{number} {safe.one_line(op, 40)}"


def _label(ranks: tuple[int, ...]) -> str:
    return safe.middle(ranks_label(ranks), 24)


def _word(entry: Entry, whole: float) -> str:
    """What ranks did; ``whole`` is how long the cell ran, in seconds."""
    match entry.step:
        case "done":
            word = "✓"
        case "issued":
            word = "issued"
        case "waiting":
            word = "waiting"
            if entry.waited_s is not None:
                drawn = sparklines.bar(entry.waited_s, whole)
                word += f" {words.duration(entry.waited_s)} {drawn}".rstrip()
        case "failed":
            word = "✖ failed"
        case "raised":
            word = "✖ raised"
        case "died":
            word = "✖ died"
        case "missing":
            word = "never entered"
    other = [entry.op] if entry.op else entry.passed
    return " · ".join([word, *(safe.one_line(what, 40) for what in other)])


def _box(entry: Entry, role: str, whole: float) -> Markup:
    style = f"{_STYLES[entry.step]};padding:0 8px;white-space:nowrap"
    return html.tag("div", _word(entry, whole), style=style, role=role)


def _rest(found: LastCollectives) -> list[str]:
    hidden = found.lanes[LANES:]
    ranks = sum(len(lane.ranks) for lane in hidden)
    return [f"and {words.count(ranks, 'more rank')}"] if hidden else []


def _scale(found: LastCollectives, snapshot: Snapshot) -> list[str]:
    """What the bars mean."""
    whole = snapshot.duration_s
    entries = (entry for lane in found.lanes[:LANES] for entry in lane.entries)
    if not any(entry.waited_s is not None and sparklines.bar(0, whole) for entry in entries):
        return []
    return [f"█ how much of the {words.ran(snapshot)}'s {words.duration(whole)} they waited"]
