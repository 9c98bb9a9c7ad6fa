"""Notebook 7: a page for each document, another shell, and the same extension."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .lab import Lab, Page
from .walk import CELLS, walk

pytest.importorskip("notebook", reason="Notebook 7 is not installed")

PLAIN = "import time\nif rank == 0:\n    time.sleep(60)\ndist.barrier()"
HANG = "%%ddt\nif rank == 0:\n    dist.barrier()"
FIXTURE = "one-rank-skips-all-reduce.ddt.json"


@pytest.fixture
def book(page: Page) -> Iterator[Page]:
    """A page on which our errors fail the test; Notebook 7 has errors of its own."""
    yield page
    page.errors[:] = page.ours
    assert [line for line in page.console if "ddt" in line] == []


def test_ranks_beside_the_notebook(book: Page, lab: Lab) -> None:
    """By the key; the panel keeps up and interrupts while the cell blocks; a finding leads on."""
    book.open_in_notebook_7(lab.write("book.ipynb", PLAIN, HANG))
    book.menu("View", "Right Sidebar", "Show Ranks")
    expect(book.panel).to_contain_text("No session in this notebook.")
    book.cell(0).locator(".cm-content").click()
    book.tab.keyboard.press("Control+Shift+Enter")
    expect(book.panel).to_contain_text("4 ranks · gloo · cpu")
    expect(book.row(0)).to_contain_text("time.sleep(60)")
    expect(book.panel).to_contain_text("for rank 0 in barrier #1")
    book.picture("notebook7-waits")
    book.button("Interrupt").click()
    book.ended(0)
    expect(book.cell(0).locator(".cm-line").first).to_have_text("%%ddt")
    expect(book.cell(0).locator(".ddt-lab-badge")).to_have_text("■ interrupted · ranks 0-3")

    book.run_to_end(1)
    expect(book.cell(1).locator(".ddt-lab-badge")).to_have_text("✖ hung · ranks 0-3")
    expect(book.cell(1).locator(".ddt-lab-note")).to_have_text(
        ["◀ ranks 1-3 finished the cell", "◀ rank 0 waits in barrier"]
    )
    book.panel.get_by_role("button", name="explain D.2.1").click()
    expect(book.cell(2).locator(".cm-content")).to_have_text("%ddt_explain D.2.1")
    expect(book.output(2)).to_contain_text("training & evaluation")
    book.picture("notebook7-hang")


def test_the_assistant_by_keyboard(book: Page, lab: Lab) -> None:
    book.open_in_notebook_7(lab.write("assistant7.ipynb", *CELLS))
    walk(book, "notebook7-assistant")


def test_a_snapshot_and_the_tour_open_from_the_files(book: Page, lab: Lab, root: Path) -> None:
    folder = lab.folder / "of a job"
    folder.mkdir()
    shutil.copy(root / "tests" / "fixtures" / FIXTURE, folder)
    book.tab.goto(f"{lab.url}tree/of a job?token={lab.token}")
    files = book.tab
    with book.to_the_new_tab():
        files.get_by_text(FIXTURE).dblclick()
    shown = book.tab.locator(".ddt-lab-snapshot")
    expect(shown).to_contain_text("never entered all_reduce")
    book.picture("notebook7-snapshot")
    assert book.violations(".ddt-lab-snapshot") == []
    assert lab.kernels() == []

    book.tab = files
    with book.to_the_new_tab():
        book.menu("Ranks", "Quick Start Tour")
    expect(book.notebook).to_contain_text("Quick start: a training run that hangs")
    assert (folder / "ddt-notebook" / "00-quickstart.ipynb").is_file()
