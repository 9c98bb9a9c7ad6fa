"""The hosts of a session as the place of its ranks: starts them there, and stands for them here."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from ..wire.agent_messages import (
    AskFile,
    AskMemory,
    Connection,
    MemoryTold,
    RankFile,
    SignalProcess,
    StartHostRank,
)
from ..wire.branch_ring import BranchLog, BranchRingReader
from ..wire.channel import Channel, channel_pair
from ..wire.messages import RankSpec, StartStore
from .agent_hub import AgentHub, HostAgent
from .errors import SessionError
from .place import HostProcess, Place, StartedRank, StartedStore

_ANSWER_LIMIT_S = 0.5


class HostProcessThere:
    """A process on the host of an agent."""

    def __init__(self, hub: AgentHub, agent: HostAgent, pid: int) -> None:
        self.host = agent.name
        self.pid = pid
        self._hub, self._agent = hub, agent

    @property
    def exists(self) -> bool:
        """Whether its end has not been reported."""
        return self.pid in self._agent.pids

    @property
    def ending(self) -> bool:
        """Whether its end has been reported."""
        return not self.exists

    @property
    def host_lost(self) -> bool:
        """Whether its host no longer answers, so that nobody knows how it ended."""
        return bool(self._agent.lost)

    @property
    def stopped(self) -> bool:
        """Whether the operating system of its host has suspended it."""
        return self.pid in self._agent.seen.stopped

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        if self.exists:
            self._hub.tell(self._agent, SignalProcess(pid=self.pid, number=number))

    def used(self) -> tuple[float, float]:
        """The processor time that it had used when its agent last looked, and when that was."""
        seen = self._agent.seen
        return seen.used_s.get(self.pid, 0.0), seen.at_s

    def _memory(self, cap: int | None = None) -> MemoryTold:
        with suppress(SessionError):
            asked = AskMemory(pid=self.pid, cap_bytes=cap)
            told = self._hub.request(self._agent, asked, _ANSWER_LIMIT_S)
            if isinstance(told, MemoryTold):
                return told
        return MemoryTold()

    def memory_share(self) -> int:
        """Its share of the memory of its host, in bytes."""
        return self._memory().share

    def resident_bytes(self) -> int | None:
        """Its resident set size."""
        return self._memory().resident

    def allocated_bytes(self, cap: int) -> int | None:
        """What it has allocated since its limit was set."""
        return self._memory(cap).allocated


class _CopiedBranches(BranchRingReader):
    """The branch events of a rank on another host, which are copied when they are needed."""

    def __init__(self, path: Path, refresh: Callable[[], None]) -> None:
        super().__init__(path)
        self._refresh = refresh

    @property
    def has_events(self) -> bool:
        """Whether the current run has had any events."""
        self._refresh()
        return super().has_events

    def read(self) -> BranchLog:
        """The events of the current run, as far as they are kept."""
        self._refresh()
        return super().read()


class SeveralHosts:
    """The hosts of one session, each with an agent.

    Parameters
    ----------
    hub
        The connections to the agents, which have all joined.
    slots
        Each agent and how many ranks it starts, in the order of the ranks.
    engine
        Ends what has started the agents.
    """

    def __init__(
        self,
        hub: AgentHub,
        slots: list[tuple[HostAgent, int]],
        engine: Callable[[], None] | None = None,
    ) -> None:
        self.hub = hub
        self._slots = slots
        self._engine = engine
        self._running: dict[int, int] = {}  # the key of each rank
        self._cleaner: subprocess.Popen[bytes] | None = None

    @property
    def agents(self) -> list[HostAgent]:
        """The agent of each host, in the order of the ranks."""
        return [agent for agent, _ in self._slots]

    @property
    def framework(self) -> str:
        """The framework that the agents have imported for their ranks; empty for none."""
        return self.hub.framework

    @property
    def usable(self) -> bool:
        return any(not agent.lost for agent, _ in self._slots)

    @property
    def machines(self) -> int:
        return len(self._slots)

    @property
    def complete(self) -> bool:
        return not any(agent.lost for agent, _ in self._slots)

    def fileno(self) -> int:
        return self.hub.fileno()

    def open(self) -> None:
        self._refuse_if_lost(agent for agent, _ in self._slots)

    @staticmethod
    def _refuse_if_lost(agents: Iterable[HostAgent]) -> None:
        for agent in agents:
            if agent.lost:
                raise SessionError(
                    f"{agent.name} {agent.lost}", "stop this session and start one with all hosts"
                )

    def make_directory(self, directory: Path) -> None:
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if self._cleaner is None:  # removes it when the notebook has ended in any way
            self._cleaner = subprocess.Popen(
                ["/bin/sh", "-c", 'trap "" INT TERM; read -r _; exec rm -rf -- "$0"', directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def remove_directory(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        if self._cleaner is not None and self._cleaner.stdin is not None:
            self._cleaner.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._cleaner.wait(5.0)
            self._cleaner = None

    def start_store(self, directory: Path) -> StartedStore:
        agent = self._slots[0][0]
        address = agent.hello.address
        started = self.hub.start(agent, StartStore(address=address))
        return StartedStore(HostProcessThere(self.hub, agent, started.pid), address, started.port)

    def start_rank(self, spec: RankSpec, *, fork: bool) -> StartedRank:
        node, local_rank = self._place_of(spec.rank)
        agent, count = self._slots[node]
        self._refuse_if_lost([agent])
        files = Path(spec.directory, f"rank{spec.rank}")
        if spec.rank in self._running:
            self.hub.forget(self._running.pop(spec.rank))
        for kind in get_args(RankFile):  # not by a pattern: the folder has the files of all ranks
            files.with_name(f"{files.name}.{kind}").unlink(missing_ok=True)
        commands, rank_commands = channel_pair()
        questions, rank_questions = channel_pair()
        ours: dict[Connection, Channel] = {"commands": commands, "questions": questions}
        theirs: dict[Connection, socket.socket] = {
            "commands": rank_commands,
            "questions": rank_questions,
        }
        key = self._running[spec.rank] = self.hub.open_streams(agent, files, theirs)
        for name, channel in ours.items():
            channel.divert(partial(self.hub.pass_on, key, name))
        started = self.hub.start(agent, StartHostRank(key=key, rank=spec.rank, fork=fork))
        commands.send(
            replace(
                spec,
                local_rank=local_rank,
                local_world_size=count,
                node=node,
                nodes=len(self._slots),
                directory=agent.hello.directory,
            )
        )

        def refresh() -> None:
            with suppress(SessionError):
                self.hub.request(agent, AskFile(key=key, file="branches"), _ANSWER_LIMIT_S)

        return StartedRank(
            process=HostProcessThere(self.hub, agent, started.pid),
            commands=commands,
            questions=questions,
            files=files,
            ahead_s=agent.ahead_s,
            wall_s=agent.hello.wall_s,
            branches=lambda path: _CopiedBranches(path, refresh),
        )

    def _place_of(self, rank: int) -> tuple[int, int]:
        for node, (_, count) in enumerate(self._slots):
            if rank < count:
                return node, rank
            rank -= count
        raise SessionError(f"no host has room for rank {rank}")

    def ended(self, processes: Iterable[HostProcess]) -> dict[tuple[str, int], int]:
        return self.hub.ended((process.host, process.pid) for process in processes)

    def shares_with(self, other: Place) -> bool:
        return other is self

    def rest(self) -> None:
        """Nothing: the agents stay, since nobody could start them again."""

    def close(self) -> None:
        self.hub.close()
        if self._engine is not None:
            self._engine()

    def process_ids(self) -> list[int]:
        return [self._cleaner.pid] if self._cleaner is not None else []
