"""What the benchmarks share: a figure, timing, and sessions."""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import psutil

from ddt_notebook.host.session import Session

RANKS = 4
ROOT = Path(__file__).parent.parent

HEADER = "| what | hold | measured | a peer, same run |\n|---|---|---|---|"


@dataclass(frozen=True)
class Figure:
    """One row of the table.

    Attributes
    ----------
    what
        What was measured.
    measured, limit
        The median, and the limit that it must not exceed; infinite if there is none.
    unit
        Unit of both; ``"%"`` is printed with one decimal.
    peers
        The same figure of other tools, as text by name.
    note
        Spread of the measurements, or number of runs.
    """

    what: str
    measured: float
    limit: float
    unit: str
    peers: dict[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def held(self) -> bool:
        """Whether the median is within the limit."""
        return self.measured <= self.limit

    def row(self) -> str:
        """Format it as a row of a Markdown table."""
        mark = "" if self.held else " **not held**"
        peers = ", ".join(f"{name} {value}" for name, value in self.peers.items()) or "—"
        shown = f"{quantity(self.measured, self.unit)}{mark}"
        if self.note:
            shown += f" ({self.note})"
        limit = f"≤ {quantity(self.limit, self.unit)}" if math.isfinite(self.limit) else "—"
        return f"| {self.what} | {limit} | {shown} | {peers} |"


def quantity(value: float, unit: str) -> str:
    """Format a number with digits that suit its size."""
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def median_of(measure: Callable[[], float], repeats: int) -> tuple[float, str]:
    """The median of several measurements, and a note about their spread."""
    values = sorted(measure() for _ in range(repeats))
    spread = f"{repeats} runs, {values[0]:.3g}–{values[-1]:.3g}"
    return statistics.median(values), spread


def seconds(action: Callable[[], object]) -> float:
    """How long an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def warm_up() -> None:
    """Start the fork server, which already runs after a notebook's first cell."""
    Session(RANKS).stop()


@contextmanager
def session(ranks: int = RANKS, **environment: str) -> Iterator[Session]:
    """A session, started while ``environment`` is set."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        opened = Session(ranks)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    try:
        yield opened
    finally:
        opened.stop()


def check(condition: object, what: str) -> None:
    """Stop if a condition is false, since the figure would then be wrong."""
    if not condition:
        raise SystemExit(f"benchmark is void: {what}")


def run_checked(active: Session, source: str) -> None:
    """Run a cell that must succeed."""
    result = active.run(source)
    check(result.ok, f"{source!r} failed: {result.errors}")


def pss_megabytes(pids: list[int]) -> float:
    """Proportional set size of processes, which counts shared memory once."""
    return float(sum(psutil.Process(pid).memory_full_info().pss for pid in pids)) / 1e6


def living(pids: list[int]) -> list[int]:
    """The processes that still run, without zombies."""
    alive = []
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                alive.append(pid)
        except psutil.NoSuchProcess:
            continue
    return alive


def wait_until_gone(pids: list[int], limit_s: float) -> float:
    """How long the last of the processes runs, at most ``limit_s``."""
    start = time.monotonic()
    while living(pids) and time.monotonic() - start < limit_s:
        time.sleep(0.005)
    return time.monotonic() - start


def machine() -> str:
    """Date, size and software of this machine, in one line."""
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{time.strftime('%Y-%m-%d')} · {os.cpu_count()} cores, {memory:.0f} GB · "
        f"{platform.system()} · Python {platform.python_version()} · torch {version('torch')} · "
        f"ipyparallel {version('ipyparallel')}"
    )
