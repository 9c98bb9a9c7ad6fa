"""Building blocks of the HTML views.

A notebook that was not yet run by its reader is shown through JupyterLab's sanitizer: it drops
``<style>``, SVG, CSS variables and aria attributes, and keeps tables, ``<details>`` and literal
inline styles. So every view is complete with those alone: its text inherits its colour, its mid
tones are readable on white and on black, and the style sheet only refines it. Code hosts that draw
notebooks also drop inline styles and classes: pictures are of ``samp`` and ``pre``, which have a
monospaced font of their own, with spaces that do not collapse.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from ..symptoms import lessons
from . import safe
from .source_positions import SourceLine

#: Okabe-Ito colours for dark text on them, and a grey that is readable on white and on black.
COLOURS = {
    "error": "#D55E00",
    "warning": "#E69F00",
    "hint": "#56B4E9",
    "ok": "#009E73",
    "line": "#808080",
}
_CELL = "text-align:left;vertical-align:top;padding:2px 14px 2px 0;white-space:normal"
#: A cell of at most this many characters, such as ``rank 1 +2.17 ms``, stays on one line.
_SHORT = 20
#: An amount, such as ``2.17 ms`` or ``▄ 1.2 MB``: it stays on one line on a narrow page, too.
_AMOUNT = re.compile(r"(?:[▁-█≤] )?[\d.,]+ ?\S{0,4}")
#: Where code in a cell may be wrapped: before the name of an argument or an attribute.
_NAMES = re.compile(r"([(.\[])(?=[^\W\d])")
#: So does a title of a column of at most this many characters.
_BRIEF = 8
#: The least width of a longer cell, in its characters: on a narrow page, which then scrolls, it has
#: about two lines. As limits in ``em``.
_TWO_LINES, _NARROWEST, _WIDEST = 3, 9, 22
_MONO = "font-family:monospace;font-size:0.95em"


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: str) -> Markup:
    """Foreign text as HTML; markup stays as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(safe.clean(text)))


def tag(name: str, *content: str, style: str = "", role: str = "", title: str = "") -> Markup:
    """An element; ``role`` is its name in the style sheet, ``title`` its tooltip."""
    attributes = f' class="ddt-{role}"' if role else ""
    attributes += f' title="{escape(title)}"' if title else ""
    attributes += f' style="{style}"' if style else ""
    return Markup(f"<{name}{attributes}>{''.join(map(escape, content))}</{name}>")


def view(*content: str) -> Markup:
    """The outermost element of every view, with the style sheet."""
    sheet = Markup(f"<style>{_style_sheet()}</style>")
    return tag("div", sheet, *content, style="max-width:72em;line-height:1.45", role="view")


@functools.cache
def _style_sheet() -> str:
    lines = (Path(__file__).parent / "assets" / "views.css").read_text(encoding="utf-8")
    return "".join(line.strip() for line in lines.splitlines() if line.strip())


def chip(symbol: str, word: str, kind: str) -> Markup:
    """A state: its sign, its word and its colour."""
    style = (
        f"background-color:{COLOURS[kind]};color:#000000;padding:1px 8px;"
        "border-radius:3px;font-weight:bold;white-space:nowrap"
    )
    return tag("span", f"{symbol} {word}", style=style, role="chip")


def box(kind: str) -> str:
    """The style of a box in a picture; high contrast shows its border, but no coloured ground."""
    colour = COLOURS[kind]
    return f"background-color:{colour};color:#000000;border:2px solid {colour}"


def card(kind: str, *content: str) -> Markup:
    """A block with a coloured edge."""
    style = f"border-left:4px solid {COLOURS[kind]};padding:2px 0 4px 12px;margin:6px 0"
    return tag("div", *content, style=style, role="card")


