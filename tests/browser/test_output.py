""" "Rank Output": what the ranks of a notebook printed, below that notebook."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator, expect

from .lab import THEMES, Lab, Page

START = "%load_ext ddt_notebook\n%ddt_start -n {}"
#: One rank after the other, long enough apart to arrive apart.
TURNS = """%%ddt
import sys, time
for turn in range(4):
    if rank == turn:
        print("Turn", turn, "of <b>rank</b>", rank)
        print("\\x1b[31mwarned\\x1b[0m", rank, file=sys.stderr)
    dist.barrier()
    time.sleep(0.2)
"""
#: More lines than are kept, over and over.
FLOOD = """%%ddt
import time
for wave in range(100):
    print(*range(wave * 1000, wave * 1000 + 1000), sep="\\n")
    time.sleep(0.2)
"""
SLOW = """%%ddt
import time
for step in range(300):
    print("step", step)
    time.sleep(0.1)
print("\\rdone", end="")
"""
PROGRESS = """%%ddt
import time
for step in range(600):
    print(f"\\r{step} of 600", end="", flush=True)
    time.sleep(0.05)
"""
#: Rank 63 prints last, because the earliest lines of all ranks are left out.
MANY = """%%ddt
import pathlib, time
printed = pathlib.Path({!r})
until = time.monotonic() + 60
while rank == 63 and len(list(printed.iterdir())) < 63 and time.monotonic() < until:
    time.sleep(0.05)
for line in range(400):
    print('line', line, flush=line == 399)
