"""Runs every case of the comparison of conclusions once on real ranks."""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import ddt_notebook as ddt

from .conclusions_inputs import ENDING, TESTS, record_inputs

#: Seconds for one run, including the start of its ranks, and for all runs.
LONGEST_S, ALL_S = 120, 3600

Run = Callable[[], Iterator[tuple[str, Any]]]


class Shared:
    """Sessions that cases share, as in the tests."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, bool], Any] = {}

    def session(self, n: int, *, group: bool = True) -> Any:
        if (n, group) not in self._open:
            self._open[n, group] = ddt.Session(n, group=group, timeout=10.0, hang_after=0.5)
        return self._open[n, group]

    def stop(self) -> None:
        while self._open:
            self._open.popitem()[1].stop()


def runs(shared: Shared) -> Iterator[tuple[list[str], Run]]:
    """All cases: the names of their snapshots, and the function that makes them."""
    for card in ddt.fault_cards():
        if card.framework:
            continue  # it may not be installed
        yield [f"card-{card.id}-broken"], functools.partial(_broken, card)
        names = [f"card-{card.id}-fixed", f"card-{card.id}-proof"]
        yield names, functools.partial(_fixed, card)
    from tests.fixtures import cases

    numbers = count(100)
    for path in sorted(cases.FOLDER.glob("*.toml")):
        shared.stop()
        for case in cases.load(path.stem):
            name = f"{path.stem}-{case.name}"
            if path.stem == "held_out_healthy":
                parts = [part for part in ("earlier", "source", "then") if getattr(case, part)]
                names = [name if part == "source" else f"{name}-{part}" for part in parts]
                yield names, functools.partial(_in_a_row, shared, case, parts, names, numbers)
            else:
                yield [name], functools.partial(_case, shared, case, name, cases.CELL)
    shared.stop()
    yield from _training(shared)
    shared.stop()
    for folder, n in (("training_scripts", 2), ("look_alikes", 3)):
        for path in sorted((TESTS / "fixtures" / folder).glob("*.py")):
            name = f"{folder}-{path.stem}"
            yield [name], functools.partial(_script, path, n, name)
            if folder == "training_scripts":
                name = f"traced-{name}"
                yield [name], functools.partial(_script, path, n, name, trace=True)


def _training(shared: Shared) -> Iterator[tuple[list[str], Run]]:
    from tests.fixtures.training import COMMON, FAULTS, PROGRAMS

    cells = [(f"training-fault-{f.name}", f.n, f.source, False) for f in FAULTS]
    cells += [(f"traced-training-fault-{f.name}", f.n, f.source, True) for f in FAULTS]
    cells += [(f"training-healthy-{name}", 2, PROGRAMS[name], False) for name in PROGRAMS]
    for name, n, source, trace in cells:
        yield [name], functools.partial(_cell, shared, name, n, COMMON + source, trace)


def _broken(card: Any) -> Iterator[tuple[str, Any]]:
    from tests import cards

    yield f"card-{card.id}-broken", cards.run_broken(card)


def _fixed(card: Any) -> Iterator[tuple[str, Any]]:
    from tests import cards

    for part, run in zip(("fixed", "proof"), cards.run_fixed(card), strict=True):
        yield f"card-{card.id}-{part}", run


def _case(shared: Shared, case: Any, name: str, cell: int) -> Iterator[tuple[str, Any]]:
    session = shared.session(case.n, group=case.group)
    session.run_cell("kept = 100 + rank", number=cell + 1)
    if case.earlier:
        session.run_cell(case.earlier, number=cell + 3)
    yield name, session.run_cell(case.source, case.on, timeout=case.timeout, number=cell)


def _in_a_row(
    shared: Shared, case: Any, parts: list[str], names: list[str], numbers: Iterator[int]
) -> Iterator[tuple[str, Any]]:
    session = shared.session(case.n, group=case.group)
    for part, name in zip(parts, names, strict=True):
        yield name, session.run_cell(getattr(case, part), number=next(numbers))


def _cell(shared: Shared, name: str, n: int, source: str, trace: bool) -> Iterator[tuple[str, Any]]:
    yield name, shared.session(n).run(source, trace=trace)


def _script(path: Path, n: int, name: str, trace: bool = False) -> Iterator[tuple[str, Any]]:
    source = path.read_text(encoding="utf-8")
    with ddt.Session(n, group="init_process_group" not in source, timeout=10.0) as session:
        yield name, session.run(source, trace=trace)


@contextmanager
def at_most(limit_s: int) -> Iterator[None]:
    """Raise TimeoutError if the block takes longer."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"took more than {limit_s} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def record(folder: Path) -> int:
    """Keep the snapshots to diagnose, and return how many runs failed."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "inputs.json").exists():
        record_inputs(folder)
    shared, began, wrong = Shared(), time.monotonic(), 0
    try:
        for number, (names, run) in enumerate(runs(shared), start=1):
            if all((folder / f"{name}{ENDING}").exists() for name in names):
                continue
            if time.monotonic() - began > ALL_S:
                print(f"stopped after {ALL_S} s; the same command goes on")
                return wrong + 1
            print(f"{time.monotonic() - began:5.0f} s  {number:4}  {names[0]}", flush=True)
            try:
                with at_most(LONGEST_S):
                    for name, done in run():
                        done.snapshot.save(folder / f"{name}{ENDING}")
            except Exception as error:  # noqa: BLE001  the other runs continue
                wrong += 1
                print(f"       not recorded: {type(error).__name__}: {error}", flush=True)
                shared.stop()
    finally:
        shared.stop()
    print(f"{len(list(folder.glob(f'*{ENDING}')))} snapshots in {folder}, {wrong} went wrong")
    return wrong
