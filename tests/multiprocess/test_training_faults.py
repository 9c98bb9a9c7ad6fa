"""Faults of training as others write them: in functions and classes, with more ranks, later."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt

from ..fixtures.training import COMMON, FAULTS, Fault
from .conftest import Ranks

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_training_is_found(ranks: Ranks, fault: Fault) -> None:
    run = ranks.session(fault.n).run(COMMON + fault.source)
    assert run.ok, run.errors
    report = ddt.diagnose(run)
    assert [f.cause for f in report.findings] == [fault.cause], str(report)
    finding = report.findings[0]
    assert finding.ranks == fault.ranks, str(report)
    assert not fault.line or finding.where[fault.ranks[0]].endswith(f": {fault.line}"), str(report)
