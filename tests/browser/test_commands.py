"""Commands: the tour, snapshots as documents, and cells that run on ranks without a magic."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from playwright.sync_api import expect

from .lab import Lab, Page

FIXTURE = "one-rank-skips-all-reduce.ddt.json"


def test_a_snapshot_opens_without_a_kernel(page: Page, lab: Lab, root: Path) -> None:
    shutil.copy(root / "tests" / "fixtures" / FIXTURE, lab.folder)
    (lab.folder / "broken.ddt.json").write_text('{"format": "<img src=x onerror=alert(1)>"}')
    page.open()
    page.command("docmanager:open", path=FIXTURE)
    shown = page.tab.locator(".ddt-lab-snapshot")
    expect(shown).to_contain_text("hang D.2.1")
    expect(shown).to_contain_text("never entered all_reduce")
    shown.locator("summary", has_text="collectives").first.click()
    expect(shown.get_by_role("table").first).to_be_visible()
    shown.get_by_label("Search").fill("all_reduce")
    shown.get_by_label("Search").press("Enter")
    expect(shown.locator("tr.ddt-picked").first).to_be_attached()
    page.picture("snapshot")
    assert page.violations(".ddt-lab-snapshot") == []
    page.command("docmanager:open", path="broken.ddt.json")
    expect(shown.last).to_contain_text("this is not a ddt_notebook snapshot")
    assert lab.kernels() == []


def test_the_launcher_opens_the_tour(page: Page, lab: Lab) -> None:
    page.open()
    page.tab.locator(".jp-LauncherCard", has_text="Distributed debugging tour").click()
    expect(page.notebook).to_contain_text("Quick start: a training run that hangs")
    assert (lab.folder / "ddt-notebook" / "00-quickstart.ipynb").is_file()


def test_a_cell_runs_on_the_ranks_by_one_key(page: Page, lab: Lab) -> None:
    """Starts the ranks where that is needed, and puts the magic on top; what ran is kept."""
    page.open(lab.write("plain.ipynb", "print('here is', rank, 'of', world_size)"))
    page.open_panel()
    page.cell(0).locator(".cm-content").click()
    page.tab.keyboard.press("Control+Shift+Enter")
    page.ended(0)
    expect(page.output(0)).to_contain_text("[rank 3] here is 3 of 4")
    expect(page.cell(0).locator(".cm-line").first).to_have_text("%%ddt")
    expect(page.cell(0).locator(".ddt-lab-badge")).to_have_text("✓ ok · ranks 0-3")
    page.command("ddt-notebook:save-snapshot")
    dialog = page.tab.get_by_role("dialog")
    expect(dialog.get_by_role("textbox")).to_have_value("plain.ddt.json")
    dialog.get_by_role("textbox").press("Enter")  # the dialog may not have the focus yet
    lab.wait_for_file("plain.ddt.json")
    page.command("docmanager:open", path="plain.ddt.json")
    expect(page.tab.locator(".ddt-lab-snapshot")).to_contain_text("4 ranks")


def test_the_key_is_for_the_cell_where_it_was_pressed(page: Page, lab: Lab) -> None:
    """While the ranks start, the person goes on; a fault that nothing raised is no "ok"."""
    op = "dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM"
    differs = f"dist.all_reduce(torch.ones(2), {op})"
    page.open(lab.write("pressed.ipynb", differs, "1 + 1"))
    page.open_panel()
    page.cell(0).locator(".cm-content").click()
    page.tab.keyboard.press("Control+Shift+Enter")
    expect(page.cell(0).locator(".jp-InputPrompt")).to_have_text("[*]:")
    page.cell(1).locator(".cm-content").click()
    page.ended(0)
    expect(page.cell(1).locator(".cm-content")).to_have_text("1 + 1")
    expect(page.cell(1)).to_have_class(re.compile("jp-mod-active"))
    expect(page.cell(0).locator(".ddt-lab-badge")).to_have_text("✖ ended with a fault · ranks 0-3")
    expect(page.panel.get_by_role("article")).to_contain_text("reduce operations differ")

    page.command("ddt-notebook:explain")
    expect(page.tab.get_by_role("dialog")).to_contain_text("empty for the list of symptoms")
    page.tab.keyboard.press("Enter")
    expect(page.output(2)).to_contain_text("communication setup")
