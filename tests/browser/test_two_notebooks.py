"""Two notebooks with sessions of their own: panel, choice of ranks, output and views never mix."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from .lab import Lab, Page

START = "%load_ext ddt_notebook\n%ddt_start -n {} --hang-after 0.5"
HANG = "%%ddt\nprint('said by one', rank)\nif rank == 0:\n    dist.barrier()"
HEALTHY = "%%ddt\nprint('said by two', rank)\ndist.barrier()"
FOUND = "rank 1 never entered barrier #1"


def chooser(page: Page) -> Locator:
    """The button of the notebook in sight that opens the choice of ranks."""
    return page.notebook.get_by_role("button", name="on ranks:")


def choose_last(page: Page, rank: int) -> None:
    """Choose one rank alone."""
    chooser(page).click()
    ranks = page.notebook.get_by_role("group", name="Ranks that run cells")
    ranks.get_by_label("all ranks").uncheck()
    ranks.get_by_label(f"rank {rank}", exact=True).check()
    ranks.get_by_label("rank 0", exact=True).uncheck()
    page.tab.keyboard.press("Escape")
    expect(chooser(page)).to_have_text(f"on ranks: {rank} ▾")


def output(page: Page, text: str) -> Locator:
    """The rank outputs that show a text."""
    return page.tab.locator(".ddt-lab-output", has_text=text)


def lines(shown: Locator) -> Locator:
    return shown.get_by_role("listitem")


def views(page: Page) -> Locator:
    """The views of collectives that are open."""
    return page.tab.locator(".ddt-lab-snapshot[id^='ddt-notebook-collectives-']")


def test_two_notebooks_do_not_mix_and_a_restart_empties_one(page: Page, lab: Lab) -> None:
    page.tab.set_viewport_size({"width": 2600, "height": 1400})  # toolbars have room side by side
    page.open(lab.write("one.ipynb", START.format(2), HANG))
    page.open_panel()
    page.run_to_end(0)
    page.run_to_end(1)
    expect(page.panel).to_contain_text(FOUND)
    choose_last(page, 1)
    page.button("Collectives").click()
    expect(views(page)).to_contain_text("after cell[2] · 2 ranks")
    page.tab.get_by_role("tab", name="one.ipynb", exact=True).click()
    page.command("ddt-notebook:show-output")
    expect(lines(output(page, "said by one"))).to_have_count(2)

    page.command("docmanager:open", path=lab.write("two.ipynb", START.format(3), "1", HEALTHY))
    expect(page.panel).to_contain_text("two.ipynb")
    expect(page.panel).to_contain_text("No session in this notebook.")
    expect(page.button("Collectives")).to_have_count(0)
    expect(chooser(page)).to_have_text("on ranks: all ▾")
    page.wait_for_kernel()
    for number in range(3):
        page.run_to_end(number)
    expect(page.panel).to_contain_text("3 ranks · gloo · cpu")
    expect(page.panel).not_to_contain_text(FOUND)
    choose_last(page, 2)
    page.button("Collectives").click()
    expect(views(page)).to_have_count(2)
    expect(views(page).filter(has_text="after cell[3] · 3 ranks")).to_have_count(1)
    page.tab.get_by_role("tab", name="two.ipynb", exact=True).click()
    page.command("ddt-notebook:show-output")
    second = output(page, "said by two")
    expect(lines(second)).to_have_count(3)
    expect(lines(output(page, "said by one"))).to_have_count(2)
    page.picture("two-notebooks")

    page.tab.get_by_role("tab", name="one.ipynb", exact=True).click()
    expect(page.panel).to_contain_text("2 ranks · gloo · cpu")
    expect(page.panel).to_contain_text(FOUND)
    expect(chooser(page)).to_have_text("on ranks: 1 ▾")
    page.run_to_end(1)
    expect(views(page).filter(has_text="after cell[3] · 2 ranks")).to_have_count(1)
    expect(views(page).filter(has_text="after cell[3] · 3 ranks")).to_have_count(1)
    page.command("kernelmenu:restart")
    page.tab.get_by_role("button", name="Confirm Kernel Restart").click()
    empty = output(page, "No cell of this notebook has run on ranks yet.")
    expect(empty).to_have_count(1)
    expect(lines(empty)).to_have_count(0)
    expect(lines(second)).to_have_count(3)
    page.wait_for_kernel()


def test_a_second_notebook_of_one_kernel_learns_where_its_messages_go(page: Page, lab: Lab) -> None:
    """JupyterLab has one connection of a page receive the messages of extensions and widgets."""
    page.open(lab.write("first.ipynb", "1"))
    page.command("docmanager:open", path=lab.write("second.ipynb", "1"))
    page.open_panel()
    expect(page.panel).to_contain_text("second.ipynb")
    page.wait_for_kernel()
    page.tab.evaluate(
        """async () => {
          const of = name => [...window.jupyterapp.shell.widgets('main')].find(
            widget => widget.context?.path === name
          ).sessionContext;
          await of('second.ipynb').changeKernel({ id: of('first.ipynb').session.kernel.id });
        }"""
    )
    expect(page.panel).to_contain_text("to another notebook or console of this page")
