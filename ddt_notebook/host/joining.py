"""Waits for the agents of a session, which somebody or an engine starts."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .agent_hub import AgentHub, HostAgent
from .errors import SessionError
from .join_key import VARIABLE
from .several_hosts import SeveralHosts

#: The first import of torch on a host may take long.
LIMIT_S = 600.0
_LOOK_EVERY_S = 0.1
_HOST = re.compile(r"(?P<name>[\w.@-]+?)(?::(?P<ranks>\d{1,4}))?")

#: Receives what to show while hosts are awaited; each text replaces the one before.
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class HostWanted:
    """A host that takes part, and how many ranks it starts."""

    name: str
    ranks: int


class Engine(Protocol):
    """Starts agents on hosts."""

    #: The address at which the notebook listens for them.
    address: str

    def start(self, hub: AgentHub) -> None:
        """Start one agent on each host.

        Raises
        ------
        SessionError
            If that fails.
        """

    def failures(self) -> dict[str, str]:
        """Why agents did not start, by host."""
        ...

    def host_of(self, agent: HostAgent) -> str:
        """The name that the user gave the host of an agent; empty if it is not known."""
        ...

    def stop(self) -> None:
        """End what was started."""


def parse_hosts(text: str) -> list[HostWanted]:
    """The hosts in ``"nodeA:4,nodeB:4"``; one without a number starts one rank.

    Raises
    ------
    SessionError
        If it is no such list.
    """
    found = []
    for part in text.split(","):
        match = _HOST.fullmatch(part.strip())
        if match is None or part.strip().startswith("-") or match["ranks"] == "0":
            raise SessionError(
                f"{part.strip()!r} is not a host with its number of ranks",
                "write nodeA:4,nodeB:4, without blanks",
            )
        found.append(HostWanted(match["name"], int(match["ranks"] or 1)))
    twice = {one.name for one in found if [o.name for o in found].count(one.name) > 1}
    if twice:
        raise SessionError(f"{min(twice)} is named twice", "write nodeA:4 for four ranks")
    return found


def own_address() -> str:
    """The address of this machine in its network.

    Raises
    ------
    SessionError
        If it has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing, and belongs to nobody (RFC 5737)
            return str(probe.getsockname()[0])
        except OSError as error:
            raise SessionError(
                "this machine has no address that other hosts can reach",
                "give one: %ddt_start --join ADDRESS",
            ) from error


@dataclass(slots=True)
class Joining:
    """Hosts on which somebody starts the agents: torchrun, srun, mpirun, kubectl, or by hand.

    Attributes
    ----------
    ranks, nodes
        How many ranks and hosts there are; each host gets the same number of ranks.
    address
        The address at which the notebook listens; empty for its own in the network.
    limit_s
        How long the hosts are waited for, in seconds.
    framework
        The framework for which the ranks are prepared; empty for none.
    """

    ranks: int
    nodes: int
    address: str = ""
    limit_s: float = LIMIT_S
    say: Say = field(default=lambda text: None)
    framework: str = ""

    def place(self) -> SeveralHosts:
        """Wait until all hosts are there.

        Raises
        ------
        SessionError
            If not all have come; its text says who is missing.
        """
        if self.nodes < 1 or self.ranks % self.nodes:
            raise SessionError(
                f"{self.ranks} ranks do not divide among {self.nodes} hosts",
                f"start {self.nodes} or a multiple of it",
            )
        hub = AgentHub(self.address or own_address(), framework=self.framework)
        try:
            hub.admitted = self.nodes
            command = f"{VARIABLE}={hub.key.to_text()} ddt-notebook agent {hub.address}:{hub.port}"
            agents = _gather(hub, self.nodes, self.limit_s, dict, self._shown(command))
        except BaseException:
            hub.close()
            raise
        each = self.ranks // self.nodes
        return SeveralHosts(hub, [(a, each) for a in sorted(agents, key=_by_number)])

    def _shown(self, command: str) -> Say:
        where = "the host" if self.nodes == 1 else f"each of {self.nodes} hosts"
        return lambda text: self.say(f"run this once on {where}: {command}\n{text}")


def start_with(
    engine: Engine,
    hosts: Sequence[HostWanted],
    *,
    limit_s: float = LIMIT_S,
    say: Say,
    framework: str = "",
) -> SeveralHosts:
    """Start an agent on each of these hosts by an engine, and wait for all of them.

    ``framework`` is that for which the ranks are prepared.

    Raises
    ------
    SessionError
        If not all have come; its text says who is missing and why.
    """
    hub: AgentHub | None = None
    try:
        hub = AgentHub(engine.address, framework=framework)
        hub.admitted = len(hosts)
        engine.start(hub)
        names = [one.name for one in hosts]
        agents = _gather(hub, len(hosts), limit_s, engine.failures, say, names, engine.host_of)
    except BaseException:
        if hub is not None:
            hub.close()
        engine.stop()  # it may hold nodes from the start, as an allocation does
        raise
    by_name = {engine.host_of(agent): agent for agent in agents}
    return SeveralHosts(hub, [(by_name[one.name], one.ranks) for one in hosts], engine.stop)


def _gather(
    hub: AgentHub,
    count: int,
    limit_s: float,
    failures: Callable[[], dict[str, str]],
    say: Say,
    names: Sequence[str] = (),
    host_of: Callable[[HostAgent], str] = lambda agent: agent.name,
) -> list[HostAgent]:
    """Wait until so many agents have joined and can start ranks; then admit no more."""
    until_s = time.monotonic() + limit_s
    while True:
        ready = hub.ready()
        if len(ready) >= count:
            break
        joined = [agent for agent in hub.agents if not agent.lost]
        text = _progress(joined, ready, count, names, host_of)
        if hub.refused:
            text += f"; one could not join: {hub.refused}"
        say(text)
        failed = failures()
        if failed:
            host, why = next(iter(failed.items()))
            raise SessionError(f"no agent could be started on {host}: {why}")
        if time.monotonic() > until_s:
            raise SessionError(f"not all hosts came within {limit_s:.0f} s: {text}")
        time.sleep(_LOOK_EVERY_S)
    hub.admitted = None
    for agent in ready:
        hub.align_clock(agent)
    return ready


def _progress(
    joined: Sequence[HostAgent],
    ready: Sequence[HostAgent],
    count: int,
    names: Sequence[str],
    host_of: Callable[[HostAgent], str],
) -> str:
    here = [host_of(agent) or agent.name for agent in joined]
    importing = [host_of(a) or a.name for a in joined if a not in ready]
    text = f"{len(here)} of {count} hosts have joined" + (f" ({', '.join(here)})" if here else "")
    if importing:
        text += (
            f"; {', '.join(importing)} still import torch"
            if len(importing) > 1
            else (f"; {importing[0]} still imports torch")
        )
    missing = [name for name in names if name not in here]
    if missing:
        text += f"; missing: {', '.join(missing)}"
    elif len(here) < count:
        text += f"; {count - len(here)} missing"
    return text


def _by_number(agent: HostAgent) -> list[tuple[int, str]]:
    """Sorts node10 behind node9."""
    parts = re.findall(r"\d+|\D+", agent.name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
