"""Plotly figures as plain data: a notebook draws them without an import.

Plotly itself is imported only where a figure object is asked for. Backgrounds are transparent and
text is grey, so that a figure reads on a light and on a dark page; colours are Okabe and Ito's, and
each kind of bar has its own pattern.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import formatting
from . import safe
from .displayable import Displayable

MIME = "application/vnd.plotly.v1+json"
#: Turns off the upload to a cloud, and the logo.
CONFIG = {"showSendToCloud": False, "displaylogo": False}
#: Bars in one figure; a longer time is drawn as slots.
MAX_BARS = 9_000

_GREY = "#808080"
_HOVER = 160
#: The text above a figure: characters and pixels of a line.
_TITLE_WIDTH, _LINE = 80, 18
#: The table below it: pixels of a row, pixels above the table, largest number of rows.
_ROW, _AXIS, _ROWS = 23.4, 55, 10

#: Of a column of that table, in characters: its text, and the space beside it.
_NARROWEST, _WIDEST, _PADDING = 5, 40, 2

Figure = dict[str, Any]


class Figured(Displayable):
    """Mixin for views that also have a figure: subclasses give `to_plotly`."""

    __slots__ = ()

    def to_plotly(self) -> Figure:
        """The figure as plain data: ``data``, ``layout`` and ``config``."""
        raise NotImplementedError

    def to_figure(self) -> Any:
        """A ``plotly.graph_objects.Figure``, to change or to save it."""
        import plotly.graph_objects as go

        plain = self.to_plotly()
        return go.Figure(data=plain["data"], layout=plain["layout"])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = dict(super()._repr_mimebundle_(include, exclude))
        if (not include or MIME in include) and (not exclude or MIME not in exclude):
            plain = self.to_plotly()
            if any(trace["type"] != "table" for trace in plain["data"]):  # else HTML shows more
                bundle[MIME] = plain
        return bundle


class Bar(NamedTuple):
    """A span of time: start and end in milliseconds, and what happened in it.

    ``offset`` and ``width`` are its position in the lane; None: those of its kind.
    """

    start: float
    end: float
    what: Any
    offset: float | None = None
    width: float | None = None


@dataclass(frozen=True)
class Kind:
    """The look of one kind of bar.

    Attributes
    ----------
    name
        In the legend.
    colour, pattern
        Okabe-Ito, and one of Plotly's pattern shapes.
    offset, width
        Position and height of its bars within the lane of a rank, which is 1 high.
    """

    name: str
    colour: str
    pattern: str = ""
    offset: float = 0.0
    width: float = 0.5


Lanes = dict[tuple[Kind, int], list[Bar]]  # the bars of a kind on a rank


def gantt(lanes: Lanes, ranks: Sequence[int], describe: Callable[[Any, int], str]) -> Figure:
    """Bars in one lane for each rank.

    Parameters
    ----------
    lanes
        The bars.
    ranks
        From top to bottom.
    describe
        Returns the text that a bar shows on hover: ``describe(what, rank)``.
    """
    row = {rank: at for at, rank in enumerate(ranks)}
    by_kind: dict[Kind, list[tuple[int, Bar]]] = {}
    for (kind, rank), bars in lanes.items():
        by_kind.setdefault(kind, []).extend((rank, bar) for bar in bars)
    data = []
    for kind, items in by_kind.items():
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": kind.name,
                "y": [round(row[rank] + (bar.offset or kind.offset), 3) for rank, bar in items],
                "base": [round(bar.start, 3) for _, bar in items],
                "x": [round(bar.end - bar.start, 3) for _, bar in items],
                "width": [round(bar.width or kind.width, 3) for _, bar in items],
                "marker": {
                    "color": kind.colour,
                    "line": {"width": 0},
                    "pattern": {
                        "shape": kind.pattern,
                        "fillmode": "overlay",
                        "fgcolor": "#000000",
                        "fgopacity": 0.4,
                        "size": 6,
                    },
                },
                "hovertext": [hover(describe(bar.what, rank)) for rank, bar in items],
                "hoverinfo": "text",
            }
        )
    axis = {
        "tickvals": list(row.values()),
        "ticktext": [formatting.ranks_text((rank,)) for rank in ranks],
        "range": [len(ranks) - 0.4, -0.6],
        "fixedrange": True,
        "zeroline": False,
    }
    return figure(data, height=140 + min(1200, 44 * len(ranks)), yaxis=axis, barmode="overlay")


def figure(data: Iterable[Mapping[str, Any]], *, height: int, **layout: Any) -> Figure:
    """A figure with the look that all figures share."""
    line = {"gridcolor": "rgba(128,128,128,0.25)", "linecolor": _GREY}
    settings = {
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": _GREY, "size": 12},
        "margin": {"l": 70, "r": 20, "t": 70, "b": 45},
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        "hoverlabel": {"align": "left"},
        "dragmode": "pan",
    }
    axes = {
        "xaxis": {
            **line,
            "zeroline": False,
            "title": {"text": "ms since the cell began", "standoff": 4},
        },
        "yaxis": {**line, **layout.pop("yaxis", {})},
    }
    return {
        "data": [dict(trace) for trace in data],
        "layout": settings | axes | layout,
        "config": dict(CONFIG),
    }


def framed(
    plain: Figure, words_above: Sequence[str], head: Sequence[str], rows: Sequence[Sequence[str]]
) -> Figure:
    """A figure with its summary in words above it, and its table below.

    A notebook that shows the figure shows nothing else of the view.
    """
    layout = plain["layout"]
    lines = [part for line in words_above for part in textwrap.wrap(line, _TITLE_WIDTH)]
    shown = [list(row) for row in rows[:_ROWS]]
    if len(rows) > _ROWS:
        shown.append([f"and {len(rows) - _ROWS} more", *[""] * (len(head) - 1)])
    picture = layout["height"] - layout["margin"]["t"] - layout["margin"]["b"]
    above, below = 60 + _LINE * len(lines), round(_ROW * (len(shown) + 1)) + 18
    area = picture + _AXIS + below
    layout["margin"] = {**layout["margin"], "t": above, "b": 10}
    layout["height"] = above + area + 10
    layout["yaxis"]["domain"] = [(below + _AXIS) / area, 1]
    layout["xaxis"]["anchor"] = "y"
    layout["title"] = {
        "text": "<br>".join(_escaped(line) for line in lines),
        "font": {"size": 13},
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": 1,
        "yref": "container",
        "yanchor": "top",
        "pad": {"t": 10},
    }
    cell = {
        "align": "left",
        "fill": {"color": "rgba(0,0,0,0)"},
        "line": {"color": "rgba(128,128,128,0.4)"},
        "font": {"color": _GREY, "size": 12},
        "height": _ROW,
    }
    columns = [[hover(row[at]) for row in shown] for at in range(len(head))]
    titles = [f"<b>{hover(name)}</b>" for name in head]
    plain["data"].append(
        {
            "type": "table",
            "columnwidth": [_width(texts) for texts in zip(head, *shown, strict=True)],
            "domain": {"x": [0, 1], "y": [0, below / area]},
            "header": {"values": titles, **cell},
            "cells": {"values": columns, **cell},
        }
    )
    return plain


def _width(texts: Sequence[str]) -> int:
    """The width of a column beside those of the others: its head should stand on one line."""
    return min(_WIDEST, max(_NARROWEST, *map(len, texts))) + _PADDING


def hover(text: str) -> str:
    """Foreign text for Plotly, which interprets some HTML, and formulas between dollars."""
    return _escaped(safe.middle(text, _HOVER))


def _escaped(text: str) -> str:
    return html.escape(text).replace("$", "&#36;")
