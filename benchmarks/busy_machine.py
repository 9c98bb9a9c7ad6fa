"""Measures how often a healthy program gets a finding, or a view a warning, on a busy machine."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import ddt_notebook as ddt
from ddt_notebook.faults import card, cards
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.host.session import Session
from tests.cards import run_fixed
from tests.fixtures.cases import load
from tests.fixtures.training import COMMON, PROGRAMS
from tests.multiprocess.test_training_scripts import LOOK_ALIKES, SCRIPTS

from .common import Figure

#: Other processes for each core, so that a rank gets a third of a processor.
OTHERS_PER_CORE = 2
_HANG_AFTER_S = 2.0


@contextmanager
def others(count: int) -> Iterator[None]:
    """Run processes that compute all the time."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: sum(range(10_000))"])
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait(timeout=10)


def _run(n: int, *sources: str, group: bool = True) -> list[RunResult]:
    with Session(n, group=group, hang_after=_HANG_AFTER_S) as session:
        return [session.run(source) for source in sources if source]


def _of_file(path: Path, n: int) -> list[RunResult]:
    source = path.read_text(encoding="utf-8")
    return _run(n, source, group="init_process_group" not in source)


def _repaired(name: str) -> list[RunResult]:
    return [run_fixed(card(name))[0]]


def programs() -> Iterator[tuple[str, Callable[[], list[RunResult]]]]:
    """Every healthy program of the tests: its name, and the function that runs it."""
    for name in ("healthy", "held_out_healthy"):
        for case in load(name):
            if case.healthy and case.on is None:
                sources = (case.earlier, case.source, case.then)
                yield case.name, partial(_run, case.n, *sources, group=case.group)
    for name, source in PROGRAMS.items():
        yield name, partial(_run, 2, COMMON + source)
    for path in SCRIPTS:
        yield path.stem, partial(_of_file, path, 2)
    for path in LOOK_ALIKES:
        yield path.stem, partial(_of_file, path, 3)
    for name in (one.id for one in cards() if not one.framework):
        yield f"{name}, repaired", partial(_repaired, name)


def warnings(result: RunResult) -> list[str]:
    """The errors and warnings (``▲``) that the views of time show above their tables."""
    views = (ddt.collectives(result), ddt.timeline(result))
    return [flag.text for view in views for flag in view.flags if flag.kind != "hint"]


def measure(rounds: int = 1, chosen: str = "") -> list[Figure]:
    """Return how many programs get a finding, and how many runs get a warning in a view."""
    accused, warned, runs = [], 0, 0
    with others(OTHERS_PER_CORE * (os.cpu_count() or 1)):
        for _ in range(rounds):
            for name, run in programs():
                for result in run() if chosen in name else ():
                    runs += 1
                    findings = ddt.diagnose(result).findings
                    if findings:
                        accused.append(name)
                        print(name, *findings, sep="\n", file=sys.stderr, flush=True)
                    if shown := warnings(result):
                        warned += 1
                        print(name, *shown, sep="\n", file=sys.stderr, flush=True)
    note, load = f"{runs} runs", f"{OTHERS_PER_CORE} other processes on each core"
    return [
        Figure(f"healthy programs accused, {load}", len(accused), 0, "", note=note),
        Figure(f"healthy runs with a ▲ in a view, {load}", warned, 0, "", note=f"{runs} runs"),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--chosen", default="", help="only programs whose name has this in it")
    given = parser.parse_args()
    for figure in measure(given.rounds, given.chosen):
        print(figure.row())
