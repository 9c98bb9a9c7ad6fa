"""The cost of the JupyterLab extension: its size, JupyterLab's start, and a panel's kernel."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.manager import KernelManager
from playwright.sync_api import Browser, sync_playwright

from ddt_notebook.widgets.lab import TARGET
from tests.browser.server import Lab, find_chromium, running_lab

from .common import ROOT, Figure
from .live_panel import PAIRS, START, run, share_of_cell

BUNDLE = ROOT / "ddt_notebook" / "labextension"
STARTS, IMPORTS = 25, 7
_LIMIT_MS = 60_000
#: What the server's part adds to a server that has loaded its own modules.
SERVER = """
import time, jupyter_server.serverapp, jupyter_server.base.handlers
began = time.perf_counter()
import ddt_notebook.server
print(1000 * (time.perf_counter() - began))
"""


def measure() -> list[Figure]:
    size = sum(path.stat().st_size for path in BUNDLE.rglob("*") if path.is_file())
    figures = [Figure("JupyterLab extension: size", size / 1000, 300.0, "kB"), _panel()]
    if find_chromium() is not None:
        figures.append(_start())
    return figures


@dataclass(frozen=True)
class Load:
    """One start of the page, from its request until JupyterLab is ready, in milliseconds."""

    wall: float
    #: Processor time of the page's main thread, to which other processes do not add.
    busy: float


def _start() -> Figure:
    """The differences of page and server with the extension and without it, measured in turn."""
    pairs: list[tuple[Load, Load]] = []
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        running_lab(Path(one), BUNDLE) as with_it,
        running_lab(Path(other), None) as without,
        sync_playwright() as started,
    ):
        browser = started.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for lab in (with_it, without):  # fills the disk cache
            _load(browser, lab)
        for number in range(STARTS):
            if number % 2:  # so that neither is always the second
                plain = _load(browser, without)
                pairs.append((_load(browser, with_it), plain))
            else:
                pairs.append((_load(browser, with_it), _load(browser, without)))
        browser.close()
    low, page, high = statistics.quantiles([mine.wall - bare.wall for mine, bare in pairs])
    busy = statistics.median(mine.busy - bare.busy for mine, bare in pairs)
    imports = [
        float(
            subprocess.run([sys.executable, "-c", SERVER], check=True, capture_output=True).stdout
        )
        for _ in range(IMPORTS)
    ]
    server = statistics.median(imports)
    note = (
        f"page {page:.0f} ms, half of {STARTS} pairs {low:.0f} to {high:.0f}, "
        f"its processor time {busy:.0f} ms; server {server:.0f} ms"
    )
    return Figure("JupyterLab with the extension: start", page + server, 100.0, "ms", note=note)


def _load(browser: Browser, lab: Lab) -> Load:
    """A start with an empty browser cache."""
    context = browser.new_context()
    page = context.new_page()
    clock = context.new_cdp_session(page)
    clock.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(f"{lab.url}lab?token={lab.token}&reset", timeout=_LIMIT_MS)
    page.wait_for_function("() => window.jupyterapp", timeout=_LIMIT_MS)
    ready = page.evaluate("() => window.jupyterapp.restored.then(() => performance.now())")
    metrics = {
        entry["name"]: entry["value"] for entry in clock.send("Performance.getMetrics")["metrics"]
    }
    context.close()
    return Load(float(ready), 1000 * metrics["TaskDuration"])


def _panel() -> Figure:
    """Processor time of the kernel while a cell runs and the side panel listens."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        run(client, START)
        without = [share_of_cell(client) for _ in range(PAIRS)]
        hello = {"comm_id": TARGET, "data": {"do": "hello"}}
        client.shell_channel.send(client.session.msg("comm_msg", hello))
        listening = [share_of_cell(client) for _ in range(PAIRS)]
        run(client, "%ddt_stop")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    cost = statistics.median(listening) - statistics.median(without)
    note = f"{statistics.median(listening):.1f} % of a core with it, {PAIRS} each"
    return Figure("side panel listens: processor time of the kernel", cost, 1.0, "%", note=note)


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
