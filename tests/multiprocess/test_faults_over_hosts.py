"""The held-out faults on two hosts that are network namespaces: the findings are those of one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.agent_hub import AgentHub, HostAgent
from ddt_notebook.host.joining import HostWanted, start_with

from ..fixtures.cases import CELL, Case, load
from .conftest import Ranks
from .network import Network, as_host
from .processes import gone

pytestmark = pytest.mark.skipif(
    not os.environ.get("DDT_TEST_HOSTS"), reason="takes long: make test-hosts runs it"
)
_HELPERS_CELL = CELL + 3


class Namespaces:
    """Starts the agents of a network's hosts."""

    def __init__(self, network: Network) -> None:
        self.address = network.address
        self._network = network
        self._started: list[subprocess.Popen[str]] = []

    def start(self, hub: AgentHub) -> None:
        command = f"DDT_JOIN={hub.key.to_text()} ddt-notebook agent {hub.address}:{hub.port}"
        self._started = self._network.start_agents(f"run this: {command}")

    def failures(self) -> dict[str, str]:
        return {}

    def host_of(self, agent: HostAgent) -> str:
        return agent.name

    def stop(self) -> None:
        for process in self._started:
            process.wait(60)


class RanksOfHosts(Ranks):
    """Each session has the first half of its ranks on one host and the others on another one."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network
        self._agents: list[int] = []

    def session(self, n: int, *, group: bool = True) -> ddt.Session:
        if (n, group) not in self._sessions:
            wanted = [HostWanted("node1", n - n // 2), HostWanted("node2", n // 2)]
            place = start_with(
                Namespaces(self._network), wanted, limit_s=200, say=lambda text: None
            )
            self._agents += [agent.hello.pid for agent in place.hub.agents]
            self._sessions[n, group] = ddt.Session(
                n, hosts=place, group=group, timeout=10.0, hang_after=0.5
            )
        return self._sessions[n, group]

    def _note(self, session: ddt.Session) -> None:
        """An agent ends its ranks, and `stop` looks for the agents."""

    def stop(self) -> None:
        super().stop()
        assert gone(self._agents, within_s=30)


@pytest.fixture(scope="module")
def ranks_of_hosts() -> Iterator[RanksOfHosts]:
    network = Network()
    try:
        network.make()
        subprocess.run(as_host(1, ["true"]), check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        network.remove()
        pytest.skip(f"the system permits no further networks: {error}")
    made = RanksOfHosts(network)
    try:
        yield made
        made.stop()
    finally:
        network.remove()


@pytest.mark.parametrize("case", load("held_out_faults"), ids=lambda case: case.name)
def test_fault_in_a_program_of_another_style(ranks_of_hosts: RanksOfHosts, case: Case) -> None:
    if case.earlier:
        session = ranks_of_hosts.session(case.n, group=case.group)
        session.run_cell(case.earlier, number=_HELPERS_CELL)
    run = ranks_of_hosts.check(case)
    assert set(run.snapshot.hosts.values()) == {"node1", "node2"}
    ranks_of_hosts.check_still_usable(case, run.lost)
