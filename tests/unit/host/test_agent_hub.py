"""What the notebook answers to agents that behave in another way than expected."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ddt_notebook.host import agent_link
from ddt_notebook.host.agent_hub import AgentHub, HostAgent
from ddt_notebook.host.agent_link import AgentLink
from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.joining import HostWanted, start_with
from ddt_notebook.wire.agent_messages import (
    CREDIT_BYTES,
    AgentHello,
    AgentWelcome,
    AskClock,
    Credit,
    EndAgent,
    FileBytes,
    RankBytes,
)
from ddt_notebook.wire.channel import Channel, channel_pair
from ddt_notebook.wire.messages import Done, Failed, Message

from .builders import is_ended_though_it_sends_on

HELLO = AgentHello(
    host="node1", pid=1, address="127.0.0.1", interface="lo", directory="/none", wall_s=0.0
)
#: What a version with other fields may send.
OTHER_HELLO = replace(HELLO, host=7)  # type: ignore[arg-type]
_LIMIT_S = 30.0


@pytest.fixture
def hub() -> Iterator[AgentHub]:
    made = AgentHub("127.0.0.1")
    made.admitted = 1
    yield made
    made.close()


@pytest.fixture
def link(hub: AgentHub) -> Iterator[AgentLink]:
    made = AgentLink("127.0.0.1", hub.port, hub.key)
    yield made
    made.close()


def _next(link: AgentLink) -> Message:
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline and link.wait([], [], 0.1) is not None:
        for envelope in link.received():
            return envelope.message
    raise AssertionError("nothing was answered")


def test_files_of_a_forgotten_rank_are_acknowledged(hub: AgentHub, link: AgentLink) -> None:
    link.send(HELLO)
    assert isinstance(_next(link), AgentWelcome)
    block = bytes(CREDIT_BYTES // 2)
    for _ in range(2):  # one credit for both
        link.send(FileBytes(key=7, file="out", size=0, pieces=((0, len(block)),)), payload=block)
    assert _next(link) == Credit(key=0, connection="commands", size=CREDIT_BYTES)


def test_an_agent_of_another_version_is_told_why_it_cannot_join(
    hub: AgentHub, link: AgentLink
) -> None:
    link.send(OTHER_HELLO)
    answer = _next(link)
    assert isinstance(answer, Failed)
    assert "host" in answer.error
    assert answer.error == hub.refused
    link.send(HELLO)
    assert isinstance(_next(link), AgentWelcome)
    assert not hub.refused


def test_an_agent_that_cannot_be_understood_is_ended(hub: AgentHub, link: AgentLink) -> None:
    link.send(HELLO)
    assert isinstance(_next(link), AgentWelcome)
    link.send(OTHER_HELLO)
    assert isinstance(_next(link), EndAgent)
    with pytest.raises(SessionError, match="sent what cannot be read"):
        hub.request(hub.agents[0], AskClock(), _LIMIT_S)


def test_a_stranger_who_sends_much_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, link: AgentLink, hub: AgentHub
) -> None:
    link.send(HELLO)
    assert isinstance(_next(link), AgentWelcome)
    monkeypatch.setattr(agent_link, "_HANDSHAKE_MS", 600_000)
    other = AgentHub("127.0.0.1")
    try:
        assert is_ended_though_it_sends_on(other.port)
    finally:
        other.close()
    # much of who has the key
    link.send(FileBytes(key=7, file="out", size=0, pieces=((0, 1 << 20),)), payload=bytes(1 << 20))
    assert _next(link) == Credit(key=0, connection="commands", size=1 << 20)


def test_short_messages_keep_their_place_among_long_ones(
    hub: AgentHub, link: AgentLink, tmp_path: Path
) -> None:
    link.send(HELLO)
    assert isinstance(_next(link), AgentWelcome)
    ours, theirs = channel_pair()
    key = hub.open_streams(hub.agents[0], tmp_path / "rank0", {"commands": theirs})
    ways: list[bool] = []

    def way(data: bytes, sent: int) -> bool:
        ways.append(hub.pass_on(key, "commands", data, sent))
        return ways[-1]

    ours.divert(way)
    arrived, rank = socket.socketpair()
    received = Channel(rank)
    with closing(ours), closing(received), arrived:
        deadline = time.monotonic() + _LIMIT_S
        while not hub._streams and time.monotonic() < deadline:
            time.sleep(0.01)
        for number in range(30):
            ours.send(Done(), number=number, payload=bytes(30_000) if number % 7 == 6 else None)
        numbers: list[int] = []
        reader = threading.Thread(
            target=lambda: numbers.extend(received.receive().number for _ in range(30)), daemon=True
        )
        reader.start()  # the rest of a message may come later than its beginning
        while reader.is_alive() and time.monotonic() < deadline:
            message = link.wait([], [], 0.1) and [*link.received()]
            for one in message or ():
                assert one.payload is not None
                arrived.sendall(one.payload)
        reader.join(1.0)
    assert numbers == [*range(30)]
    assert any(ways)


def test_answers_are_taken_though_another_thread_sends(
    monkeypatch: pytest.MonkeyPatch, hub: AgentHub, link: AgentLink, tmp_path: Path
) -> None:
    link.send(HELLO)
    assert isinstance(_next(link), AgentWelcome)
    ours, theirs = channel_pair()
    key = hub.open_streams(hub.agents[0], tmp_path / "rank0", {"commands": theirs})
    deadline = time.monotonic() + _LIMIT_S
    while not hub._streams and time.monotonic() < deadline:
        time.sleep(0.01)
    posted: list[object] = []
    post = hub._post
    monkeypatch.setattr(hub, "_post", lambda do: (posted.append(do), post(do)))
    # the thread looks again only when it is woken
    monkeypatch.setattr(agent_link.Listener, "look_again_ms", int(4e3 * _LIMIT_S))
    answers = 0
    with closing(ours):
        ours.divert(partial(hub.pass_on, key, "commands"))
        for number in range(300):
            ours.send(Done(), number=number)
            while link.wait([], [], 0.1) and time.monotonic() < deadline:
                if payloads := [one.payload for one in link.received()]:
                    break
            for payload in payloads:
                link.send(RankBytes(key=key, connection="commands"), payload=payload)
            if number % 3 == 0:  # else it sends while answers are on their way
                while answers <= number and ours.poll(_LIMIT_S):
                    assert ours.receive().number == answers
                    answers += 1
                assert answers == number + 1
    assert len(posted) < 150  # those for which the thread was at work


class _Engine:
    """Its agent, which has another version, dials before `start` returns."""

    address = "127.0.0.1"

    def __init__(self) -> None:
        self.link: AgentLink | None = None

    def start(self, hub: AgentHub) -> None:
        self.link = AgentLink("127.0.0.1", hub.port, hub.key)
        self.link.send(OTHER_HELLO)

    def failures(self) -> dict[str, str]:
        return {}

    def host_of(self, agent: HostAgent) -> str:
        return agent.hello.label

    def stop(self) -> None:
        if self.link is not None:
            self.link.close()


def test_an_agent_may_come_at_once_and_why_it_was_refused_is_shown() -> None:
    shown: list[str] = []
    with pytest.raises(SessionError, match=r"missing: node1; one could not join: .*host"):
        start_with(_Engine(), [HostWanted("node1", 1)], limit_s=1.0, say=shown.append)
