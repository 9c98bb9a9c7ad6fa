"""Whether a notebook that is used for long stays as it was: memory, descriptors, files, speed.

``make soak`` runs 500 cells, 100 restarts, 50 hangs and 50 cells in which a rank is killed, in
random order, in a real kernel whose live panel is open. ``python -m benchmarks.soak --share 0.1``
runs a tenth of that. The exit status is 1 if something grew.

What else the machine does changes a round trip by much more than a factor of two. So the used
notebook is compared with a fresh one that runs beside it at the end: they take turns.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from .common import quantity

RANKS = 4
START = f"%load_ext ddt_notebook\n%ddt_start -n {RANKS}\n%ddt_live"
ROUND_TRIPS = 30
#: How often the used and the fresh notebook take turns, each with `ROUND_TRIPS`.
TURNS = 8
#: The median round trip of the used notebook may be this many times that of the fresh one.
MOST_SLOWER = 1.2
_LIMIT_S = 120
#: The cache folder that torch makes for its compiler.
_OF_TORCH = "torchinductor_"

STEP = """%%ddt
model = DDP(torch.nn.Linear(64, 8))
for step in range(5):
    model(torch.randn(16, 64)).square().mean().backward()
print(rank, "x" * 200)
"""
HANG = "%%ddt\nif rank == 0:\n    dist.barrier()"
KILL = """%%ddt
import os, signal
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""
#: How often each kind of action occurs, its cell, and what the exception of a failed cell contains.
ACTIONS = {
    "cells": (500, STEP, ""),
    "restarts": (100, "%ddt_restart", ""),
    "hangs": (50, HANG, "never entered"),
    "killed ranks": (50, KILL, "SIGKILL"),
}


@dataclass(frozen=True)
class State:
    """What the processes of a notebook use, with fresh ranks."""

    kernel_mb: float
    helpers_mb: float
    processes: float
    descriptors: float
    threads: float
    files: float


#: For each field of `State`: what it is called, its unit, and by which factor and by how much it
#: may grow.
FIELDS = {
    "kernel_mb": ("memory of the kernel", "MB", 1.15, 10.0),
    "helpers_mb": ("memory of ranks and helpers", "MB", 1.15, 10.0),
    "processes": ("processes", "", 1.0, 0.0),
    "descriptors": ("descriptors of all", "", 1.0, 4.0),
    "threads": ("threads of all", "", 1.0, 2.0),
    "files": ("files and folders", "", 1.0, 2.0),
}


