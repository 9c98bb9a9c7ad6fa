"""Jobs of ``horovodrun``, recorded by ``ddt-notebook run``; see also the tests with a stand-in."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.jobs.recorded_job import snapshot_of_folder
from tests.multiprocess.test_jobs import Job

from .horovod_programs import FAULTS, JOINS, MNIST, PROCESS_SETS

if importlib.util.find_spec("horovod") is None:
    pytest.skip("make test-horovod builds Horovod", allow_module_level=True)

#: Two imports of torch take a minute on a busy machine.
_LIMIT_S = 250
HEALTHY = {"mnist": MNIST, "joins": JOINS, "process sets": "import torch\n" + PROCESS_SETS}
#: Those of a session that end a job in other ways: a rank leaves, waits, raises, dies.
AS_JOBS = ("fewer steps", "names differ", "types differ", "a rank raises", "a rank dies")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Job]]:
    monkeypatch.chdir(tmp_path)
    started: list[Job] = []

    def start(source: str) -> Job:
        Path("train.py").write_text(source)
        launcher = Path(sys.executable).with_name("horovodrun")
        command = ("--on-hang", "stop", "--", launcher, "-np", "2", sys.executable, "train.py")
        started.append(Job(tmp_path / "record", *command, OMP_NUM_THREADS="1"))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_stays_quiet(job: Callable[[str], Job], name: str) -> None:
    started = job(HEALTHY[name])
    snapshot = started.reported(_LIMIT_S)
    report = diagnose(snapshot)
    assert (snapshot.framework, snapshot.world_size, snapshot.outcome) == ("horovod", 2, "ok")
    assert not report.findings, report.findings
    assert not report.hints, report.hints
    assert all(one.calls for one in snapshot_of_folder(started.folder).ranks)


@pytest.mark.parametrize("name", AS_JOBS)
def test_a_fault_of_a_job_is_named_at_the_users_line(job: Callable[[str], Job], name: str) -> None:
    source, symptom, ranks, named = FAULTS[name]
    snapshot = job(source).reported(_LIMIT_S)
    (finding,) = diagnose(snapshot).findings
    number = next(n for n, line in enumerate(source.splitlines(), 1) if line.strip() == named)
    told = {place.line for place in finding.places.values()}
    told |= {fact.place.line for fact in finding.facts if fact.place is not None}
    assert number in told, finding
    assert (finding.symptom, finding.ranks) == (symptom, ranks), finding
