"""Jobs of TensorFlow that a shell starts, recorded by ``ddt-notebook run``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddt_notebook.diagnosis import diagnose
from tests.multiprocess.test_jobs import Job
from tests.trainers.programs import program

from .tensorflow_programs import CUSTOM_LOOP, FIT

if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("tf_keras") is None:
    pytest.skip("make test-tensorflow installs TensorFlow", allow_module_level=True)

#: Two imports of TensorFlow take a minute on a busy machine.
_LIMIT_S = 250
_RANK = """
import json, os
rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
"""
#: Starts two workers, as a launcher would.
_WORKERS = """
import json, os, socket, subprocess, sys

kept = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
addresses = ["127.0.0.1:%d" % one.getsockname()[1] for one in kept]
for one in kept:
    one.close()
workers = []
for index in range(2):
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    environment = os.environ | {"TF_CONFIG": json.dumps(config), "TF_CPP_MIN_LOG_LEVEL": "3"}
    workers.append(subprocess.Popen([sys.executable, "train.py"], env=environment))
sys.exit(max(worker.wait() for worker in workers))
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Job]]:
    monkeypatch.chdir(tmp_path)
    started: list[Job] = []

    def start(source: str) -> Job:
        Path("train.py").write_text(_RANK + source)
        Path("workers.py").write_text(_WORKERS)
        command = ("--on-hang", "stop", "--", sys.executable, "workers.py")
        started.append(Job(tmp_path / "record", *command))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def test_a_job_of_workers_records_what_a_session_does(job: Callable[[str], Job]) -> None:
    loss = "tf.nn.compute_average_loss(losses[:, 0], global_batch_size=16)"
    source = CUSTOM_LOOP.replace(loss, "tf.reduce_mean(losses)")
    snapshot = job(source).reported(_LIMIT_S)
    assert (snapshot.framework, snapshot.world_size) == ("tensorflow", 2)
    assert [sum(call.op == "train_step()" for call in one.calls) for one in snapshot.ranks] == [
        6,
        6,
    ]
    (finding,) = diagnose(snapshot).findings
    assert finding.cause == "tensorflow-loss-not-divided"
    at = 1 + (_RANK + source).splitlines().index("            loss = tf.reduce_mean(losses)")
    assert {place.line for place in finding.places.values()} == {at}
    read = [loader.epochs for one in snapshot.partition for loader in one.loaders]
    assert [len(epochs) for epochs in read] == [2, 2]


def test_a_job_that_hangs_is_named_and_stopped(job: Callable[[str], Job]) -> None:
    source = program(FIT, "at the end", 'if rank == 0:\n    model.save("saved")')
    (finding,) = diagnose(job(source).reported(_LIMIT_S)).findings
    assert (finding.symptom, finding.cause) == ("D.2.1", "tensorflow-chief-alone")
    assert (finding.ranks, finding.waiting) == ([1], [0])
    assert not any(fact.kind == "before-training" for fact in finding.facts)