def prose(text: str) -> Markup:
    """A sentence in which `` `code` `` stands between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick without its partner
        return escape(text)
    return Markup("".join(code(p) if at % 2 else escape(p) for at, p in enumerate(parts)))


def code(text: str) -> Markup:
    """A piece of code within a line."""
    return tag("samp", safe.one_line(text), style=f"{_MONO};white-space:pre-wrap", role="code")


def lesson(path: str) -> Markup:
    """A lesson by its path: a link, if the current folder, that of the notebook, is beside it."""
    where = lessons.address(path, Path.cwd())
    text = code(path)
    return Markup(f'lesson <a href="{escape(where)}">{text}</a>' if where else f"lesson {text}")


def name(text: str, limit: int = 48) -> Markup:
    """A foreign name, shortened in the middle; the tooltip shows all of it.

    On a narrow page, lines end after its dots.
    """
    short = safe.middle(text, limit)
    whole = safe.one_line(text) if short != text else ""
    wrap = "pre" if len(short) <= _SHORT else "pre-wrap"
    parts = Markup(escape(short).replace(".", ".<wbr>"))
    return tag("samp", parts, style=f"{_MONO};white-space:{wrap}", role="code", title=whole)


def pre(text: str) -> Markup:
    """Foreign text with its line breaks, bounded."""
    style = (
        f"{_MONO};white-space:pre-wrap;line-height:1.35;margin:2px 0;padding:4px 8px;"
        f"border-left:2px solid {COLOURS['line']}"
    )
    return tag("pre", safe.block(text), style=style, role="pre")


def table(
    rows: Iterable[Sequence[str]],
    head: Sequence[str] = (),
    *,
    roles: Iterable[str] = (),
    long: bool = False,
) -> Markup:
    """A table of text or markup, aligned left.

    Parameters
    ----------
    rows, head
        The cells.
    roles
        The role of each row in the style sheet; empty for a row without one.
    long
        Whether it has hundreds of rows: then only the style sheet aligns the cells, since a style
        in each one is larger than what it shows.
    """
    bold = f";font-weight:bold;border-bottom:1px solid {COLOURS['line']}"
    names = [
        tag("th" if cell else "td", cell, style=(_style(cell) if _is_brief(cell) else _CELL) + bold)
        for cell in head
    ]
    top = tag("tr", *names) if head else Markup()
    body = [
        tag("tr", *(tag("td", cell) if long else _cell(cell) for cell in row), role=role)
        for row, role in zip_longest(rows, roles, fillvalue="")
    ]
    return tag(
        "table",
        Markup(f"<thead>{top}</thead>" if head else ""),
        tag("tbody", *body),
        style="border-collapse:collapse;margin:2px 0;font-size:1em",
        role="table ddt-long" if long else "table",
    )


def _is_brief(title: str) -> bool:
    return len(title) <= _BRIEF


def _cell(cell: str) -> Markup:
    amount = not isinstance(cell, Markup) and _AMOUNT.fullmatch(cell)
    shown = cell if isinstance(cell, Markup) or len(cell) <= _SHORT else _breakable(cell)
    return tag("td", shown, style=_style(cell), role="amount" if amount else "")


def _breakable(text: str) -> Markup:
    """Text whose code may be wrapped before a name, and so not within it."""
    return Markup(_NAMES.sub(r"\1<wbr>", escape(text)))


def _style(cell: str) -> str:
    if isinstance(cell, Markup):
        return _CELL
    if len(cell) > _SHORT:
        width = min(max(len(cell) // _TWO_LINES, _NARROWEST), _WIDEST)
        return f"{_CELL};min-width:{width}em"
    return _CELL.replace("white-space:normal", "white-space:nowrap")


def details(summary: str, *content: str) -> Markup:
    """Content that opens on a click."""
    return tag(
        "details",
        tag("summary", summary, style="cursor:pointer"),
        *content,
        style="margin:2px 0",
        role="details",
    )


def line(*content: str) -> Markup:
    """A paragraph without wide margins."""
    return tag("div", *content, style="margin:2px 0", role="line")


def heading(text: str) -> Markup:
    """The title of a view."""
    return line(tag("b", text))


def excerpt(lines: Sequence[SourceLine]) -> Markup:
    """Numbered source lines; an arrow and the ranks mark the lines at which ranks stood."""
    width = max((len(str(line.number)) for line in lines), default=1)
    code_width = max((len(line.code) for line in lines if line.who), default=0)
    text = []
    for line in lines:
        if line.number is None:
            text.append(escape("⋮".rjust(width + 2)))
        elif line.who:
            row = f"→ {line.number:>{width}}  {line.code:<{code_width}}   "
            who = tag("span", f"◀ {line.who}", style="display:inline-block")  # wrapped as a whole
            text.append(tag("b", row, who, role="marked"))
        else:
            text.append(escape(f"  {line.number:>{width}}  {line.code}"))
    style = (
        # wrapped, since the ranks that stood there are at the end of the line
        f"{_MONO};white-space:pre-wrap;line-height:1.35;margin:2px 0 6px 0;padding:4px 8px;"
        f"overflow-wrap:anywhere;border-left:2px solid {COLOURS['line']}"
    )
    return tag("pre", Markup("\n".join(text)), style=style, role="pre")