class Notebook:
    """A kernel with its own folder for temporary files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manager = KernelManager(kernel_name="python3")
        environment = os.environ | {"TMPDIR": str(folder)}
        self._manager.start_kernel(stderr=subprocess.DEVNULL, env=environment)
        self._client: BlockingKernelClient = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=_LIMIT_S)
        self._pid = int(self.value("__import__('os').getpid()"))

    def run(self, source: str, fails_with: str = "") -> None:
        """Run a cell, which must succeed, or fail with a text."""
        reply = self._client.execute_interactive(
            source, timeout=_LIMIT_S, output_hook=lambda message: None, store_history=False
        )["content"]
        said = f"{reply.get('ename')}: {reply.get('evalue')} {' '.join(reply.get('traceback', ()))}"
        if (reply["status"] == "ok") is bool(fails_with) or fails_with not in said:
            raise SystemExit(f"{source!r} should have ended otherwise: {said}")

    def value(self, expression: str) -> str:
        """The text of an expression in the kernel."""
        asked = {"value": expression}
        reply = self._client.execute("", user_expressions=asked, reply=True, timeout=_LIMIT_S)
        return str(reply["content"]["user_expressions"]["value"]["data"]["text/plain"])

    def begin(self) -> None:
        """Start the ranks, and do each action once: what is used first costs memory."""
        self.run(START)
        for _, source, text in ACTIONS.values():
            self.run(source, text)
        self.run("%ddt_restart")

    def round_trips(self) -> list[float]:
        """How long cells of `pass` take, in ms."""
        trips = []
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter()
            self.run("%%ddt\npass")
            trips.append(1000 * (time.perf_counter() - began))
        return trips

    def state(self) -> State:
        """Measure, after a restart of the ranks and some cells."""
        self.run("%ddt_restart")
        self.round_trips()
        self.run("import gc; _ = gc.collect()")
        kernel = psutil.Process(self._pid)
        helpers = kernel.children(recursive=True)
        everyone = [kernel, *helpers]
        return State(
            kernel_mb=kernel.memory_full_info().pss / 1e6,
            helpers_mb=sum(one.memory_full_info().pss for one in helpers) / 1e6,
            processes=len(everyone),
            descriptors=sum(one.num_fds() for one in everyone),
            threads=sum(one.num_threads() for one in everyone),
            files=sum(1 for _ in self._folder.rglob("*")),
        )

    def close(self) -> int:
        """End the kernel; returns how many processes of it are still there after 3 s."""
        children = psutil.Process(self._pid).children(recursive=True)
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        _, left = psutil.wait_procs(children, timeout=3)
        return len(left)


def compare(used: Notebook) -> tuple[list[float], list[float]]:
    """Round trips of a used notebook and of a fresh one, which take turns."""
    with tempfile.TemporaryDirectory(prefix="ddt-soak-fresh-") as folder:
        fresh = Notebook(Path(folder))
        try:
            fresh.begin()
            trips: tuple[list[float], list[float]] = ([], [])
            for turn in range(TURNS):
                both = list(zip((used, fresh), trips, strict=True))
                for notebook, kept in both if turn % 2 else reversed(both):
                    kept += notebook.round_trips()
        finally:
            fresh.close()
    return trips


def main() -> int:
    """Run, print the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the actions (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of their order")
    options = parser.parse_args()
    plan = [
        (source, text)
        for times, source, text in ACTIONS.values()
        for _ in range(max(1, round(times * options.share)))
    ]
    random.Random(options.seed).shuffle(plan)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ddt-soak-") as folder:
        notebook = Notebook(Path(folder))
        try:
            notebook.begin()
            before = notebook.state()
            for number, (source, text) in enumerate(plan, start=1):
                notebook.run(source, text)
                if number % 50 == 0:
                    print(f"{number} of {len(plan)} actions", file=sys.stderr, flush=True)
            after = notebook.state()
            used, fresh = compare(notebook)
        finally:
            left = notebook.close()
            files_left = [str(file.relative_to(folder)) for file in Path(folder).rglob("*")]
    files_left = [file for file in files_left if not file.startswith(_OF_TORCH)]
    counted = ", ".join(
        f"{max(1, round(n * options.share))} {what}" for what, (n, *_) in ACTIONS.items()
    )
    print(f"{counted} on {RANKS} ranks, live panel open; {time.monotonic() - began:.0f} s\n")
    print("| what | at the beginning | at the end |\n|---|---|---|")
    grew = []
    for name, (what, unit, factor, more) in FIELDS.items():
        first, last = getattr(before, name), getattr(after, name)
        if last > first * factor + more:
            grew.append(what)
        print(f"| {what} | {quantity(first, unit)} | {quantity(last, unit)} |")
    slower = statistics.median(used) / statistics.median(fresh)
    print(
        "\nround trip of `pass` at the end, beside a fresh notebook: "
        f"median {statistics.median(used):.2f} ms and {statistics.median(fresh):.2f} ms of the "
        f"fresh one (ratio {slower:.2f}), fastest {min(used):.2f} and {min(fresh):.2f} ms"
    )
    if slower > MOST_SLOWER:
        grew.append("round trip")
    print(
        f"\nleft 3 s after the kernel was killed: {left} processes, {len(files_left)} files",
        *files_left,
    )
    if left or files_left:
        grew.append("what the kernel left behind")
    if grew:
        print(f"grew: {', '.join(grew)}")
    return bool(grew)


if __name__ == "__main__":
    sys.exit(main())
