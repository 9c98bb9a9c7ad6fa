"""Draw the pictures of the lessons from ``notebooks/pictures/pictures.toml``.

    python tools/lesson_pictures.py

Each picture has rows with a label and segments ``[from, to, kind, text]``; the axis goes from 0 to
100. A row without segments is a heading. Colours repeat what words and patterns say, and the ground
is white, so that a picture reads on a dark page, too.
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "notebooks" / "pictures"
LABEL, WIDTH, ROW, EDGE = 150, 610, 34, 10
#: Pixels that a character of 12 pixels needs at most on average.
CHARACTER = 6.4
_SHORT = 5
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
    'height="{height}" role="img" font-family="system-ui, sans-serif" font-size="12">'
)
#: The ground of waiting, hatched.
_WAITS = (
    '<pattern id="waits" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="6" height="6" fill="#F4F4F4"/>'
    '<rect width="2" height="6" fill="#D8D8D8"/></pattern>'
)
#: Ground, border and colour of the text of each kind of segment.
KINDS = {
    "work": ("#CFE6F5", "#0072B2", "#12384F"),
    "good": ("#CDEBE0", "#009E73", "#0B4A37"),
    "bad": ("#F8D9C8", "#D55E00", "#6B2F00"),
    "wait": ("url(#waits)", "#767676", "#333333"),
    "meet": ("#EBD5E3", "#A8577F", "#55203B"),
    "none": ("#FFFFFF", "#B0B0B0", "#555555"),
    "text": ("none", "none", "#222222"),
}


def pictures() -> dict[str, dict[str, Any]]:
    """The pictures by name."""
    return tomllib.loads((FOLDER / "pictures.toml").read_text(encoding="utf-8"))


def drawn(picture: dict[str, Any]) -> str:
    """The SVG of one picture."""
    rows = picture["rows"]
    height = 2 * EDGE + ROW * len(rows)
    whole = LABEL + WIDTH + 2 * EDGE
    parts = [
        _HEAD.format(width=whole, height=height),
        f"<title>{escape(picture['alt'])}</title>",
        _WAITS,
        f'<rect width="{whole}" height="{height}" rx="6" fill="#FFFFFF"/>',
    ]
    for at, (label, *segments) in enumerate(rows):
        top = EDGE + at * ROW
        weight = "" if segments else ' font-weight="bold"'
        parts.append(_text(EDGE, top, label, "#222222", weight))
        parts += [_segment(top, *segment) for segment in segments]
    return "\n".join([*parts, "</svg>", ""])


def too_long(picture: dict[str, Any]) -> list[str]:
    """The texts that do not fit into their places."""
    return [
        text
        for _, *segments in picture["rows"]
        for left, right, _, text in segments
        if len(text) * CHARACTER > (right - left) * WIDTH / 100
    ] + [row[0] for row in picture["rows"] if row[1:] and len(row[0]) * CHARACTER > LABEL]


def _segment(top: int, left: float, right: float, kind: str, text: str) -> str:
    ground, border, colour = KINDS[kind]
    x, width = EDGE + LABEL + left * WIDTH / 100, (right - left) * WIDTH / 100
    box = (
        f'<rect x="{x:.0f}" y="{top + 3}" width="{width:.0f}" height="{ROW - 6}" rx="3" '
        f'fill="{ground}" stroke="{border}"/>'
    )
    where = x + width / 2 if kind != "text" else x + _SHORT
    anchor = ' text-anchor="middle"' if kind != "text" else ""
    return box + _text(where, top, text, colour, anchor)


def _text(x: float, top: int, text: str, colour: str, more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{top + ROW // 2 + 4}" fill="{colour}"{more}>{escape(text)}</text>'


if __name__ == "__main__":
    for name, picture in pictures().items():
        (FOLDER / f"{name}.svg").write_text(drawn(picture), encoding="utf-8")
