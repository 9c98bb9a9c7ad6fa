"""Each view says the same in every medium: terminal, notebook, saved page, report and guide.

The runs are those of the guide's gallery: real ones, healthy and broken.
"""

from __future__ import annotations

import importlib
import re
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ddt_notebook.views import exported_page
from ddt_notebook.views.registry import below_diagnosis

from .test_html import KEPT, parsed

nbformat = pytest.importorskip("nbformat")
exporters = pytest.importorskip("nbconvert.exporters")

DOCS = Path(__file__).resolve().parents[3] / "docs"
#: Amounts and places, such as ``54 ms``, ``1.2 MB``, ``#5`` or ``13``.
AMOUNT = re.compile(r"\d[\d.,]*\d|\d")
#: The rows of a picture in a terminal.
STRIP = re.compile(r"│([^│]+)│")
LARGEST = 60_000
HIDDEN, INLINE = ("style", "script"), ("span", "b", "i", "code", "samp", "wbr")
#: An element of a monospaced font in a page without any style, and its signs.
FIXED = re.compile(r"<(samp|pre)>(.*?)</\1>", re.DOTALL)


def gallery() -> ModuleType:
    """The module that makes the page; it stands beside Sphinx's configuration."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("gallery")
    finally:
        sys.path.remove(str(DOCS))


GALLERY = gallery()
PICTURES = [(one, which) for one in GALLERY.pictures() for which in GALLERY.WHICH]
each_picture = pytest.mark.parametrize(
    ("picture", "which"), PICTURES, ids=[f"{one['name']}-{which}" for one, which in PICTURES]
)


class Page(HTMLParser):
    """The text of a page without scripts and styles; blocks and cells stand apart."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = 0
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in HIDDEN
        self.text += " " * (tag not in INLINE)

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in HIDDEN
        self.text += " " * (tag not in INLINE)

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.text += data


def text_of(html: str) -> str:
    """What a page says, with single blanks."""
    page = Page()
    page.feed(html)
    return " ".join(page.text.split())


def amounts(text: str) -> set[str]:
    return set(AMOUNT.findall(text))


def converted(view: Any) -> str:
    """The page that nbconvert makes of a notebook that shows the view."""
    bundle = {k: v for k, v in view._repr_mimebundle_().items() if isinstance(v, str)}
    output = nbformat.v4.new_output("display_data", data=bundle)
    cell = nbformat.v4.new_code_cell("view", outputs=[output])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    body: str = exporters.HTMLExporter(template_name="basic").from_notebook_node(notebook)[0]
    return body


def test_the_gallery_has_every_view() -> None:
    shown = {picture["view"] for picture in GALLERY.pictures()}
    assert shown == {"diagnosis", *(view.name for view in below_diagnosis())}


@each_picture
def test_a_terminal_says_nothing_that_a_page_does_not(picture: dict[str, Any], which: str) -> None:
    view = GALLERY.view(picture, which)
    text, page = str(view), text_of(view.to_html())
    assert amounts(text) <= amounts(page)
    for strip in STRIP.findall(text):
        assert " ".join(strip.split()) in page
    for sign in ("≠ first", "never entered", "▲", "✖"):
        assert (sign in text) <= (sign in page)
    assert text.count("≠") == page.count("≠")


@each_picture
def test_notebook_saved_page_and_report_show_the_same(picture: dict[str, Any], which: str) -> None:
    view, run = GALLERY.view(picture, which), GALLERY.snapshot(picture, which)
    notebook = text_of(view._repr_mimebundle_()["text/html"])
    assert notebook in text_of(converted(view))
    assert notebook in text_of(exported_page.page(run))
    beside = {
        title.partition(" ·")[0] or "diagnosis": html for title, html in exported_page.parts(run)
    }
    assert notebook == text_of(beside[picture["view"]])  # JupyterLab draws these


@each_picture
def test_a_code_host_without_styles_keeps_the_rows_of_signs(
    picture: dict[str, Any], which: str
) -> None:
    """It drops style sheets, inline styles and classes; then spaces collapse outside ``pre``."""
    view = GALLERY.view(picture, which)
    page = re.sub(r"<style>.*?</style>", "", view.to_html(), flags=re.DOTALL)
    page = re.sub(r' (?:style|class)="[^"]*"', "", page)
    rows = [
        row
        for element, signs in FIXED.findall(page)
        for shown in [re.sub("<[^>]*>", "", signs)]
        for row in (
            shown.splitlines()
            if element == "pre"
            else [re.sub("[ \t\n]+", " ", shown.strip(" \n"))]
        )
    ]
    known = [unescape(row).replace("\N{NO-BREAK SPACE}", " ").rstrip() for row in rows]
    for strip in STRIP.findall(str(view)):
        assert strip.rstrip() in known, strip
    if picture["name"] == "memory":
        drawn = [line for line in str(view).splitlines() if re.search(r"[.DgoaT]{8}$", line)]
        assert len(drawn) >= 4
        for line in drawn:
            assert any(row.endswith(line.strip()) for row in known), line


def test_the_guide_shows_the_same() -> None:
    page = "".join(GALLERY.page())
    for picture, which in PICTURES:
        view = GALLERY.view(picture, which)
        assert view.to_html() in page, (picture["name"], which)


@each_picture
def test_a_picture_is_small_escaped_and_always_the_same(
    picture: dict[str, Any], which: str
) -> None:
    view = GALLERY.view(picture, which)
    html = view.to_html()
    assert len(html.encode()) <= LARGEST
    assert html == GALLERY.view(picture, which).to_html()
    assert parsed(html).tags <= KEPT | {"style"}
    assert all(len(line) <= 80 for line in str(view).splitlines())


@each_picture
def test_only_the_broken_run_is_flagged(picture: dict[str, Any], which: str) -> None:
    view = GALLERY.view(picture, which)
    odd = view.findings if picture["view"] == "diagnosis" else view.flags
    assert bool(odd) == (which == "broken"), odd


def test_epochs_of_the_same_order_share_a_row() -> None:
    picture = next(one for one in GALLERY.pictures() if one["name"] == "partition")
    rows = {
        which: dict(re.findall(r"(epochs? [^ ]+) +│(.+)│", str(GALLERY.view(picture, which))))
        for which in GALLERY.WHICH
    }
    assert list(rows["healthy"]) == ["epoch 1", "epoch 2", "epoch 3"]
    assert len(set(rows["healthy"].values())) == 3
    assert list(rows["broken"]) == ["epochs 1-3"]  # 0, 1, 2, …, the lowest 56 of 240
    assert set(rows["broken"]["epochs 1-3"]) == {"▁", "▂"}
