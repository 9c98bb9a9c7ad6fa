"""Executed notebooks that somebody else opens: not trusted, and without a kernel."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from .lab import Lab, Page
from .without_kernel import open_without_kernel

#: A hang, every view of a healthy run, and a fault that only a finding shows; each in one theme.
NOTEBOOKS = {
    "00-quickstart.ipynb": "JupyterLab Light",
    "01-tour.ipynb": "JupyterLab Dark",
    "c-data-and-model/C.7-partition-error.ipynb": "JupyterLab Light",
}
OURS = ".jp-OutputArea-output .ddt-view"
_WORD = re.compile(r"\w+")
#: What must be read at once: what a finding says, its lines of code, and what to change.
_FINDING = re.compile(r"^(\S.*) · (?:certain|likely)\n((?:  (?!-->|seen|fix).*\n)*)", re.MULTILINE)
_CODE = re.compile(r"^  --> \S+ line \d+   (\S.*?)(?:   |$)", re.MULTILINE)
_FIX = re.compile(r"^  fix  ?(.*(?:\n {7}\S.*)*)", re.MULTILINE)
#: The line that every other view begins with.
_FIRST = re.compile(r"\A.*")


@dataclass(frozen=True)
class Saved:
    """A view that was saved in a notebook: the number of its cell, and its text."""

    cell: int
    text: str

    @property
    def finds(self) -> bool:
        """Whether it shows a fault."""
        return _FINDING.search(self.text) is not None

    def missing(self, shown: str) -> set[str]:
        """Words of it that matter, and that cannot be read on the screen."""
        patterns = (_FINDING, _CODE, _FIX) if self.finds else (_FIRST,)
        wanted = [
            match.group() if pattern is _FIRST else " ".join(match.groups())
            for pattern in patterns
            for match in pattern.finditer(self.text)
        ]
        whole = [word for word in " ".join(wanted).split() if "…" not in word]  # cut for a terminal
        return set(_WORD.findall(" ".join(whole))) - set(_WORD.findall(shown))


def saved_views(path: Path) -> list[Saved]:
    """The views of a notebook, in order."""
    return [
        Saved(number, "".join(output["data"]["text/plain"]))
        for number, cell in enumerate(json.loads(path.read_text())["cells"])
        for output in cell.get("outputs", ())
        if "ddt-view" in "".join(output.get("data", {}).get("text/html", ""))
    ]


def on_screen(page: Page, views: list[Saved]) -> Iterator[tuple[Saved, Locator]]:
    """Each view, and the output that shows it."""
    for number in dict.fromkeys(view.cell for view in views):
        page.cell(number).scroll_into_view_if_needed()  # what is far away is not drawn
        shown = page.cell(number).locator(
            ".jp-OutputArea-output:is(:has(.ddt-view), .js-plotly-plot)"
        )
        here = [view for view in views if view.cell == number]
        expect(shown).to_have_count(len(here))
        yield from zip(here, shown.all(), strict=True)


def readable(shown: Locator) -> str:
    """The text of an output as it stands; the lines of a figure's title run together otherwise."""
    return " ".join([shown.inner_text(), *shown.locator("tspan").all_text_contents()])


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_an_executed_notebook_reads_untrusted_and_without_a_kernel(
    page: Page, lab: Lab, root: Path, name: str
) -> None:
    """Every finding, with nothing unfolded; by axe, too."""
    path = lab.folder / Path(name).name
    shutil.copy(root / "notebooks" / name, path)
    views = saved_views(path)
    assert views
    open_without_kernel(page, path.name)
    book = "window.jupyterapp.shell.currentWidget.content"
    assert not any(page.tab.evaluate(f"() => {book}.widgets.map(cell => cell.model.trusted)"))
    for view, shown in on_screen(page, views):
        expect(shown).to_contain_text(view.text.split()[0])  # a figure takes its time
        assert view.missing(readable(shown)) == set()
        if view.finds:
            page.picture(f"reopened-{path.stem}")
            if name.startswith("c-"):  # its lesson is beside it
                address = re.compile(f"/files/{re.escape(path.name)}")
                expect(shown.locator("a").first).to_have_attribute("href", address)
    page.theme(NOTEBOOKS[name])
    assert page.violations(OURS) == []
    page.picture(f"reopened-{path.stem}-theme")
    assert lab.kernels() == []
