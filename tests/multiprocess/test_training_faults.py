"""Faults of training as others write them: in functions and classes, with more ranks, later."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt

from ..fixtures.training import COMMON, FAULTS, Fault
from .conftest import Ranks


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_training_is_found(ranks: Ranks, fault: Fault) -> None:
    session = ranks.session(fault.n)
    if fault.restarts:
        session.restart()
    run = session.run(COMMON + fault.source)
    assert run.ok, run.errors
    report = ddt.diagnose(run)
    found = report.findings
    if fault.hint:
        assert not found, str(report)
        found = [hint for hint in report.hints if hint.cause == fault.cause]
    assert [f.cause for f in found] == [fault.cause], str(report)
    finding = found[0]
    assert finding.ranks == fault.ranks, str(report)
    assert not fault.line or finding.where[fault.ranks[0]].endswith(f": {fault.line}"), str(report)
    if fault.shows:
        shown = [fact.place.code for fact in finding.facts if fact.place is not None]
        assert fault.shows in shown, str(report)
