"""An agent passes on what it may, and keeps nothing of ranks that are over."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from ddt_notebook.host import agent as agents
from ddt_notebook.host.agent import Agent
from ddt_notebook.host.errors import SessionError
from ddt_notebook.wire.agent_messages import (
    CREDIT_BYTES,
    FILE_WINDOW,
    AgentHello,
    AgentWelcome,
    Credit,
    FileBytes,
    ProcessesSeen,
    RankBytes,
    RankClosed,
    StartHostRank,
)
from ddt_notebook.wire.messages import (
    ChildEnded,
    Done,
    Envelope,
    MakeDirectory,
    Message,
    ServerReady,
    Started,
)

_WAITS = 300


class _Server:
    """A fork server whose ranks are sockets; each has the process id of this process."""

    ready = usable = True

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self.commands: socket.socket | None = None
        self.questions: socket.socket | None = None
        self.status: int | None = None

    def fileno(self) -> int:
        return self._ours.fileno()

    def request(self, message: Message) -> Message:
        assert isinstance(message, MakeDirectory)
        Path(message.directory).mkdir()
        return Done()

    def start(self, request: Message, sockets: Sequence[int] = ()) -> Started:
        self.commands, self.questions = (socket.socket(fileno=os.dup(one)) for one in sockets)
        return Started(pid=os.getpid())

    def ended(self, pids: Sequence[int]) -> dict[int, int]:
        return {} if self.status is None else dict.fromkeys(pids, self.status)

    def close(self) -> None:
        for one in (self._ours, self._theirs, self.commands, self.questions):
            if one is not None:
                one.close()


class _Notebook:
    """The notebook that a test plays: what it sends, until it leaves."""

    peer = ("127.0.0.1", 9)

    def __init__(self, plays: Callable[[_Notebook], Iterator[Message | None]]) -> None:
        self._play = plays(self)
        self._next: Message | None = None
        self.payload: bytes | None = None
        self.sent: list[Envelope] = []
        self.watched: list[int] = []
        self.hello: AgentHello | None = None

    def of(self, kind: type[Message]) -> list[Envelope]:
        return [one for one in self.sent if isinstance(one.message, kind)]

    def wait(
        self, readers: list[int], writers: list[int], timeout_s: float
    ) -> tuple[list[int], list[int]] | None:
        self.watched = readers
        try:
            self._next = next(self._play)
        except StopIteration:
            return None
        readable, writable, _ = select.select(readers, writers, [], 0.01)
        return readable, writable

    def received(self) -> Iterator[Envelope]:
        if self._next is not None:
            yield Envelope(self._next, 1, self.payload)

    def send(self, message: Message, number: int = 0, payload: bytes | None = None) -> None:
        if isinstance(message, AgentHello):
            self.hello = message
        self.sent.append(Envelope(message, number, payload))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Server:
    made = _Server()
    monkeypatch.setattr(agents.surroundings, "temporary_folder", lambda: str(tmp_path))
    monkeypatch.setattr(agents.launcher, "ForkServerHandle", lambda *, warm, framework="": made)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "other")
    return made


def _serve(notebook: _Notebook) -> None:
    Agent(notebook, "lo", "", print).serve()  # type: ignore[arg-type]


def test_a_rank_that_prints_too_much_does_not_silence_its_monitor(server: _Server) -> None:
    def play(notebook: _Notebook) -> Iterator[Message | None]:
        yield AgentWelcome()
        yield StartHostRank(key=1, rank=0, fork=True)
        assert server.commands is not None
        assert server.questions is not None
        assert notebook.hello is not None
        printed = Path(notebook.hello.directory, "rank0.out")
        printed.write_bytes(b"x")
        while not notebook.of(FileBytes):
            yield None
        watched = len(notebook.watched)
        for _ in range(4):  # more than may be on its way, and less than is left out
            with printed.open("ab") as more:
                more.write(bytes(FILE_WINDOW // 3))
            yield from [None] * 10
        assert len(notebook.watched) == watched - 1
        server.commands.send(b"behind the output")
        server.questions.send(b"an answer")
        yield from [None] * 5
        assert [one.payload for one in notebook.of(RankBytes)] == [b"an answer"]
        sizes = [len(one.payload or b"") for one in notebook.of(FileBytes)]
        yield Credit(key=0, connection="commands", size=sum(sizes))
        for _ in range(_WAITS):
            if len(notebook.of(RankBytes)) > 1:
                break
            yield None
        assert notebook.of(RankBytes)[-1].payload == b"behind the output"

    _serve(_Notebook(play))


def test_a_rank_that_is_over_leaves_no_descriptor(server: _Server) -> None:
    def play(notebook: _Notebook) -> Iterator[Message | None]:
        yield AgentWelcome()
        yield None
        before = os.listdir("/proc/self/fd")
        yield StartHostRank(key=1, rank=0, fork=True)
        assert notebook.hello is not None
        Path(notebook.hello.directory, "rank0.out").write_bytes(b"last words")
        assert server.commands is not None
        assert server.questions is not None
        server.commands.close()
        server.questions.close()
        server.status = 0
        yield RankClosed(key=1, connection="commands")
        yield RankClosed(key=1, connection="questions")
        for _ in range(_WAITS):
            if len(os.listdir("/proc/self/fd")) <= len(before):
                break
            yield None
        assert len(os.listdir("/proc/self/fd")) <= len(before)
        assert [one.payload for one in notebook.of(FileBytes)] == [b"last words"]
        assert notebook.of(ChildEnded)
        assert notebook.of(ServerReady)

    _serve(_Notebook(play))


def test_the_interface_that_was_chosen_counts(server: _Server) -> None:
    _serve(_Notebook(lambda _: iter(())))
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"


def test_a_notebook_that_never_answers_is_left(
    server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "_WELCOME_LIMIT_S", 0.0)

    def play(notebook: _Notebook) -> Iterator[Message | None]:
        yield from [None] * _WAITS

    with pytest.raises(SessionError, match="another version"):
        _serve(_Notebook(play))


def test_short_messages_are_passed_on_without_further_ones(server: _Server) -> None:
    def play(notebook: _Notebook) -> Iterator[Message | None]:
        yield AgentWelcome()
        yield StartHostRank(key=1, rank=0, fork=True)
        assert server.commands is not None
        yield from [None] * 3
        before = len(notebook.sent)
        for _ in range(3):
            notebook.payload = b"a cell"
            yield RankBytes(key=1, connection="commands")
            assert server.commands.recv(100) == b"a cell"
            server.commands.send(b"its end")
            yield from [None] * 3
        sent = [type(one.message) for one in notebook.sent[before:]]
        assert [kind for kind in sent if kind is not ProcessesSeen] == [RankBytes] * 3

    _serve(_Notebook(play))


def test_much_that_was_passed_on_is_acknowledged(server: _Server) -> None:
    def play(notebook: _Notebook) -> Iterator[Message | None]:
        yield AgentWelcome()
        yield StartHostRank(key=1, rank=0, fork=True)
        assert server.commands is not None
        server.commands.setblocking(False)
        for _ in range(2):
            notebook.payload = bytes(CREDIT_BYTES)
            yield RankBytes(key=1, connection="commands")
            left = CREDIT_BYTES
            while left:
                with suppress(BlockingIOError):
                    left -= len(server.commands.recv(left))
                yield None
        yield from [None] * 3
        assert sum(one.message.size for one in notebook.of(Credit)) == 2 * CREDIT_BYTES  # type: ignore[attr-defined]
        assert len(notebook.of(Credit)) == 2

    _serve(_Notebook(play))
