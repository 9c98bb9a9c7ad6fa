"""Notebooks from beginning to end: run all, reopened, restarted."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from playwright.sync_api import expect

from .lab import LIMIT_MS, Lab, Page

LOAD = "%load_ext ddt_notebook"
HANG = "%%ddt\nkept = rank\nif rank == 0:\n    dist.barrier()"
FOUND = "rank 1 never entered barrier #1"


def test_the_quick_start_runs_to_its_end(page: Page, lab: Lab, root: Path) -> None:
    """Run All; what it found is in the panel, and its place one click away."""
    shutil.copy(root / "notebooks" / "00-quickstart.ipynb", lab.folder)
    page.open("00-quickstart.ipynb")
    page.open_panel()
    page.command("notebook:run-all-cells")
    expect(page.output(20)).to_contain_text("stopped: 4 ranks ended", timeout=2 * LIMIT_MS)
    expect(page.output(13)).to_contain_text("rank 0 never entered all_reduce")
    expect(page.output(17)).to_contain_text("test accuracy")
    expect(page.cell(13).locator(".ddt-lab-badge")).to_have_text("✖ hung · ranks 0-3")
    expect(page.panel).to_contain_text("No session in this notebook.")
    page.panel.get_by_text("Found earlier, in cell[7]").click()
    finding = page.panel.get_by_role("article")
    expect(finding).to_contain_text("hang D.2.1")
    expect(finding).to_contain_text("rank 0 never entered all_reduce")
    expect(finding).to_contain_text("loss_function(model(x), y).backward()")
    page.picture("quickstart-hang")
    finding.get_by_role("button", name="lesson D.2.1").click()
    expect(page.tab.get_by_role("tab", name="D.2.1-hang.ipynb")).to_be_visible()


def test_a_finding_leads_to_its_line_and_reads_where_it_is_not_trusted(
    page: Page, lab: Lab
) -> None:
    page.open(lab.write("lines.ipynb", f"{LOAD}\n%ddt_start -n 2 --hang-after 0.5", HANG, "1 + 1"))
    page.open_panel()
    page.run_to_end(0)
    page.run_to_end(1)
    page.run_to_end(2)
    expect(page.cell(1).locator(".ddt-lab-badge")).to_have_text("✖ hung · ranks 0-1")
    expect(page.cell(1).locator(".ddt-lab-note")).to_have_text(
        ["◀ rank 1 finished the cell", "◀ rank 0 waits in barrier"]
    )
    page.picture("marks")
    page.panel.get_by_role("button", name="cell[2] line 4").first.click()
    expect(page.cell(1)).to_have_class(re.compile("jp-mod-active"))
    page.tab.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.content.activeCell"
        ".editor.getCursorPosition().line === 3"
    )
    page.panel.get_by_role("button", name="explain D.2.1").click()
    expect(page.cell(2).locator(".cm-content")).to_have_text("%ddt_explain D.2.1")
    expect(page.output(2)).to_contain_text("training & evaluation")

    page.save()
    page.tab.goto("about:blank")
    lab.end_kernels()
    path = lab.folder / "lines.ipynb"
    book = json.loads(path.read_text())
    book["metadata"]["touched"] = True  # whoever changes it breaks the signature
    path.write_text(json.dumps(book))
    page.open("lines.ipynb")
    trusted = "() => window.jupyterapp.shell.currentWidget.content.widgets[1].model.trusted"
    assert page.tab.evaluate(trusted) is False
    shown = page.output(1)
    expect(shown).to_contain_text(FOUND)
    for text in ("hang D.2.1", "→ 4      dist.barrier()", "fix "):
        expect(shown.get_by_text(text).first).to_be_visible()
    page.picture("untrusted")


def test_a_restart_of_the_kernel_and_a_reload_of_the_page_recover(page: Page, lab: Lab) -> None:
    """The panel and the rank output."""
    said = HANG.replace("kept = rank", "print('here is', rank)")
    page.open(lab.write("again.ipynb", f"{LOAD}\n%ddt_start -n 2 --hang-after 0.5", said))
    page.open_panel()
    page.run_to_end(0)
    with page.tab.expect_response(
        lambda answer: "ddt-notebook-output" in (answer.request.post_data or "")
    ):  # what is open is remembered by the server, in a moment
        page.command("ddt-notebook:show-output")
    lines = page.tab.locator(".ddt-lab-output").get_by_role("listitem")
    page.run_to_end(1)
    expect(page.panel).to_contain_text(FOUND)
    expect(lines).to_have_count(2)
    page.save()
    page.tab.goto(f"{lab.url}lab?token={lab.token}")  # kernel and ranks are still there
    expect(lines).to_have_count(2)
    page.open_panel()
    expect(page.panel).to_contain_text("2 ranks · gloo · cpu")
    expect(page.panel).to_contain_text(FOUND)
    expect(page.row(0)).to_contain_text("was stuck")
    page.picture("page-reloaded")

    page.tab.get_by_role("tab", name="again.ipynb", exact=True).click()
    page.tab.evaluate(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )
    expect(page.panel).to_contain_text("No session in this notebook.")
    page.wait_for_kernel()
    page.run_to_end(0)
    expect(page.panel).to_contain_text("2 ranks, no cell runs")
    page.run_to_end(1)
    expect(page.panel).to_contain_text(FOUND)
