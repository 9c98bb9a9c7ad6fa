"""Programs of Horovod on ranks of a session, one after the other; see also the recorder's tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

import ddt_notebook as ddt

from .horovod_programs import (
    FAULTS,
    GATHERS,
    HEAD,
    JOINS,
    MNIST,
    PROCESS_SETS,
    SPARSE,
    SUB_BATCHES,
    SYNTHETIC,
)

if importlib.util.find_spec("horovod") is None:
    pytest.skip("make test-horovod builds Horovod", allow_module_level=True)

HEALTHY = {
    "mnist": MNIST,
    "synthetic": SYNTHETIC,
    "sparse": SPARSE,
    "sub-batches": SUB_BATCHES,
    "joins": JOINS,
    "gathers": GATHERS,
}


@pytest.fixture(scope="module")
def session() -> Iterator[ddt.Session]:
    with ddt.Session(2, framework="horovod", hang_after=0.5) as one:
        yield one


@pytest.fixture
def own_session() -> Iterator[ddt.Session]:
    """For what only the first ``hvd.init()`` of a process does."""
    with ddt.Session(2, framework="horovod", hang_after=0.5) as one:
        yield one


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_programs_stay_quiet(session: ddt.Session, name: str) -> None:
    result = session.run(HEALTHY[name])
    report = ddt.diagnose(result)
    assert result.ok, str(report)
    assert not report.findings, str(report)
    assert not report.hints, str(report)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_at_the_users_line_and_the_next_program_trains(
    session: ddt.Session, name: str
) -> None:
    source, symptom, ranks, named = FAULTS[name]
    result = session.run(source)
    findings = ddt.diagnose(result).findings
    assert findings, str(ddt.diagnose(result))
    finding = findings[0]
    number = next(n for n, line in enumerate(source.splitlines(), 1) if line.strip() == named)
    told = {place.line for place in finding.places.values()}
    told |= {fact.place.line for fact in finding.facts if fact.place is not None}
    assert number in told, str(finding)
    assert (finding.symptom, finding.ranks) == (symptom, ranks), str(finding)
    assert len(findings) == 1, [str(one) for one in findings]
    again = session.run(SYNTHETIC)
    report = ddt.diagnose(again)
    assert again.ok, str(report)
    assert not report.findings, str(report)


def test_process_sets_stay_quiet(own_session: ddt.Session) -> None:
    result = own_session.run(PROCESS_SETS)
    report = ddt.diagnose(result)
    assert result.ok, str(report)
    assert not report.findings, str(report)
    assert result.outputs == {0: "6.0 3.0\n", 1: "6.0 3.0\n"}


def test_a_rank_that_does_not_start_is_named(own_session: ddt.Session) -> None:
    source = HEAD.replace("hvd.init()", "if rank == 0:\n    hvd.init()")
    (finding,) = ddt.diagnose(own_session.run(source)).findings
    assert (finding.symptom, finding.ranks, finding.waiting) == ("B.2", [1], [0]), str(finding)
    assert finding.places[0].code == "hvd.init()"
    again = own_session.run(SYNTHETIC)
    assert again.ok, str(ddt.diagnose(again))


def test_parameters_that_were_never_made_equal_are_named(session: ddt.Session) -> None:
    source = MNIST.replace("torch.manual_seed(42)", "torch.manual_seed(42 + hvd.rank())").replace(
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n", ""
    )
    result = session.run(source)
    (finding,) = ddt.diagnose(result).findings
    assert (finding.symptom, finding.ranks) == ("D.2.5", [0, 1]), str(finding)
    assert finding.cause == "horovod-not-broadcast", str(finding)
