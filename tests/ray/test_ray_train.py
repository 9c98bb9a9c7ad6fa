"""Workers of Ray Train, recorded by ``ddt-notebook run``: most in one cluster, to save time."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.jobs.recorded_job import snapshot_of_folder
from ddt_notebook.model.frameworks.ray import BARRIER, BROADCAST, REPORT
from tests.multiprocess.ray_clusters import PATIENT, own_cluster
from tests.multiprocess.test_jobs import Job

from .ray_programs import FAULTS, LOADER, SHARDS, in_cluster

# `make test-hosts` installs Ray without what its part for training needs
if any(importlib.util.find_spec(name) is None for name in ("ray", "pyarrow")):
    pytest.skip("make test-ray installs Ray Train", allow_module_level=True)

#: Ray starts a dozen processes, which takes some minutes on a busy machine.
_LIMIT_S = 500
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster() -> Iterator[int]:
    with own_cluster(nodes=1, cpus=3) as owner:
        yield owner


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Job]]:
    monkeypatch.chdir(tmp_path)
    started: list[Job] = []

    def start(source: str, **environment: str) -> Job:
        Path("train.py").write_text(source)
        command = ("--on-hang", "stop", "--", sys.executable, "train.py")
        settings = {
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            **PATIENT,
            **environment,
        }
        started.append(Job(tmp_path / "record", *command, **settings))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def _is_healthy(started: Job, expected: list[str]) -> None:
    snapshot = started.reported(_LIMIT_S)
    report = diagnose(snapshot)
    assert (snapshot.world_size, snapshot.outcome) == (2, "ok"), str(report)
    assert not report.findings, str(report)
    assert not report.hints, str(report)
    meetings = [
        [call.op for call in rank.calls if call.op in (BARRIER, BROADCAST, REPORT)]
        for rank in snapshot_of_folder(started.folder).ranks
    ]
    assert meetings == [expected] * 2


def test_a_script_that_starts_ray_is_recorded_unchanged(job: Callable[..., Job]) -> None:
    # else it would enter any cluster that runs on this machine
    _is_healthy(job(LOADER, RAY_ADDRESS="local"), [BROADCAST, *[REPORT] * 3, BARRIER])


def test_healthy_shards_stay_quiet(cluster: int, job: Callable[..., Job]) -> None:
    _is_healthy(job(in_cluster(SHARDS)), [REPORT] * 2)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_at_the_users_line(
    cluster: int, job: Callable[..., Job], name: str
) -> None:
    source, symptom, ranks, named = FAULTS[name]
    report = diagnose(job(in_cluster(source)).reported(_LIMIT_S))
    (finding,) = report.findings
    number = next(n for n, line in enumerate(source.splitlines(), 1) if line.strip() == named)
    told = {place.line for place in finding.places.values()}
    told |= {fact.place.line for fact in finding.facts if fact.place is not None}
    assert number in told, str(finding)
    assert (finding.symptom, finding.ranks) == (symptom, ranks), str(finding)
