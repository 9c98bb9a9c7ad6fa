"""The choice of ranks in the notebook's toolbar, and what it writes into cells."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from .lab import THEMES, Lab, Page
from .without_kernel import open_without_kernel

LOAD = "%load_ext ddt_notebook"


def chooser(page: Page) -> Locator:
    """The button that opens the choice."""
    return page.notebook.get_by_role("button", name="on ranks:")


def ranks(page: Page) -> Locator:
    """The choice."""
    return page.notebook.get_by_role("group", name="Ranks that run cells")


def choose(page: Page, *wanted: int) -> None:
    """Tick these ranks, by the mouse; nothing: all of them."""
    chooser(page).click()
    ranks(page).get_by_label("all ranks").check()
    if wanted:
        ranks(page).get_by_label("all ranks").uncheck()  # rank 0 is left
        for rank in wanted:
            ranks(page).get_by_label(f"rank {rank}", exact=True).check()
        if 0 not in wanted:
            ranks(page).get_by_label("rank 0", exact=True).uncheck()
    page.tab.keyboard.press("Escape")


def run_by_key(page: Page, number: int) -> None:
    """Run a cell on the ranks by its key, and wait until it has ended."""
    page.cell(number).locator(".cm-content").click()
    page.tab.keyboard.press("Control+Shift+Enter")
    page.ended(number)


def first_line(page: Page, number: int) -> Locator:
    return page.cell(number).locator(".cm-line").first


def test_ranks_are_chosen_by_keyboard_alone_in_every_theme(page: Page, lab: Lab) -> None:
    """Before there is a session: of as many as would be started."""
    page.open(lab.write("keys.ipynb", "print('here is', rank, 'of', world_size)"))
    expect(chooser(page)).to_have_text("on ranks: all ▾")
    chooser(page).focus()
    for key in ("Enter", "Space", "ArrowDown"):
        page.tab.keyboard.press(key)
        expect(ranks(page).get_by_label("all ranks")).to_be_focused()
        expect(chooser(page)).to_have_attribute("aria-expanded", "true")
        expect(ranks(page).get_by_role("checkbox")).to_have_count(5)
        page.tab.keyboard.press("Escape")
        expect(ranks(page)).to_be_hidden()
        expect(chooser(page)).to_be_focused()
        expect(chooser(page)).to_have_attribute("aria-expanded", "false")
    page.tab.keyboard.press("ArrowDown")
    expect(ranks(page).get_by_label("all ranks")).to_be_focused()
    page.tab.keyboard.press("Space")
    expect(chooser(page)).to_have_text("on ranks: 0 ▾")
    expect(ranks(page).get_by_label("rank 0", exact=True)).to_be_disabled()  # one must be left
    page.tab.keyboard.press("ArrowUp")
    expect(ranks(page).get_by_label("rank 3", exact=True)).to_be_focused()
    page.tab.keyboard.press("Space")
    page.tab.keyboard.press("ArrowUp")
    page.tab.keyboard.press("Space")
    expect(chooser(page)).to_have_text("on ranks: 0, 2-3 ▾")
    page.tab.keyboard.press("Escape")
    for theme in THEMES:
        page.theme(theme)
        chooser(page).click()
        expect(ranks(page)).to_be_visible()
        page.picture(f"picker-{theme.replace(' ', '-').lower()}")
        assert page.violations(".ddt-lab-picker") == []
        page.tab.keyboard.press("Escape")
    run_by_key(page, 0)
    expect(first_line(page, 0)).to_have_text("%%ddt -r 0,2-3")
    expect(page.cell(0).locator(".ddt-lab-badge")).to_have_text("✓ ok · ranks 0, 2-3")
    expect(page.output(0)).to_contain_text("[rank 3] here is 3 of 4")
    expect(page.output(0)).not_to_contain_text("here is 1 of 4")


def test_no_more_than_the_ranks_of_a_magic_is_replaced(page: Page, lab: Lab) -> None:
    cells = {
        "%%ddt -t 5 -r 0 -o mine  # -r 0\n1": "%%ddt -r 1 -t 5 -o mine  # -r 0",
        "%%ddt --ranks=0,1 --freeze;\n1": "%%ddt -r 1 --freeze;",
        "%%ddt\n1": "%%ddt -r 1",
        "1": "%%ddt -r 1",
        "%%ddt -r '1'\n1": "%%ddt -r '1'",
        "%%ddt_lint\nx = 1": "%%ddt_lint",
    }
    page.open(lab.write("lines.ipynb", f"{LOAD}\n%ddt_start -n 2", "%%ddt -r 0\n1", *cells))
    page.open_panel()
    page.run_to_end(0)
    run_by_key(page, 1)
    expect(first_line(page, 1)).to_have_text("%%ddt -r 0")  # nobody has chosen
    choose(page, 1)
    for number, line in enumerate(cells.values(), 2):
        run_by_key(page, number)
        expect(first_line(page, number)).to_have_text(line)
        expect(page.output(number)).not_to_contain_text("UsageError")
    choose(page)
    run_by_key(page, 2)
    expect(first_line(page, 2)).to_have_text("%%ddt -t 5 -o mine  # -r 0")


def test_lost_ranks_are_forgotten(page: Page, lab: Lab) -> None:
    again = "%ddt_stop\n%ddt_start -n {}"
    cells = (f"{LOAD}\n%ddt_start -n 4", again.format(2), again.format(4))
    page.open(lab.write("fewer.ipynb", *cells))
    page.run_to_end(0)
    choose(page, 0, 3)
    expect(chooser(page)).to_have_text("on ranks: 0, 3 ▾")
    page.run_to_end(1)
    expect(chooser(page)).to_have_text("on ranks: 0 ▾")
    page.run_to_end(2)
    chooser(page).click()
    expect(ranks(page).get_by_role("checkbox")).to_have_count(5)
    expect(ranks(page).get_by_label("rank 3", exact=True)).not_to_be_checked()


def test_a_kernel_without_ddt_notebook_is_reported_and_the_cell_is_left_alone(
    page: Page, lab: Lab
) -> None:
    """By the panel, too, and by both only when they are asked."""
    lab.end_kernels()  # a used one has imported it
    hide = "import sys\nsys.meta_path.clear()\nsys.path_importer_cache.clear()\nsys.path.clear()"
    page.open(lab.write("bare.ipynb", hide, "x = 'ddt'"))
    page.open_panel()
    page.run_to_end(0)
    expect(page.panel).to_contain_text("No session in this notebook.")
    page.button("Start").click()
    expect(page.panel).to_contain_text("this kernel has no ddt_notebook")
    page.picture("panel-without")
    choose(page, 1)
    page.cell(1).locator(".cm-content").click()
    page.notebook.get_by_role("button", name="Run Cell on Ranks").click()
    expect(page.tab.get_by_role("alert")).to_contain_text("this kernel has no ddt_notebook")
    expect(first_line(page, 1)).to_have_text("x = 'ddt'")
    page.run_to_end(1)


def test_there_is_no_choice_without_a_kernel(page: Page, lab: Lab) -> None:
    open_without_kernel(page, lab.write("read.ipynb", "1"))
    expect(page.notebook.locator(".ddt-lab-picker")).to_be_hidden()


def test_it_works_where_the_toolbar_is_narrow(page: Page, lab: Lab) -> None:
    page.tab.set_viewport_size({"width": 620, "height": 700})
    page.open(lab.write("narrow.ipynb", "1"))
    expect(chooser(page)).to_have_count(0)
    page.notebook.locator(
        ".jp-Toolbar-responsive-opener button, .jp-Toolbar-responsive-opener"
    ).first.click()
    hidden = page.tab.locator(".jp-Toolbar-responsive-popup .ddt-lab-picker")
    hidden.get_by_role("button", name="on ranks:").click()
    page.picture("picker-narrow")
    hidden.get_by_label("rank 3", exact=True).uncheck()
    expect(hidden.get_by_role("button", name="on ranks:")).to_have_text("on ranks: 0-2 ▾")
