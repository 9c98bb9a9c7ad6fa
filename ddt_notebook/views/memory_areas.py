"""A picture of one rank's memory over time: what each kind took above the process's baseline.

The height of the picture was measured. The kinds were counted after the first forward passes and
steps and at the end; between two counts, the earlier one holds. What no count explains is the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.memory import KINDS, MemoryCount, RankMemory
from . import html, sparklines, words
from .html import Markup

#: Rows and columns of the picture.
ROWS = 12
COLUMNS = sparklines.SLOTS
#: The cap is drawn if it is at most this many times as high as the peak.
_NEAR = 1.5
_REST, _CAP, _PEAK = "the rest", "-", "↑"
#: A rise by less than this was not noted with its line.
_RISE = 1.01
#: Sign, colour and ink of each kind; the signs are the first letters where these differ.
_LOOKS = {
    "parameters": ("p", "#0072B2", "#FFFFFF"),
    "gradients": ("g", "#56B4E9", "#000000"),
    "optimizer state": ("o", "#CC79A7", "#000000"),
    "buffers": ("b", "#F0E442", "#000000"),
    "DDP buckets": ("D", "#E69F00", "#000000"),
    "activations": ("a", "#009E73", "#000000"),
    "tensors": ("t", "#D55E00", "#000000"),
    _REST: (".", "#BBBBBB", "#000000"),
}


@dataclass(frozen=True, slots=True)
class Areas:
    """The picture as rows of signs, and what stands beside them.

    Attributes
    ----------
    rows
        The size at the top of each row that has one, and the row's signs, from top to bottom.
    kinds
        The signs and their kinds.
    height
        What the height means.
    peak
        When the memory was highest and at which line; empty if that is not known.
    """

    rows: tuple[tuple[str, str], ...]
    kinds: tuple[tuple[str, str], ...]
    height: str
    peak: str

    @property
    def legend(self) -> str:
        """The signs and their kinds, and what the height means."""
        return " · ".join([*(f"{sign} {kind}" for sign, kind in self.kinds), self.height])


def areas(
    memory: RankMemory, course: Sequence[int], cap: int | None, what: str = "resident memory"
) -> Areas | None:
    """The picture of a rank; None if it was sampled too seldom or its memory did not change.

    Parameters
    ----------
    memory
        With its samples and counts.
    course
        The samples to draw, in kibibytes.
    cap
        The limit on what is drawn, in bytes.
    what
        The quantity that was sampled.
    """
    if len(course) < 2 or memory.at_ms[-1] <= memory.at_ms[0]:
        return None
    ends = [memory.at_ms[-1] * (at + 1) / COLUMNS for at in range(COLUMNS)]
    totals = _highest_in(memory.at_ms, course, ends)
    held = [_held(memory.counts, end) for end in ends]
    base = min(max(0, t - sum(parts.values())) for t, parts in zip(totals, held, strict=True))
    top = max(totals)
    drawn_cap = cap is not None and top < cap <= _NEAR * top
    if drawn_cap and cap is not None:
        top = cap
    unit = (top - base) / ROWS
    if unit <= 0:
        return None
    columns = [
        _column(parts, total - base, unit) for total, parts in zip(totals, held, strict=True)
    ]
    signs = ["".join(column[row] for column in columns) for row in reversed(range(ROWS))]
    if drawn_cap:
        signs.insert(0, _CAP * COLUMNS)
    labels = [words.size(top), *[""] * (len(signs) - 2), words.size(round(base))]
    at_ms = _highest_ms(memory, course)
    rows = [*zip(labels, signs, strict=True), *_below(memory, at_ms)]
    used = dict.fromkeys(sign for row in signs for sign in row)
    kinds = [(sign, kind) for kind, (sign, _, _) in _LOOKS.items() if sign in used]
    kinds += [(_CAP, "the cap")] if drawn_cap else []
    above = f"above {words.size(round(base))}, which the process needs without them"
    height = f"the height is {what} {above}; a row is {words.size(round(unit))}"
    drawn = {kind for _, kind in kinds}
    if low := [kind for kind, size in held[-1].items() if size and kind not in drawn]:
        height += f"; too low to be shown: {', '.join(low)}"
    return Areas(tuple(rows), tuple(kinds), height, _peak(memory, course, at_ms))


def as_html(found: Areas) -> Markup:
    """The picture: rows of signs without gaps, and what stands beside them."""
    colours = {sign: colour for sign, colour, _ in _LOOKS.values()}
    inks = {sign: ink for sign, _, ink in _LOOKS.values()}
    width = max(len(label) for label, _ in found.rows)
    rows = []
    for label, signs in found.rows:
        drawn = set(signs) <= {" ", *colours}  # and not the cap or the ruler
        row = sparklines.painted(signs, colours, inks) if drawn else html.escape(signs)
        beside = f"{label.rjust(width)}  ".replace(" ", sparklines.BLANK)
        rows.append(Markup(f"{html.escape(beside)}{row}"))
    # backgrounds are as high as the letters, so that rows touch at this height of a line
    style = (
        "font-family:monospace;white-space:pre;line-height:1.15;margin:0;padding:0;"
        "background:transparent;border:0"
    )
    return html.tag("pre", Markup("\n".join(rows)), style=style, role="code ddt-areas")


def legend_as_html(found: Areas) -> Markup:
    """The legend, with each sign as it is coloured in the picture."""
    colours = {sign: colour for sign, colour, _ in _LOOKS.values()}
    inks = {sign: ink for sign, _, ink in _LOOKS.values()}
    shown = [
        Markup(f"{sparklines.painted(sign, colours, inks)} {html.escape(kind)}")
        for sign, kind in found.kinds
    ]
    return Markup(" · ".join([*shown, html.escape(found.height)]))


def as_text(found: Areas) -> list[str]:
    """The picture in a terminal."""
    width = max(len(label) for label, _ in found.rows)
    return [f"  {label:>{width}}  {row}".rstrip() for label, row in found.rows]


def _highest_in(at_ms: Sequence[int], course: Sequence[int], ends: Sequence[float]) -> list[int]:
    """The highest sample of each slot of time in bytes; that before it in a slot without one."""
    found, done = [], 0
    for end in ends:
        after = max(bisect_right(at_ms, end), 1)
        inside = course[done:after] or course[after - 1 : after]
        found.append(max(inside) * 1024)
        done = after
    return found


def _held(counts: Sequence[MemoryCount], until_ms: float) -> dict[str, int]:
    """What the rank held in a slot of time, as the last count before its end shows.

    Each step makes activations and frees them again, within much less than a slot. So those that
    one of the first steps had are drawn from there on.
    """
    known = [count.parts for count in counts if count.at_ms <= until_ms]
    if not known:
        return {}
    activations = max(parts.get("activations", 0) for parts in known)
    return {str(kind): known[-1].get(kind, 0) for kind in KINDS} | {"activations": activations}


def _column(parts: dict[str, int], height: int, unit: float) -> str:
    """The signs of one slot of time from bottom to top."""
    column, done = "", 0.0
    for kind, size in [*parts.items(), (_REST, height)]:
        done = min(done + size, height)
        column = column.ljust(round(done / unit), _LOOKS[kind][0])
    return column.ljust(ROWS)


def _highest_ms(memory: RankMemory, course: Sequence[int]) -> int:
    """When the memory was at the highest: at its last rise, unless it was higher later."""
    noted = memory.highest_at_ms
    if noted is not None:
        near = course[max(bisect_right(memory.at_ms, noted), 1) - 1]
        if near * _RISE >= max(course):
            return noted
    return memory.at_ms[course.index(max(course))]


def _below(memory: RankMemory, highest_ms: int) -> list[tuple[str, str]]:
    """The mark of the peak and the ruler of time."""
    length_ms = memory.at_ms[-1]
    at = min(COLUMNS - 1, int(COLUMNS * highest_ms / length_ms))
    return [("", f"{_PEAK:>{at + 1}}"), ("", sparklines.ruler(length_ms / 1e3))]


def _peak(memory: RankMemory, course: Sequence[int], highest_ms: int) -> str:
    size = words.size(max(course) * 1024)
    when = words.duration(highest_ms / 1e3)
    said = f"{_PEAK} {words.ranks([memory.rank])} was at the highest, {size}, after {when}"
    if memory.highest_at_ms == highest_ms and memory.highest_where is not None:
        return f"{said}, at {memory.highest_where.label}"
    return said
