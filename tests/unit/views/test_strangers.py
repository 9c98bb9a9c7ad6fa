"""Whatever a run, a file or a log contains, views show it as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

import ddt_notebook as ddt
from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Snapshot
from ddt_notebook.views import exported_page, panel
from ddt_notebook.views.registry import VIEWS
from ddt_notebook.views.report import show

from ...strangers import CORPUS, infected, runs, texts_in, unsafe
from .test_html import KEPT

#: Elements of our own pages and pictures.
OURS = KEPT | {"style", "svg", "g", "rect", "text", "line", "path", "polyline", "title", "code"}
OURS |= {"circle", "polygon", "html", "head", "meta", "body", "main", "h1", "h2", "p", "section"}
OURS |= {"br", "i", "ol", "a", "defs", "clippath", "pattern"}


class Elements(HTMLParser):
    """Collects what a browser could execute or load."""

    def __init__(self) -> None:
        super().__init__()
        self.strange: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in OURS:
            self.strange.add(tag)
        for name, value in attrs:
            if name.startswith("on") or name in ("src", "srcdoc", "x", "http"):
                self.strange.add(name)
            if name == "href" and "javascript:" in (value or ""):
                self.strange.add(str(value))


def strange(html: str) -> set[str]:
    """Elements and attributes of a page that are not ours."""
    parser = Elements()
    parser.feed(html)
    parser.close()
    return parser.strange


def outputs(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    """What a terminal shows, what a browser shows, and data for a front end."""
    report = diagnose(snapshot)
    shown = show(report, snapshot)
    for view in (shown, *(one.of(snapshot) for one in VIEWS.values())):
        bundle = view._repr_mimebundle_()
        yield "text", bundle.pop("text/plain")
        yield "html", bundle.pop("text/html")
        yield "figure", bundle
        if hasattr(view, "to_json"):
            json.dumps(view.to_json())
    yield "text", str(ddt.compare(snapshot, snapshot))
    yield "html", ddt.compare(snapshot, snapshot).to_html()
    yield "html", exported_page.page(snapshot)
    yield "data", panel.of_report(report, snapshot)


@pytest.mark.parametrize("stranger", CORPUS)
def test_strings_of_strangers_stay_text_in_every_view(stranger: str) -> None:
    for name, plain in runs():
        for kind, output in outputs(infected(plain, CORPUS[stranger])):
            for text in texts_in(output):
                assert not unsafe(text), (name, kind)
                if kind == "html":
                    assert not strange(text), name
            if kind == "figure" and output:
                # Plotly interprets some HTML in the texts of a figure
                assert not any("<a " in t or "<script" in t for t in texts_in(output)), name


@pytest.mark.parametrize("stranger", CORPUS)
def test_a_pasted_text_stays_text(stranger: str) -> None:
    text = f"RuntimeError: Connection closed by peer {CORPUS[stranger]}\n{CORPUS[stranger]}"
    report = ddt.diagnose_text(text)
    assert not unsafe(report.to_text())
    assert not strange(report.to_html())
    try:
        page = ddt.explain(text[:5000])
    except ddt.DdtError as error:
        shown = str(error), ""
    else:
        shown = page.to_text(), page.to_html()
    assert not unsafe(shown[0])
    assert not strange(shown[1])


@pytest.mark.parametrize("stranger", CORPUS)
def test_the_code_of_a_stranger_stays_text(stranger: str) -> None:
    quoted = repr(CORPUS[stranger])
    code = (
        f"if rank == 0:  # {CORPUS[stranger].splitlines()[0]}\n    dist.all_reduce(x, {quoted})\n"
    )
    found = ddt.lint(code)
    assert not unsafe(found.to_text())
    assert not strange(found.to_html())
