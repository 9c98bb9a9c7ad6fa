"""Programs with more of a project in them: healthy ones stay silent, and faults are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.rank.branch_events import ALWAYS_ON

from . import data_and_metrics, larger_faults, larger_programs
from .programs import run

pytest.importorskip("accelerate", reason="make test-trainers installs the libraries")
pytest.importorskip("lightning", reason="make test-trainers installs the libraries")
pytest.importorskip("transformers", reason="make test-trainers installs the libraries")

HEALTHY = larger_programs.HEALTHY | data_and_metrics.HEALTHY
FAULTS = larger_faults.FAULTS | data_and_metrics.FAULTS
#: Which way ranks went is observed in the next run only, where Python does not observe it always.
OBSERVED_LATER = (
    ()
    if ALWAYS_ON
    else ("accelerate stops by each rank's loss", "trainer's loss leaves the model out")
)


@pytest.fixture(scope="module")
def session() -> Iterator[ddt.Session]:
    with ddt.Session(2) as session:
        yield session


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_programs_stay_quiet(session: ddt.Session, name: str, tmp_path: Path) -> None:
    result = run(session, HEALTHY[name], "cell", tmp_path)
    report = ddt.diagnose(result)
    assert result.ok, str(report)
    assert not report.findings, str(report)
    assert not report.hints, str(report)


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named_at_the_users_line(
    session: ddt.Session, name: str, tmp_path: Path
) -> None:
    fault = FAULTS[name]
    for _ in range(2 if name in OBSERVED_LATER else 1):
        finding = ddt.diagnose(run(session, fault.source, "cell", tmp_path)).findings[0]
        if not session.observe_branches:
            break  # the test before may have asked for it
    line = next(n for n, text in enumerate(fault.source.splitlines(), 1) if fault.line in text)
    told = {place.line for place in finding.places.values()}
    told |= {fact.place.line for fact in finding.facts if fact.place is not None}
    assert finding.symptom in fault.symptoms, str(finding)
    assert finding.cause in fault.causes, str(finding)
    assert fault.ranks in (None, tuple(finding.ranks)), str(finding)
    assert line in told, str(finding)
