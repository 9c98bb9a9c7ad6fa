"""The processor time that the open live panel adds to the kernel while a cell runs."""

from __future__ import annotations

import statistics
import subprocess

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from .common import RANKS, Figure, check

START = f"""
import time
%load_ext ddt_notebook
%ddt_start -n {RANKS}
"""
BEFORE = "cpu_s, wall_s = time.process_time(), time.monotonic()"
SHARE = "100 * (time.process_time() - cpu_s) / (time.monotonic() - wall_s)"
#: Ranks that meet fifty times per second, so that they progress between two updates.
CELL = """%%ddt
import time
for step in range(300):
    time.sleep(0.02)
    dist.all_reduce(torch.ones(3))
"""
PAIRS = 3


def measure() -> list[Figure]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        run(client, START)
        without, opened = [], []
        for _ in range(PAIRS):
            without.append(share_of_cell(client))
            run(client, "%ddt_live")
            opened.append(share_of_cell(client))
            run(client, "%ddt_live --close")
        run(client, "%ddt_stop")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    cost = statistics.median(opened) - statistics.median(without)
    note = f"{statistics.median(opened):.1f} % of a core with it, {PAIRS} pairs"
    return [Figure("live panel open: processor time of the kernel", cost, 1.0, "%", note=note)]


def share_of_cell(client: BlockingKernelClient) -> float:
    """Processor time of the kernel in percent of one core, while the cell runs."""
    run(client, BEFORE)
    run(client, CELL)
    reply = client.execute("", user_expressions={"share": SHARE}, reply=True, timeout=30)
    return float(reply["content"]["user_expressions"]["share"]["data"]["text/plain"])


def run(client: BlockingKernelClient, source: str) -> None:
    reply = client.execute_interactive(source, timeout=60, output_hook=lambda message: None)
    check(reply["content"]["status"] == "ok", f"{source!r} failed: {reply['content']}")


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
