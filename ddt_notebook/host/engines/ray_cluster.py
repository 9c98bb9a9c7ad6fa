"""Starts agents by Ray, one on each node of a cluster that is there.

A placement group of one bundle a node (STRICT_SPREAD) reserves what the ranks use; in each bundle,
an actor starts the agent as a process of its own. Ray's part ends there: the agent reaches the
notebook as with any other engine. Checked with Ray 2.60.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..agent_hub import AgentHub, HostAgent
from ..errors import SessionError
from ..join_key import VARIABLE
from ..joining import LIMIT_S, HostWanted, Say
from .remote_agent import agent_command, end, printed_lines

_LOOK_EVERY_S = 0.5
_ANSWER_LIMIT_S = 5.0
_END_LIMIT_S = 8.0


class RayCluster:
    """The nodes of the Ray cluster to which this machine belongs.

    Parameters
    ----------
    ranks
        How many ranks to start, the same number on each node; None for one for each GPU of a node,
        or one for each CPU if there is no GPU.
    nodes
        How many nodes to use; None for all.
    address
        Where the notebook listens; empty for this machine's address in the cluster.
    limit_s
        How long to wait until Ray has reserved the nodes, in seconds.
    say
        Receives what is waited for.

    Attributes
    ----------
    hosts
        The nodes, and how many ranks each one starts.

    Raises
    ------
    SessionError
        If Ray is not installed, there is no cluster, or Ray does not reserve the nodes in time.
    """

    def __init__(
        self,
        ranks: int | None = None,
        nodes: int | None = None,
        address: str = "",
        *,
        limit_s: float = LIMIT_S,
        say: Say = lambda text: None,
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise SessionError(
                "Ray is not installed", "install it: pip install 'ddt-notebook[ray]'"
            ) from error
        self._ray = ray
        self._connected = not ray.is_initialized()
        if self._connected:
            _connect(ray)
        self._group: Any = None
        self._agents: dict[str, tuple[Any, Any]] = {}  # by node: the actor, its next answer
        self._ended: dict[str, str] = {}
        try:
            self.address = address or str(ray.util.get_node_ip_address())
            here = [node for node in ray.nodes() if node["Alive"]]
            names = node_names(here)
            count = len(here) if nodes is None else nodes
            each, bundle = share_of_node([node["Resources"] for node in here], count, ranks)
            placed = self._reserve(bundle, count, limit_s, say)
        except BaseException:
            self.stop()
            raise
        self._bundle = bundle
        numbers = {node: number for number, node in placed.items()}
        self._placed = {name: numbers[node] for node, name in names.items() if node in numbers}
        self.hosts = [HostWanted(name, each) for name in self._placed]

    def _reserve(
        self, bundle: Mapping[str, float], count: int, limit_s: float, say: Say
    ) -> dict[int, str]:
        """The node of each bundle."""
        util = self._ray.util
        self._group = util.placement_group([dict(bundle)] * count, strategy="STRICT_SPREAD")
        wanted = ", ".join(f"{amount:g} {name}" for name, amount in bundle.items())
        until_s = time.monotonic() + limit_s
        while not self._group.wait(_LOOK_EVERY_S):
            text = f"{wanted} on each of {count} nodes"
            say(f"waiting for Ray, which reserves {text} …")
            if time.monotonic() > until_s:
                raise SessionError(
                    f"Ray did not reserve {text} within {limit_s:.0f} s",
                    "ray status shows what others use",
                )
        table = util.placement_group_table(self._group)
        return {int(number): node for number, node in table["bundles_to_node_id"].items()}

    def start(self, hub: AgentHub) -> None:
        """Start one agent on each node."""
        strategies = self._ray.util.scheduling_strategies
        # the actor uses the whole bundle: Ray tells it, and so its ranks, which GPUs these are
        actor = self._ray.remote(
            num_cpus=self._bundle.get("CPU", 0), num_gpus=self._bundle.get("GPU", 0)
        )(_Agent)
        for name, number in self._placed.items():
            place = strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=number
            )
            made = actor.options(scheduling_strategy=place).remote()
            command = agent_command(f"{hub.address}:{hub.port}", shlex.quote(name))
            self._agents[name] = made, made.start.remote(command, hub.key.to_text())

    def failures(self) -> dict[str, str]:
        """Why agents did not start, by node."""
        left = {asked: name for name, (_, asked) in self._agents.items() if name not in self._ended}
        done = self._ray.wait(list(left), num_returns=len(left), timeout=0)[0] if left else []
        for answer in done:
            name = left[answer]
            try:
                why = self._ray.get(answer)
            except self._ray.exceptions.RayError as error:
                why = str(error).strip().splitlines()[-1][:300]
            if why:
                self._ended[name] = why
            else:
                made = self._agents[name][0]
                self._agents[name] = made, made.end.remote()
        return self._ended

    def host_of(self, agent: HostAgent) -> str:
        """The name of an agent's node."""
        return agent.hello.label

    def stop(self) -> None:
        """End what was started, give the nodes back, and leave the cluster if we entered it."""
        ray = self._ray
        if not ray.is_initialized():
            return
        with suppress(ray.exceptions.RayError):  # a node that is lost has ended its actor
            ray.get([made.stop.remote() for made, _ in self._agents.values()], timeout=_END_LIMIT_S)
        with suppress(ray.exceptions.RayError):
            for made, _ in self._agents.values():
                ray.kill(made)
            if self._group is not None:
                ray.util.remove_placement_group(self._group)
        self._agents, self._group = {}, None
        if self._connected:
            ray.shutdown()


