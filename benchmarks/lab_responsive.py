"""How long many ranks and much output block JupyterLab's page at a time.

The browser itself reports every task of 50 ms or more. The same output is also measured in
JupyterLab alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.lab import Page
from tests.browser.server import find_chromium, running_lab

from .common import RANKS, ROOT, Figure, median_of
from .timeline_view import RANKS as MANY
from .timeline_view import long_run

BUNDLE = ROOT / "ddt_notebook" / "labextension"
LINES, LIMIT_MS = 10_000, 200.0
START = "%load_ext ddt_notebook\n%ddt_start -n {}"
ON_RANKS = "%%ddt\nfor line in range({}):\n    print(rank, 'has come to line', line)"
PLAIN = f"for line in range({LINES}):\n    print(line % 4, 'has come to line', line)"
#: Includes late drawing, such as that of parts of a page that are out of view.
_SETTLE_MS = 3000
#: Repeats of each cell. While 64 ranks share two cores, a task may be long only because it waits
#: for a core.
_REPEATS = 5
_WATCH = """() => {
  window.tasks = [];
  window.watcher ??= new PerformanceObserver(
    seen => window.tasks.push(...seen.getEntries().map(task => task.duration)));
  window.watcher.observe({ type: 'longtask' });
}"""
#: The interval is long because the check itself is a task in the page.
_POLL_MS = 200
_DRAWN = "() => document.querySelector('.ddt-lab-snapshot > details ~ details table')"
_ENDED = """number => window.jupyterapp.shell.currentWidget.content.widgets[number]
  .model.executionCount !== null"""


def measure() -> list[Figure]:
    chromium = find_chromium()
    if chromium is None:
        return []
    with (
        tempfile.TemporaryDirectory() as home,
        running_lab(Path(home), BUNDLE) as lab,
        sync_playwright() as started,
    ):
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = Page(browser, lab)
        try:
            return [_long_run(page), *(_much_output(page, ranks) for ranks in (RANKS, MANY))]
        finally:
            page.close()
            browser.close()


def _long_run(page: Page) -> Figure:
    long_run().save(page.lab.folder / "long.ddt.json")
    page.open()
    with _watched(page) as tasks:
        page.command("docmanager:open", path="long.ddt.json")
        page.tab.wait_for_function(_DRAWN, polling=_POLL_MS)
    note = f"{len(tasks)} tasks of 50 ms or more"
    return _figure(f"a saved run of {MANY} ranks is opened", max(tasks, default=0.0), note)


def _much_output(page: Page, ranks: int) -> Figure:
    cells = START.format(ranks), ON_RANKS.format(LINES // ranks), PLAIN
    page.open(page.lab.write(f"lines-{ranks}.ipynb", *cells))
    page.open_panel()
    page.run_to_end(0)
    longest, note = median_of(lambda: max(_tasks_of_cell(page, 1), default=0.0), _REPEATS)
    plain, _ = median_of(lambda: max(_tasks_of_cell(page, 2), default=0.0), _REPEATS)
    peers = {"the same lines printed without ranks": f"{plain:.0f} ms"}
    return _figure(f"{LINES:,} lines from {ranks} ranks", longest, note, peers)


def _tasks_of_cell(page: Page, number: int) -> list[float]:
    with _watched(page) as tasks:
        page.run(number)
        page.tab.wait_for_function(_ENDED, arg=number, polling=_POLL_MS)
    return tasks


@contextmanager
def _watched(page: Page) -> Iterator[list[float]]:
    """A list that contains the milliseconds of each long task at the end of the block."""
    tasks: list[float] = []
    page.tab.evaluate(_WATCH)
    yield tasks
    page.tab.wait_for_timeout(_SETTLE_MS)
    tasks += page.tab.evaluate("() => window.tasks")


def _figure(what: str, longest_ms: float, note: str, peers: dict[str, str] | None = None) -> Figure:
    return Figure(
        f"{what} in JupyterLab: longest task",
        longest_ms,
        LIMIT_MS,
        "ms",
        peers=peers or {},
        note=note,
    )


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
