"""The page is loaded again while a cell blocks the kernel."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from .lab import Lab, Page

pytestmark = pytest.mark.timeout(300)

#: No limit of the session ends the cell before the test does.
START = "%load_ext ddt_notebook\n%ddt_start -n 2 -t 300"
HANG = "%%ddt\nkept = rank\nimport time\nif rank == 0:\n    time.sleep(300)\ndist.barrier()"
ALIVE = "%%ddt\nassert kept == rank\ndist.barrier()"


def reload_and_follow(page: Page) -> None:
    """Load the page again; the panel shows where the ranks are, though the kernel cannot answer."""
    page.save()
    page.tab.reload()
    expect(page.tab.locator("#jp-main-dock-panel")).to_be_visible()
    page.open_panel()
    expect(page.row(0)).to_contain_text("line 5: time.sleep(300)")
    expect(page.row(1)).to_contain_text("waits")
    expect(page.row(1)).to_contain_text(re.compile(r"\d s for rank 0 in barrier"))


def test_the_panel_comes_back_to_the_cell_that_runs(page: Page, lab: Lab) -> None:
    """It follows the cell, and its buttons work; the variables stay."""
    page.open(lab.write("reload.ipynb", START, HANG, ALIVE))
    page.open_panel()
    page.run_to_end(0)
    page.run(1)
    expect(page.row(1)).to_contain_text("waits")
    reload_and_follow(page)
    page.picture("reloaded")
    page.button("Freeze").click()
    expect(page.panel).to_contain_text("held as it is")
    page.button("Release").click()
    expect(page.button("Release")).to_have_count(0)
    page.wait_for_kernel()

    page.run(1)
    expect(page.row(1)).to_contain_text("waits")
    reload_and_follow(page)
    page.button("Interrupt").click()
    expect(page.panel).to_contain_text("was interrupted after")
    page.wait_for_kernel()
    page.run_to_end(2)
    expect(page.output(2)).to_contain_text("ok")
