"""The side panel "Ranks", while a cell blocks the kernel."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from .lab import THEMES, Lab, Page

LOAD = "%load_ext ddt_notebook"
HANG = "%%ddt\nkept = rank\nimport time\nif rank == 0:\n    time.sleep(300)\ndist.barrier()"


def test_a_cell_that_starts_ranks_is_seen(page: Page, lab: Lab) -> None:
    wait = "from pathlib import Path\nimport time\nwhile not Path('go').exists(): time.sleep(0.02)"
    page.open(lab.write("start.ipynb", f"{LOAD}\n{wait}\n%ddt_start -n 1", "%ddt_stop"))
    page.open_panel()
    expect(page.panel).to_contain_text("No session in this notebook.")
    page.run(0)
    expect(page.panel).to_contain_text("Ranks are starting …")
    expect(page.button("Start")).to_be_disabled()
    (lab.folder / "go").touch()
    expect(page.row(0)).to_contain_text("ready")
    page.run_to_end(1)
    expect(page.panel).to_contain_text("No session in this notebook.")


def test_a_hang_is_seen_while_the_cell_blocks_the_kernel(page: Page, lab: Lab) -> None:
    """Shown, interrupted, frozen and released from the panel; the variables stay.

    The finding and the panel are accessible in every theme.
    """
    page.open(lab.write("hang.ipynb", LOAD, HANG, "%%ddt\nassert kept == rank\ndist.barrier()"))
    page.open_panel()
    expect(page.panel).to_contain_text("No session in this notebook.")
    page.run_to_end(0)
    page.panel.get_by_label("Ranks").fill("2")
    page.button("Start").click()
    expect(page.panel).to_contain_text("2 ranks · gloo · cpu")
    expect(page.row(1)).to_contain_text("ready")
    page.picture("panel-ready")

    page.run(1)
    expect(page.row(1)).to_contain_text("waits")
    expect(page.row(1)).to_contain_text(re.compile(r"\d s for rank 0 in barrier #1"))
    expect(page.row(0)).to_contain_text("line 5: time.sleep(300)")
    page.picture("panel-waits")
    page.button("Interrupt").click()
    page.ended(1)
    expect(page.panel).to_contain_text("was interrupted after")
    expect(page.output(1).locator(".ddt-view")).to_have_count(1)
    for theme in THEMES:
        page.theme(theme)
        page.picture(f"theme-{theme.replace(' ', '-').lower()}")
        assert page.violations("#ddt-notebook-ranks", ".jp-OutputArea-output .ddt-view") == []

    page.run(1)
    expect(page.row(1)).to_contain_text("waits")
    page.save()
    page.tab.reload()  # the kernel cannot answer the new page
    expect(page.tab.locator("#jp-main-dock-panel")).to_be_visible()
    page.open_panel()
    expect(page.row(0)).to_contain_text("line 5: time.sleep(300)")
    expect(page.row(1)).to_contain_text(re.compile(r"\d s for rank 0 in barrier"))
    page.picture("reloaded")
    page.button("Freeze").click()
    expect(page.panel).to_contain_text("held as it is")
    page.button("Release").click()
    expect(page.button("Release")).to_have_count(0)
    page.wait_for_kernel()
    page.run_to_end(2)
    expect(page.output(2)).to_contain_text("ok")
    page.button("Stop").click()
    expect(page.panel).to_contain_text("No session in this notebook.")