class _Agent:
    """Runs in an actor of Ray, and holds the agent; no call waits for the agent's end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(self, command: str, key: str) -> str:
        """Start the agent, and return as `end` does."""
        self._said = tempfile.TemporaryFile("w+", prefix="ddt-ray-")  # noqa: SIM115
        self._process = subprocess.Popen(
            ["sh", "-c", command],
            env=os.environ | {VARIABLE: key},
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            text=True,
        )
        return self.end()

    def end(self) -> str:
        """The last line that the agent printed before it ended; empty while it runs."""
        status = self._process.poll() if self._process is not None else None
        if status is None:
            return ""
        return [f"the agent ended with exit code {status}", *printed_lines(self._said)][-1]

    def stop(self) -> None:
        """End the agent."""
        if self._process is not None:
            end(self._process)


def _connect(ray: Any) -> None:
    """Enter the cluster of this machine."""
    try:
        named = os.environ.get("RAY_ADDRESS", "").rpartition(":")
        if named[2].isdecimal():  # Ray itself would try for minutes
            socket.create_connection((named[0], int(named[2])), _ANSWER_LIMIT_S).close()
        ray.init(address="auto", log_to_driver=False, configure_logging=False)
    except OSError as error:  # Ray raises its ConnectionError if there is no cluster
        where = f"at RAY_ADDRESS={''.join(named)}" if named[2] else "on this machine"
        raise SessionError(
            f"no Ray cluster runs {where}",
            "start one with ray start --head, or run the notebook on a node of yours",
        ) from error


def node_names(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A name for each node, by its id: the host's, and a number where several have one host's.

    Parameters
    ----------
    nodes
        As ``ray.nodes()`` returns them.
    """
    seen: Counter[str] = Counter()
    found = {}
    for node in nodes:
        host = node["NodeManagerHostname"]
        seen[host] += 1
        found[node["NodeID"]] = host if seen[host] == 1 else f"{host}-{seen[host]}"
    return found


def share_of_node(
    resources: Sequence[Mapping[str, float]], nodes: int, ranks: int | None
) -> tuple[int, dict[str, float]]:
    """How many ranks each node starts, and what Ray has to reserve for them.

    Parameters
    ----------
    resources
        What each node of the cluster has, by Ray's names.
    nodes
        How many nodes are to be used.
    ranks
        How many ranks the user wants; None for no wish.

    Raises
    ------
    SessionError
        If the cluster has fewer nodes, or the ranks do not divide among them.
    """
    if nodes > len(resources):
        raise SessionError(
            f"the Ray cluster has {len(resources)} nodes, not {nodes}",
            "ray status lists them",
        )
    if ranks is not None and (ranks % nodes or ranks < 1):
        raise SessionError(
            f"{ranks} ranks do not divide among {nodes} nodes",
            f"start {nodes} or a multiple of it",
        )
    kind = "GPU" if any(one.get("GPU") for one in resources) else "CPU"
    amounts = sorted((int(one.get(kind, 0)) for one in resources), reverse=True)
    least = max(1, amounts[nodes - 1])
    each = least if ranks is None else ranks // nodes
    # without GPUs, ranks share the CPUs of their node
    return each, {kind: each if kind == "GPU" else min(each, least)}
