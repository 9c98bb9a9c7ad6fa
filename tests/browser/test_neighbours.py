"""Beside other extensions: jupyter-distributed, jupyter-resource-usage and jupyterlab-git."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from .lab import Lab, Page
from .server import running_lab

FOLDER = Path(sys.prefix) / "neighbours"
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not FOLDER.is_dir(), reason="make test-neighbours installs them"),
]

WAITS = "import time\nif rank == 0:\n    time.sleep(60)\ndist.barrier()"
HANG = "%%rank 0\n%%ddt\nif rank == 0:\n    dist.barrier()"
SNAPSHOT = "one-rank-skips-all-reduce.ddt.json"
#: jupyter-distributed replaces a kernel that has just begun to answer by its own.
_OF_OTHERS = "Canceled future for kernel_info_request message before replies were done"
#: Loads two extensions, and says which magics of the first were taken by the second.
_LOAD = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
known = shell.magics_manager.magics
shell.extension_manager.load_extension(sys.argv[1])
first = {(kind, name): known[kind][name] for kind in known for name in known[kind]}
shell.extension_manager.load_extension(sys.argv[2])
print([name for (kind, name), magic in first.items() if known[kind][name] is not magic])
print("ddt" in known["cell"], "rank" in known["cell"])
"""


@pytest.fixture(scope="module")
def crowd(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server with all of them, in a folder under version control."""
    bundle = root / "ddt_notebook" / "labextension"
    with running_lab(tmp_path_factory.mktemp("crowd"), bundle, FOLDER) as running:
        running.write("crowd.ipynb", WAITS)
        shutil.copy(root / "tests" / "fixtures" / SNAPSHOT, running.folder)
        for command in ("init -q", "add -A", "-c user.name=a -c user.email=a@b commit -qm first"):
            subprocess.run(["git", *command.split()], cwd=running.folder, check=True)
        yield running


@pytest.fixture
def crowded(browser: Browser, crowd: Lab) -> Iterator[Page]:
    """A page on which our errors fail the test; errors of other extensions do not."""
    page = Page(browser, crowd)
    yield page
    page.close()
    assert page.strays == []
    assert [error for error in page.errors if error != _OF_OTHERS] == []
    assert [line for line in page.console if "ddt" in line] == []


def test_panel_and_key_work_through_another_kernel_and_beside_other_panels(
    crowded: Page, crowd: Lab
) -> None:
    page = crowded
    page.open(crowd.write("crowd.ipynb", WAITS, HANG))
    expect(page.tab.locator(".jp-NotebookPanel-toolbar")).to_contain_text("Processes")
    page.open_panel()
    page.cell(0).locator(".cm-content").click()
    page.tab.keyboard.press("Control+Shift+Enter")
    expect(page.panel).to_contain_text("4 ranks · gloo · cpu")
    expect(page.panel).to_contain_text("for rank 0 in barrier #1")
    page.button("Freeze").click()
    expect(page.panel).to_contain_text("this kernel receives no message while a cell runs")
    page.button("Interrupt").click()
    page.ended(0)
    expect(page.cell(0).locator(".ddt-lab-badge")).to_have_text("■ interrupted · ranks 0-3")
    page.run_to_end(1)
    expect(page.panel.get_by_role("article")).to_contain_text("ranks 1-3 never entered barrier")
    page.picture("neighbours")

    page.tab.get_by_role("tab", name="Kernel Usage").click()
    usage = page.tab.locator("#kernelusage-panel-id")
    expect(usage).to_contain_text(re.compile(r"Memory: \d"))
    page.open_panel()
    expect(page.panel).to_contain_text("4 ranks · gloo · cpu")


def test_notebooks_and_snapshots_are_compared(crowded: Page, crowd: Lab) -> None:
    page = crowded
    crowd.write("crowd.ipynb", "print('changed')")
    path = crowd.folder / SNAPSHOT
    path.write_text(path.read_text().replace("all_reduce", "all_gather"))
    page.open()
    page.tab.get_by_role("tab", name="Git").click()
    for name, words in (("crowd.ipynb", "print('changed')"), (SNAPSHOT, "dist.all_gather(x)")):
        file = page.tab.locator("#jp-git-sessions").get_by_text(name).first
        file.hover()
        file.locator("xpath=../..").get_by_title("Diff this file").click()
        compared = page.tab.locator(".jp-git-diff-parent-widget:not(.lm-mod-hidden)")
        expect(compared).to_contain_text("WORKING")
        expect(compared).to_contain_text(words)
        page.picture(f"neighbours-{name}")


@pytest.mark.parametrize(
    "order", [*permutations(("ddt_notebook", "jupyter_distributed.rank_magic"))]
)
def test_magics_do_not_take_each_other(order: tuple[str, str]) -> None:
    paths = (str(FOLDER), os.environ.get("PYTHONPATH"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    result = subprocess.run(
        [sys.executable, "-c", _LOAD, *order],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stdout.split("\n")[:2] == ["[]", "True True"]
