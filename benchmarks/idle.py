"""Processor time of kernel, ranks and helpers at an idle prompt, less that of a bare kernel.

The ranks' own threads sleep until a request arrives. The remaining time belongs to gloo's thread in
each process with a gloo group, which checks about every 10 ms whether it has to end.
"""

from __future__ import annotations

import ast
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from . import peers
from .common import RANKS, Figure
from .kernel_kill import PIDS, START
from .live_panel import run

STEPS = f"%%ddt\n{peers.DDP_STEPS}"
IDLE_S, SETTLE_S = 30.0, 2.0
GLOO_THREAD = "gloo_tcp_loop"


def measure() -> list[Figure]:
    with _kernel() as (bare, _):
        baseline, _ = _share([bare])
    with _kernel() as (kernel, client):
        run(client, START)
        run(client, STEPS)
        reply = client.execute("", user_expressions={"pids": PIDS}, reply=True, timeout=30)
        shown = reply["content"]["user_expressions"]["pids"]["data"]["text/plain"]
        total, of_gloo = _share([kernel, *ast.literal_eval(shown)])
    with peers.spawned_ranks() as (pids, _):
        spawned, _ = _share(pids)
    before = _children()
    with peers.engines():
        engines, _ = _share(_children() - before)
    theirs = {
        "multiprocessing spawn": f"{spawned:.2f} %",
        "ipyparallel, without a group": f"{engines:.2f} %",
    }
    note = f"gloo's own thread {of_gloo:.2f} %; a bare kernel {baseline:.2f} %; {IDLE_S:.0f} s"
    what = f"{RANKS} ranks at an idle prompt: processor time beyond a bare kernel's, of a core"
    return [Figure(what, total - baseline, 1.0, "%", theirs, note)]


def _share(pids: Iterable[int]) -> tuple[float, float]:
    """Processor time of all threads, and of gloo's threads alone, in percent of one core."""
    time.sleep(SETTLE_S)
    processes = list(pids)
    before = _seconds_of_threads(processes)
    time.sleep(IDLE_S)
    after = _seconds_of_threads(processes)
    spent = {key: seconds - before.get(key, 0.0) for key, seconds in after.items()}
    of_gloo = sum(seconds for (name, _), seconds in spent.items() if name == GLOO_THREAD)
    return 100 * sum(spent.values()) / IDLE_S, 100 * of_gloo / IDLE_S


def _seconds_of_threads(pids: list[int]) -> dict[tuple[str, str], float]:
    """Processor time of each thread in nanoseconds; the unit of ``times()`` is 10 ms."""
    found = {}
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            name = (thread / "comm").read_text().strip()
            found[name, thread.name] = int((thread / "schedstat").read_text().split()[0]) / 1e9
    return found


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@contextmanager
def _kernel() -> Iterator[tuple[int, BlockingKernelClient]]:
    """A kernel's process id, and a client of it."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(stderr=subprocess.DEVNULL)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        assert isinstance(manager.provisioner, LocalProvisioner)
        assert manager.provisioner.pid
        yield manager.provisioner.pid, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
