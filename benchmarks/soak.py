"""Whether a notebook that is used for long stays as it was: memory, descriptors, files, speed.

``make soak`` runs 500 cells, 100 restarts, 50 hangs and 50 cells in which a rank is killed, in
random order, in a real kernel whose live panel is open. ``python -m benchmarks.soak --share 0.1``
runs a tenth of that. The exit status is 1 if something grew.
"""

from __future__ import annotations

import argparse
import os
import random
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
    round_trip_ms: float


#: For each field of `State`: what it is called, its unit, and by which factor and by how much it
#: may grow.
FIELDS = {
    "kernel_mb": ("memory of the kernel", "MB", 1.15, 10.0),
    "helpers_mb": ("memory of ranks and helpers", "MB", 1.15, 10.0),
    "processes": ("processes", "", 1.0, 0.0),
    "descriptors": ("descriptors of all", "", 1.0, 4.0),
    "threads": ("threads of all", "", 1.0, 2.0),
    "files": ("files and folders", "", 1.0, 2.0),
    "round_trip_ms": ("fastest of 30 round trips of `pass`", "ms", 2.0, 3.0),
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

    def state(self) -> State:
        """Measure, after a restart of the ranks."""
        self.run("%ddt_restart")
        trips = []
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter()
            self.run("%%ddt\npass")
            trips.append(1000 * (time.perf_counter() - began))
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
            round_trip_ms=min(trips),
        )

    def close(self) -> int:
        """End the kernel; returns how many processes of it are still there after 3 s."""
        children = psutil.Process(self._pid).children(recursive=True)
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        _, left = psutil.wait_procs(children, timeout=3)
        return len(left)


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
            notebook.run(START)
            for _, source, text in ACTIONS.values():  # what is used for the first time costs memory
                notebook.run(source, text)
            before = notebook.state()
            for number, (source, text) in enumerate(plan, start=1):
                notebook.run(source, text)
                if number % 50 == 0:
                    print(f"{number} of {len(plan)} actions", file=sys.stderr, flush=True)
            after = notebook.state()
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
