"""Runs fault cards for real: ``python -m tests.cards ID …`` shows what is found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import ddt_notebook as ddt
from ddt_notebook.faults import FaultCard, card, card_ids
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.host.session import Session
from ddt_notebook.model import Finding, Report
from ddt_notebook.model.frameworks import prepared

#: Numbers of the cells: what is set up, the fault, the repair, its proof.
SETUP, CELL, PROOF = 1, 2, 3
#: A card must end, whatever it does, and soon; unless it says otherwise itself.
OPTIONS: dict[str, Any] = {"timeout": 10.0, "hang_after": 0.5}
#: The targets of `make` that install a package, if they have another name.
_TARGETS = {"transformers": "trainers"}


def runnable(name: str) -> FaultCard:
    """The card of this name; the test is skipped where what it needs is not installed."""
    one = card(name)
    framework = prepared().get(one.framework)
    for module in framework.modules if framework is not None else ():
        pytest.importorskip(module, reason=f"make test-{one.framework} installs it")
    for module in one.needs:
        package = module.partition(".")[0]
        target = _TARGETS.get(package, package)
        pytest.importorskip(module, reason=f"make test-{target} installs it")
    return one


def run_broken(card: FaultCard) -> RunResult:
    """Run the fault in a session of its own."""
    return run_cell(card, card.broken)


def run_cell(card: FaultCard, source: str) -> RunResult:
    """Run a cell where the card's cells run."""
    with Session(card.n, **OPTIONS | card.options) as session:
        _set_up(session, card)
        return session.run_cell(source, number=CELL)


def run_fixed(card: FaultCard) -> tuple[RunResult, RunResult]:
    """Run the repaired cell in a session of its own, and the proof that it did what was wanted."""
    with Session(card.n, **OPTIONS | card.options) as session:
        _set_up(session, card)
        return session.run_cell(card.fixed, number=CELL), session.run_cell(card.proof, number=PROOF)


def _set_up(session: Session, card: FaultCard) -> None:
    if card.setup:
        before = session.run_cell(card.setup, number=SETUP)
        assert before.ok, before.errors


def complaints_broken(card: FaultCard, report: Report) -> list[str]:
    """In what the diagnosis of the broken cell differs from what the card expects."""
    wanted, others = report.findings, [h for h in report.hints if h.cause == card.id]
    if card.is_hint:
        wanted, others = others, wanted
    found = [f"beyond what is expected: {f.cause}: {f.title}" for f in (*wanted[1:], *others)]
    return found + (list(_about(card, wanted[0])) if wanted else ["nothing was found"])


def _about(card: FaultCard, finding: Finding) -> Iterator[str]:
    expected = card.expected
    pairs = {
        "cause": (finding.cause, card.id),
        "symptom": (finding.symptom, expected.symptom or card.symptom),
        "ranks": (finding.ranks, list(expected.ranks)),
        "waiting": (finding.waiting, list(expected.waiting)),
        "confidence": (finding.confidence, expected.confidence),
    }
    for name, (seen, wanted) in pairs.items():
        if seen != wanted:
            yield f"{name} is {seen!r}, not {wanted!r}"
    for rank, line in expected.lines.items():
        place = finding.places.get(rank)
        if place is None or (place.cell, place.line) != (CELL, line):
            yield f"rank {rank} is at {finding.where.get(rank)!r}, not in line {line}"


def complaints_fixed(card: FaultCard, run: RunResult, proof: RunResult) -> list[str]:
    """What is wrong with the repaired cell; empty if it is healthy and did what was wanted."""
    report = ddt.diagnose(run)
    found = [f"not silent: {f.cause}: {f.title}" for f in report.findings]
    found += [f"still hinted: {h.title}" for h in report.hints if h.cause == card.id]
    found += [f"rank {rank} raised {error}" for rank, error in run.errors.items()]
    found += [f"proof on rank {rank}: {error}" for rank, error in proof.errors.items()]
    return found


def main(names: list[str]) -> int:
    """Run cards, show what was found and complain."""
    failed = 0
    for name in names or card_ids():
        one = card(name)
        broken = run_broken(one)
        report = ddt.diagnose(broken)
        print(f"== {name}\n{report}\n   broken: {broken.duration_s:.1f} s")
        fixed, proof = run_fixed(one)
        complaints = complaints_broken(one, report) + complaints_fixed(one, fixed, proof)
        print(f"   fixed: {fixed.duration_s:.1f} s", *complaints, sep="\n   COMPLAINT ")
        failed += bool(complaints)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
