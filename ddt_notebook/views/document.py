"""A whole run as a document: the diagnosis, and every view of which something was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ..diagnosis import diagnose
from ..model import Snapshot
from . import flags, html, words
from .collectives import CollectivesView
from .flags import Flag
from .memory import MemoryView
from .parity import ParityView
from .partition import PartitionView
from .placement import PlacementView
from .report import show
from .timeline import TimelineView


class RunView(Protocol):
    """A view of a run."""

    flags: list[Flag]

    def to_html(self) -> str:
        """The whole view."""


#: Each view, and the field of the snapshot that it draws.
VIEWS: dict[str, tuple[Callable[[Snapshot], RunView], str]] = {
    "collectives": (CollectivesView, "ranks"),
    "timeline": (TimelineView, "ranks"),
    "placement": (PlacementView, "placement"),
    "memory": (MemoryView, "memory"),
    "partition": (PartitionView, "partition"),
    "parity": (ParityView, "parity"),
}
#: When partition and parity are recorded without being asked for.
_UNASKED = {
    "partition": "a run records it in which a loader was used or a model was trained",
    "parity": "a run records it in which a model was trained",
}
#: Nothing is fetched and no script runs, whatever stands in the page.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{background:Canvas;color:CanvasText;font-family:system-ui,sans-serif;"
    "line-height:1.45;margin:2em auto;max-width:76em;padding:0 1.5em}"
    "h1{font-size:1.5em}h2{border-bottom:1px solid #808080;font-size:1.15em;margin:2em 0 .5em}"
    "section{overflow-x:auto}"
)


def recorded(snapshot: Snapshot) -> Iterator[tuple[str, RunView]]:
    """Name and view of all of which something was recorded."""
    for name, (view, field) in VIEWS.items():
        if getattr(snapshot, field):
            yield name, view(snapshot)


def missing(name: str, snapshot: Snapshot) -> str:
    """Why there is nothing to draw for a view, and what to do; empty if there is something."""
    if getattr(snapshot, VIEWS[name][1]):
        return ""
    unasked = f"; {_UNASKED[name]}" if name in _UNASKED else ""
    return (
        f"nothing was recorded of {name} in cell[{snapshot.cell.number}]{unasked}: put %%ddt_debug "
        f"on top of the cell, or ask the ranks how they are now with %ddt_show {name}"
    )


def parts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """The diagnosis without a title, and each view under its name and what it points out first."""
    told = [("", str(show(diagnose(snapshot), snapshot).to_html()))]
    for name, view in recorded(snapshot):
        odd = flags.as_lines(view.flags, "")[:1] if view.flags else []
        told.append((" · ".join([name, *odd]), str(view.to_html())))
    return told


def page(snapshot: Snapshot) -> str:
    """All of it, unfolded, as one HTML page that needs neither a network nor scripts."""
    about = [words.count(snapshot.world_size, "rank"), snapshot.backend, snapshot.device]
    about += [f"PyTorch {snapshot.torch_version}"] * bool(snapshot.torch_version)
    about += [snapshot.created[:19].replace("T", " ")] * bool(snapshot.created)
    title = html.escape(f"Report on cell[{snapshot.cell.number}]")
    sections = [("diagnosis", show(diagnose(snapshot), snapshot).to_html())]
    sections += [(name, view.to_html()) for name, view in recorded(snapshot)]
    body = html.tag(
        "main",
        html.tag("h1", title),
        html.tag("p", " · ".join(filter(None, about))),
        *(
            html.tag("section", html.tag("h2", name), html.Markup(shown))
            for name, shown in sections
        ),
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n"
        "</html>\n"
    )
