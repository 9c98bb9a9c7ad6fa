"""Many ranks, much output, long runs: the page stays usable."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from ddt_notebook.magics.output_stream import LINES_SHOWN, RANKS_IN_FULL
from ddt_notebook.model import Call, Cell, RankReport, Snapshot

from .lab import Lab, Page

RANKS, LINES, CALLS = 64, 10_000, 30
SHOWN = int(LINES_SHOWN * RANKS_IN_FULL / RANKS)
START = f"%load_ext ddt_notebook\n%ddt_start -n {RANKS} -t 300"
#: After the many lines, rank 0 goes on to print while the others wait for it.
POURS = f"""%%ddt
import itertools, time
for line in range({LINES // RANKS + 1}):
    print("line", line, "of", rank)
for line in itertools.count() if rank == 0 else ():
    print("more", line)
    time.sleep(0.01)
dist.barrier()"""


def run_of_many_ranks() -> Snapshot:
    """A healthy run; each rank comes last once in a while."""
    reports = []
    for rank in range(RANKS):
        calls = tuple(
            Call(
                index=number,
                op="all_reduce",
                members=tuple(range(RANKS)),
                sequence=number + 1,
                shapes=((number + 1,),),
                dtypes=("float32",),
                entered_s=100 + number * 5e-3 + (2e-3 if number % RANKS == rank else 0.0),
                left_s=100 + number * 5e-3 + 3e-3,
            )
            for number in range(CALLS)
        )
        reports.append(RankReport(rank=rank, calls=calls))
    return Snapshot(
        created="2026-01-01T00:00:00Z",
        world_size=RANKS,
        cell=Cell(number=3, source="train()"),
        duration_s=1.0,
        ranks=tuple(reports),
    )


def test_the_page_answers_while_many_ranks_print(page: Page, lab: Lab) -> None:
    page.open(lab.write("pours.ipynb", START, POURS))
    page.open_panel()
    page.run_to_end(0)
    page.run(1)
    expect(page.panel.locator(".ddt-lab-ranks tbody tr")).to_have_text(
        [re.compile("^0.*running"), re.compile("^1-63.*waits")]
    )
    expect(page.output(1)).to_contain_text("[rank 63] … more output is in")
    expect(page.output(1)).to_contain_text("[rank 0] … more output is in")
    page.button("Interrupt").click()
    page.ended(1)
    expect(page.panel).to_contain_text("was interrupted after")
    text = page.output(1).inner_text()
    for rank in range(RANKS):
        assert len(re.findall(rf"\[rank {rank}\] line \d+ of {rank}\n", text)) == SHOWN
    page.picture("pours")


def test_a_long_run_opens_folded_and_whole(page: Page, lab: Lab) -> None:
    """Its views are there to be searched before they are unfolded; the file is not in the page."""
    run_of_many_ranks().save(lab.folder / "long.ddt.json")
    asked: list[str] = []
    page.tab.on("request", lambda request: asked.append(request.url))
    page.open()
    page.command("docmanager:open", path="long.ddt.json")
    shown = page.tab.locator(".ddt-lab-snapshot")
    expect(shown).to_contain_text(f"{RANKS} ranks, {CALLS} collectives")
    folds = shown.locator("> details")
    expect(folds).to_have_count(2)
    for fold, text in ((folds.nth(0), f"({CALLS} × float32)"), (folds.nth(1), "63")):
        rows = fold.get_by_role("row", include_hidden=True)
        expect(rows.filter(has_text=text).first).to_be_hidden()
        fold.locator("summary").first.click()
        expect(fold.get_by_role("table").first).to_be_visible()
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.theme(theme)
        page.picture(f"long-{theme.split()[-1].lower()}")
        assert page.violations(".ddt-lab-snapshot") == []
    of_file = [url for url in asked if "long.ddt.json" in url]
    assert len([url for url in of_file if "/ddt-notebook/snapshot" in url]) == 1
    assert not [url for url in of_file if "content=1" in url]
