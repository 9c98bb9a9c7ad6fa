"""Each fault of several hosts is produced on two hosts, and found. `make test-hosts` runs this."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import ddt_notebook as ddt
from ddt_notebook.faults import HostCard, host_cards
from ddt_notebook.host import host_comparison
from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.joining import Joining

from .network import Network, Shown, as_host

pytestmark = pytest.mark.skipif(
    not os.environ.get("DDT_TEST_HOSTS"), reason="takes long: make test-hosts runs it"
)
LIMIT_S = 200
#: A host does not come back after these, so they are the last ones.
CARDS = sorted(host_cards().values(), key=lambda card: not card.undo)


@contextmanager
def started(before: str = "") -> Iterator[tuple[Network, ddt.Session]]:
    network = Network(before={2: before})
    try:
        try:
            network.make()
            subprocess.run(as_host(1, ["true"]), check=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"the system permits no further networks: {error}")
        place = Joining(4, 2, network.address, limit_s=LIMIT_S, say=Shown(network)).place()
        with ddt.Session(4, hosts=place) as session:
            yield network, session
    finally:
        network.remove()


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Network, ddt.Session]]:
    with started() as both:
        yield both


def do(network: Network, commands: tuple[str, ...]) -> None:
    known = {f"node{number}": f"{network.prefix}.{number}" for number in (1, 2)}
    for command in commands:
        text = command.format(names=network.names, **known)
        there = ["ip", "netns", "exec", network.hosts[1], "sh", "-c", text]
        done = subprocess.run(there, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            pytest.skip(f"the system cannot do this: {text}: {done.stderr.strip()}")


def found_by_doctor(card: HostCard) -> list[str]:
    view = ddt.doctor(bandwidth=card.bandwidth)
    named = [check.name for check in view.checks if check.card == card.id]
    assert all(check.verdict != "ok" for check in view.checks if check.card)
    return [name for name in named if name.startswith(card.check)]


def test_an_agent_that_starts_differently_is_found() -> None:
    cards = [card for card in CARDS if card.agent]
    missing = [card.agent for card in cards if not shutil.which(card.agent.split()[0])]
    if missing:
        pytest.skip(f"there is no {missing[0].split()[0]}")
    with started(" ".join(card.agent for card in cards)):
        for card in cards:
            assert found_by_doctor(card)


@pytest.mark.parametrize(
    "card", [card for card in CARDS if not card.agent], ids=lambda card: card.id
)
def test_a_fault_of_hosts_is_produced_and_found(
    card: HostCard, hosts: tuple[Network, ddt.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, session = hosts
    monkeypatch.setattr(host_comparison, "STEP_LIMIT_S", 1.0)
    assert not found_by_doctor(card)  # before it is produced
    try:
        do(network, card.commands)
        if card.cell:
            report = ddt.diagnose(session.run(card.cell))
            assert card.cause in [finding.cause for finding in report.findings], str(report)
        if card.check:
            assert found_by_doctor(card)
    finally:
        do(network, card.undo)
    if card.undo:
        with_all = "total = torch.ones(1)\ndist.all_reduce(total)\ntotal.item()"
        try:
            run = session.run(with_all)
        except SessionError:  # the ranks that failed could not meet again meanwhile
            session.restart()
            run = session.run(with_all)
        assert run.outputs[3] == "4.0\n"
