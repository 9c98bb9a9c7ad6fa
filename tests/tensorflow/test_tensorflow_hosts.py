"""Workers of TensorFlow on two hosts that are network namespaces with names of their own."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.joining import Joining
from tests.multiprocess.network import Network, Shown, as_host
from tests.trainers.programs import program

from .tensorflow_programs import CUSTOM_LOOP, FIT

if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("tf_keras") is None:
    pytest.skip("make test-tensorflow installs TensorFlow", allow_module_level=True)

#: Two imports of TensorFlow take a minute on a busy machine.
_LIMIT_S = 250


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network()
    try:
        made.make()
        subprocess.run(as_host(1, ["true"]), check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        made.remove()
        pytest.skip(f"the system permits no further networks: {error}")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def session(network: Network) -> Iterator[ddt.Session]:
    joining = Joining(2, 2, network.address, _LIMIT_S, Shown(network), framework="tensorflow")
    place = joining.place()
    with ddt.Session(2, hosts=place, framework="tensorflow", hang_after=0.5) as session:
        yield session


def test_workers_of_two_hosts_train_together(session: ddt.Session, network: Network) -> None:
    result = session.run(f"{CUSTOM_LOOP}\nprint(os.environ['TF_CONFIG'])")
    report = ddt.diagnose(result)
    assert result.ok, str(report)
    assert not report.findings, str(report)
    assert [f"{network.prefix}.{number}:" in result.outputs[0] for number in (1, 2)] == [True] * 2
    losses = {text.partition("{")[0] for text in result.outputs.values()}
    assert len(losses) == 1, "the strategy sums the losses of both hosts"


def test_a_hang_between_hosts_is_named_and_the_next_program_trains(session: ddt.Session) -> None:
    source = program(FIT, "at the end", 'if rank == 0:\n    model.save("saved")')
    result = session.run(source)
    (finding,) = ddt.diagnose(result).findings
    assert (finding.symptom, finding.cause) == ("D.2.1", "tensorflow-chief-alone")
    assert (finding.ranks, finding.waiting) == ([1], [0])
    assert "rank 1 · node2" in finding.title
    assert not [report.rank for report in result.snapshot.ranks if report.killed]
    assert session.run(CUSTOM_LOOP).ok
