"""Asks the hosts of a session what they are, and lets each one try to reach each other one."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..model.hosts import HostFacts, Pair, Trial
from ..wire.agent_messages import (
    AskFacts,
    EndTrials,
    FactsTold,
    ListenForTrials,
    TrialEnded,
    TrialListening,
    TryConnection,
)
from ..wire.messages import Message
from .agent_hub import AgentHub, HostAgent
from .errors import SessionError

_Item = TypeVar("_Item")
#: Limit for each step of a trial, and for an answer without a trial.
STEP_LIMIT_S, _ANSWER_LIMIT_S = 3.0, 8.0
_BANDWIDTH_BYTES = 1 << 24


def ask_facts(
    hub: AgentHub, agents: Sequence[HostAgent], variables: Iterable[str]
) -> tuple[dict[str, HostFacts], dict[str, float], dict[str, str]]:
    """The facts of each host.

    Returns
    -------
    tuple
        By host: its facts; its wall clock minus that of this machine, in seconds; and why it did
        not answer.
    """
    facts: dict[str, HostFacts] = {}
    ahead_s: dict[str, float] = {}
    failed: dict[str, str] = {}
    asked = AskFacts(variables=tuple(variables))
    here_s = time.time() - time.monotonic()

    def ask(agent: HostAgent) -> None:
        try:
            told = hub.request(agent, asked, _ANSWER_LIMIT_S)
        except SessionError as error:
            failed[agent.name] = str(error)
            return
        if isinstance(told, FactsTold):
            facts[agent.name] = told.facts
            ahead_s[agent.name] = told.facts.wall_s + agent.ahead_s - here_s

    _for_each(ask, agents)
    order = [agent.name for agent in agents]
    return {name: facts[name] for name in order if name in facts}, ahead_s, failed


def try_connections(
    hub: AgentHub,
    agents: Sequence[HostAgent],
    *,
    bandwidth: bool = False,
    only: Collection[Pair] | None = None,
) -> tuple[dict[Pair, Trial], dict[str, str]]:
    """Let each host connect to each other one, and measure.

    At any time, each host takes part in one trial at most, and the two directions of a connection
    are tried one after the other: the answers on one way would wait behind the data on a slow way
    back.

    Parameters
    ----------
    hub, agents
        The hosts.
    bandwidth
        Whether to send long messages, too.
    only
        Which connections to try; default: all.

    Returns
    -------
    tuple
        The trials, and by host, why it could not take part.
    """
    failed: dict[str, str] = {}
    trials: dict[Pair, Trial] = {}
    listening: dict[str, tuple[int, str]] = {}
    limit_s = 4 * STEP_LIMIT_S + (10 * STEP_LIMIT_S if bandwidth else 0)

    def ask(agent: HostAgent, asked: Message, within_s: float) -> Message | None:
        try:
            return hub.request(agent, asked, within_s)
        except SessionError as error:
            failed[agent.name] = str(error)
            return None

    def listen(agent: HostAgent) -> None:
        token = secrets.token_hex(16)
        asked = ListenForTrials(token=token, limit_s=2 * limit_s * len(agents))
        told = ask(agent, asked, _ANSWER_LIMIT_S)
        if isinstance(told, TrialListening):
            listening[agent.name] = told.port, token

    def attempt(pair: tuple[HostAgent, HostAgent]) -> None:
        this, other = pair
        if other.name not in listening or not (only is None or (this.name, other.name) in only):
            return
        port, token = listening[other.name]
        asked = TryConnection(
            address=other.hello.address,
            port=port,
            token=token,
            limit_s=STEP_LIMIT_S,
            size=_BANDWIDTH_BYTES if bandwidth else 0,
        )
        told = ask(this, asked, limit_s + _ANSWER_LIMIT_S)
        if isinstance(told, TrialEnded):
            trials[this.name, other.name] = told.trial

    try:
        _for_each(listen, agents)
        for pairs in _rounds(agents):
            _for_each(attempt, pairs)
            _for_each(attempt, [(other, this) for this, other in pairs])
    finally:
        for agent in agents:
            hub.tell(agent, EndTrials())
    order = [agent.name for agent in agents]
    of_all = [(one, other) for one in order for other in order]
    return {pair: trials[pair] for pair in of_all if pair in trials}, failed


def _rounds(items: Sequence[_Item]) -> Iterator[list[tuple[_Item, _Item]]]:
    """All pairs, in rounds in which nobody is in two of them."""
    if not items:
        return
    first, *others = [*items, None] if len(items) % 2 else [*items]
    for shift in range(len(others)):
        row = [first, *others[shift:], *others[:shift]]
        pairs = zip(row[: len(row) // 2], reversed(row), strict=False)
        yield [(one, two) for one, two in pairs if one is not None and two is not None]


def _for_each(do: Callable[[_Item], None], items: Sequence[_Item]) -> None:
    """Do it for all at the same time; raises the first error."""
    with ThreadPoolExecutor(max(1, len(items)), "ddt-hosts") as pool:
        for done in [pool.submit(do, item) for item in items]:
            done.result()