(printed / str(rank)).touch()"""


def opened(page: Page) -> Locator:
    """The output of the active notebook, opened as by the menu."""
    page.command("ddt-notebook:show-output")
    shown = page.tab.locator(".ddt-lab-output:not(.lm-mod-hidden)")
    expect(shown).to_be_visible()
    return shown


def lines(shown: Locator) -> Locator:
    return shown.get_by_role("listitem")


def said(shown: Locator) -> list[str]:
    """The lines in sight, their spaces made one."""
    return [" ".join(text.split()) for text in lines(shown).all_inner_texts()]


def test_lines_by_rank_by_filter_and_by_search_in_every_theme(page: Page, lab: Lab) -> None:
    page.open(lab.write("turns.ipynb", START.format(4), TURNS))
    page.run_to_end(0)
    shown = opened(page)
    expect(shown).to_contain_text("No cell of this notebook has run on ranks yet.")
    expect(shown.get_by_role("tab")).to_have_count(5)
    page.run_to_end(1)
    expect(lines(shown)).to_have_count(8)
    assert said(shown) == [
        text
        for rank in range(4)
        for text in (
            f"rank {rank} Turn {rank} of <b>rank</b> {rank}",
            f"rank {rank} stderr warned {rank}",
        )
    ]
    page.picture("output-all")

    key = page.tab.keyboard.press
    shown.get_by_role("tab", name="All ranks").focus()
    key("ArrowRight")
    key("ArrowRight")
    expect(shown.get_by_role("tab", name="Rank 1")).to_be_focused()
    expect(shown.get_by_role("tab", name="Rank 1")).to_have_attribute("aria-selected", "true")
    expect(lines(shown)).to_have_count(2)
    key("End")
    expect(lines(shown).first).to_contain_text("Turn 3")
    key("Home")
    expect(lines(shown)).to_have_count(8)

    shown.get_by_label("Ranks", exact=True).first.fill("0,2-3")
    expect(lines(shown)).to_have_count(6)
    assert "Turn 1" not in " ".join(said(shown))
    shown.get_by_label("Ranks", exact=True).first.fill("0,x")
    expect(shown.get_by_role("status")).to_have_text("write ranks such as 0,2-3")
    shown.get_by_label("Ranks", exact=True).first.fill("")

    search = shown.get_by_label("Search")
    search.fill("tURN")
    expect(shown.get_by_role("status")).to_have_text("4 lines found")
    expect(shown.locator("mark")).to_have_text(["Turn"] * 4)
    search.press("Enter")
    search.press("Enter")
    expect(shown.get_by_role("status")).to_have_text("line 2 of 4 found")
    expect(shown.locator("[aria-current]")).to_contain_text("Turn 1")
    search.press("Shift+Enter")
    search.press("Shift+Enter")
    expect(shown.get_by_role("status")).to_have_text("line 4 of 4 found")
    shown.get_by_label("Only matching lines").press("Space")
    expect(lines(shown)).to_have_count(4)
    page.picture("output-search")
    search.fill("<B>rank</b> 3")
    expect(lines(shown)).to_have_count(1)
    expect(shown).to_contain_text("cell[2] · has ended · 8 lines · 1 of them shown")
    for theme in THEMES:
        page.theme(theme)
        page.picture(f"output-{theme.replace(' ', '-').lower()}")
        assert page.violations(".ddt-lab-output") == []

    shown.get_by_role("button", name="Copy").click()
    search.focus()
    key("Control+A")
    key("Control+V")
    expect(search).to_have_value("[rank 3] Turn 3 of <b>rank</b> 3")


def test_it_keeps_up_while_the_cell_blocks_the_kernel(page: Page, lab: Lab) -> None:
    """Opened meanwhile, too; it follows the end unless its reader went up.

    A progress bar is one line, and a cell that is held has not ended.
    """
    page.open(lab.write("slow.ipynb", START.format(2), SLOW, PROGRESS))
    page.open_panel()
    page.run_to_end(0)
    page.run(1)
    expect(page.row(0)).to_contain_text("running")
    page.button("Output").click()
    shown = page.tab.locator(".ddt-lab-output")
    expect(shown).to_contain_text("cell[2] · runs")
    expect(lines(shown).last).to_contain_text(re.compile(r"step (3\d|[4-9]\d)"))
    expect(page.cell(1).locator(".jp-InputPrompt").first).to_have_text("[*]:")
    expect(lines(shown).last).to_be_in_viewport()
    page.picture("output-running")
    scroller = shown.get_by_role("tabpanel")
    scroller.focus()
    page.tab.keyboard.press("Home")
    expect(shown.get_by_label("Follow the end")).not_to_be_checked()
    expect(lines(shown).first).to_be_in_viewport()
    said_then = re.findall(r"\d+ lines", shown.inner_text())
    expect(shown).not_to_contain_text(said_then[0])  # more have come
    assert scroller.evaluate("node => node.scrollTop") == 0
    scroller.press("End")
    expect(shown.get_by_label("Follow the end")).to_be_checked()
    expect(lines(shown).last).to_be_in_viewport()
    page.button("Interrupt").click()
    page.ended(1)
    expect(shown).to_contain_text("cell[2] · has ended")

    page.run(2)
    expect(lines(shown).first).to_contain_text(re.compile(r"rank 0\s+unfinished\s+\d\d+ of 600"))
    expect(lines(shown)).to_have_count(2)
    page.picture("output-progress")
    page.button("Freeze").click()
    page.ended(2)
    expect(shown).to_contain_text("cell[3] · is held · 2 lines")
    page.button("Release").click()
    expect(shown).to_contain_text("cell[3] · has ended")
    assert "unfinished" not in shown.inner_text()


def test_64_ranks_with_many_lines(page: Page, lab: Lab, tmp_path: Path) -> None:
    """The page contains only lines in sight, and reports how many lines are left out."""
    page.open(lab.write("many.ipynb", START.format("64 --no-group"), MANY.format(str(tmp_path))))
    page.run_to_end(0)
    shown = opened(page)
    page.run_to_end(1)
    expect(shown).to_contain_text("cell[2] · has ended · 25,600 lines")
    expect(shown).not_to_contain_text("loading")
    expect(shown).to_contain_text("The first 5,600 lines are left out.")
    expect(shown).to_contain_text("Everything that the ranks of this session printed is in /")
    assert lines(shown).count() < 200
    expect(lines(shown).last).to_be_in_viewport()
    assert lines(shown).last.get_attribute("aria-posinset") == "20000"
    page.picture("output-many")
    shown.get_by_role("tab", name="All ranks").focus()
    page.tab.keyboard.press("End")
    expect(shown.get_by_role("tab", name="Rank 63")).to_be_focused()
    expect(lines(shown).last).to_contain_text("rank 63 line 399")
    search = shown.get_by_label("Search")
    search.fill("line 77")
    expect(shown.get_by_role("status")).to_have_text("1 line found")
    search.press("Enter")
    expect(shown.locator("[aria-current]")).to_be_in_viewport()
    expect(shown.locator("[aria-current]")).to_contain_text("rank 63 line 77")
    page.picture("output-many-search")


def test_what_is_read_stays_in_place_while_older_lines_are_dropped(page: Page, lab: Lab) -> None:
    page.open(lab.write("flood.ipynb", START.format("1 --no-group"), FLOOD))
    page.open_panel()
    page.run_to_end(0)
    shown = opened(page)
    page.run(1)
    expect(shown).to_contain_text(re.compile(r"The first .* lines are left out"))
    scroller = shown.get_by_role("tabpanel")
    scroller.press("PageUp")
    expect(shown.get_by_label("Follow the end")).not_to_be_checked()
    scroller.evaluate("node => { node.scrollTop = node.scrollHeight / 2; }")
    top = """node => {
      const edge = node.getBoundingClientRect().top + 2;
      const covers = ({ top, bottom }) => top <= edge && edge < bottom;
      const rows = [...node.querySelectorAll('[role=listitem]')];
      return rows.find(row => covers(row.getBoundingClientRect()))?.innerText;
    }"""
    # the list draws the lines at its new position only after the browser has reported the scrolling
    page.tab.wait_for_function(top, arg=scroller.element_handle())
    before = shown.inner_text().split("The first ")[1].split()[0]
    read = scroller.evaluate(top)
    expect(shown).not_to_contain_text(f"The first {before} lines")
    assert scroller.evaluate(top) == read
    page.button("Interrupt").click()
    page.ended(1)
