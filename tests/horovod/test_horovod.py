"""Programs of Horovod on ranks of a session, one after the other; see also the recorder's tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

import ddt_notebook as ddt
from tests.trainers.programs import program

from .horovod_programs import GATHERS, HEAD, JOINS, MNIST, PROCESS_SETS, SUB_BATCHES, SYNTHETIC

if importlib.util.find_spec("horovod") is None:
    pytest.skip("make test-horovod builds Horovod", allow_module_level=True)

HEALTHY = {
    "mnist": MNIST,
    "synthetic": SYNTHETIC,
    "sub-batches": SUB_BATCHES,
    "joins": JOINS,
    "gathers": GATHERS,
}
#: A program, the symptom, the culprits, and a line that the finding has to name.
FAULTS = {
    "one rank tests": (
        program(MNIST, "after an epoch", "if hvd.rank() < 1:\n    test()").replace(
            "    test()\n# at the end", "# at the end"
        ),
        "D.2.1",
        [1],
        "if hvd.rank() < 1:",
    ),
    "names differ": (
        program(MNIST, "at the end", 'hvd.allreduce(torch.ones(1), name=f"loss of {hvd.rank()}")'),
        "D.2.1",
        [0, 1],
        'hvd.allreduce(torch.ones(1), name=f"loss of {hvd.rank()}")',
    ),
    "shapes differ": (
        program(MNIST, "before the optimizer", "model.fc = nn.Linear(36, 10 + hvd.rank())"),
        "D.1.1",
        [0, 1],
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
    ),
    "types differ": (
        program(
            MNIST,
            "at the end",
            "score = torch.zeros(3, dtype=torch.float64 if hvd.rank() else torch.float32)\n"
            'hvd.allreduce(score, name="score")',
        ),
        "D.1.1",
        [0, 1],
        'hvd.allreduce(score, name="score")',
    ),
    "fewer steps": (
        program(MNIST, "in a step", "if step == 4 - hvd.rank():\n    break").replace(
            "    test()\n# at the end", "# at the end"
        ),
        "D.2.1",
        [1],
        "if step == 4 - hvd.rank():",
    ),
    "one rank joins": (
        program(
            MNIST,
            "at the end",
            "writer = object() if hvd.rank() == 0 else None\nif writer:\n    hvd.join()",
        ),
        "D.2.1",
        [1],
        "if writer:",
    ),
    "the same data": (
        program(
            MNIST,
            "before the optimizer",
            "train_loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)",
        ),
        "D.2.2",
        [0, 1],
        "for step, (image, digit) in enumerate(train_loader):",
    ),
    "opposite order": (
        program(
            MNIST,
            "at the end",
            'for name in ("loss", "accuracy") if hvd.rank() else ("accuracy", "loss"):\n'
            "    metric_average(1.0, name)",
        ),
        "D.2.1",
        [0, 1],
        "return hvd.allreduce(torch.tensor(value), name=name).item()",
    ),
    "a rank raises": (
        program(
            MNIST, "in a step", 'if hvd.rank() == 1 and step == 2:\n    raise ValueError("bad")'
        ),
        "D.1.11",
        [1],
        'raise ValueError("bad")',
    ),
    "a rank dies": (
        program(MNIST, "in a step", "if hvd.rank() == 1 and step == 2:\n    os._exit(3)"),
        "D.1.11",
        [1],
        "loss.backward()",
    ),
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
