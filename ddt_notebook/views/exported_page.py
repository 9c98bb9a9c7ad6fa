"""A whole run as a document: the diagnosis, and every view for which something was recorded."""

from __future__ import annotations

from collections.abc import Iterator

from ..diagnosis import diagnose
from ..model import Snapshot
from . import flags, html, safe, viewer, words
from .registry import below_diagnosis
from .report import show
from .run_view import RunView

#: The browser fetches nothing and runs no script but the viewer's, whatever the page contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src {}"
_STYLE = (
    ":root{color-scheme:light dark}"
    "body{background:Canvas;color:CanvasText;font-family:system-ui,sans-serif;"
    "line-height:1.45;margin:2em auto;max-width:76em;padding:0 1.5em}"
    "h1{font-size:1.5em}h2{border-bottom:1px solid #808080;font-size:1.15em;margin:2em 0 .5em}"
    "section{overflow-x:auto}"
    "@media(max-width:32em){body{padding:0 .6em}}"
)


def recorded(snapshot: Snapshot) -> Iterator[RunView]:
    """The views for which something was recorded."""
    for view in below_diagnosis():
        if view.is_in(snapshot):
            yield view.of(snapshot)


def parts(snapshot: Snapshot) -> list[tuple[str, str]]:
    """The diagnosis without a title, and each view under its name and what it points out first."""
    sections = [("", str(show(diagnose(snapshot), snapshot).to_html()))]
    for view in recorded(snapshot):
        odd = flags.as_lines(view.flags, "")[:1] if view.flags else []
        sections.append((" · ".join([view.name, *odd]), str(view.to_html())))
    return sections


def page(snapshot: Snapshot) -> str:
    """The whole document, unfolded, as one HTML page that needs no network.

    Where scripts run, it also has the interactive viewer.
    """
    about = [words.count(snapshot.world_size, "rank"), snapshot.backend, snapshot.device]
    about += [f"PyTorch {snapshot.torch_version}"] * bool(snapshot.torch_version)
    about += [snapshot.created[:19].replace("T", " ")] * bool(snapshot.created)
    title = html.escape(f"Report on {safe.one_line(snapshot.cell.title, 120)}")
    explorer = viewer.section(snapshot)
    body = html.tag(
        "main",
        html.tag("h1", title),
        html.tag("p", " · ".join(filter(None, about))),
        _section("Diagnosis", show(diagnose(snapshot), snapshot).to_html()),
        explorer,
        *(_section(view.name.capitalize(), view.to_html()) for view in recorded(snapshot)),
    )
    script = viewer.script() if explorer else ""
    policy = _POLICY.format(viewer.policy() if explorer else "'none'")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n"
        f"{script}</body>\n</html>\n"
    )


def _section(name: str, shown: str) -> html.Markup:
    # what is wider than the page scrolls, also by keys
    return html.Markup(f'<section tabindex="0">{html.tag("h2", name)}{shown}</section>')
