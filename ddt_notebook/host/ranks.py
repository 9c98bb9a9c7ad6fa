"""The notebook's handle on one rank's process."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ..model import Position, codec
from ..model.torch_features import MissingFeature
from ..wire.channel import Closed, channel_pair
from ..wire.ring import RingReader
from .launcher import ForkServerHandle
from .listener import Stream
from .outputs import Tail
from .recorder import RankRecorder, SourceLine

#: Without an answer for this long, a rank's monitor is taken to be unable to answer.
SILENT_AFTER_S = 1.5


@dataclass(frozen=True, slots=True)
class MonitorReply:
    """What a rank's monitor said last; times are monotonic seconds."""

    position: Position | None
    stack: tuple[Position, ...]
    groups: dict[str, tuple[int, int]]
    cpu_s: float
    memory_bytes: int
    at_s: float


class RankHandle:
    """Starts one rank and talks to it.

    Parameters
    ----------
    server
        The fork server that starts and watches it.
    fork
        True to fork it, False for an interpreter of its own.
    spec
        What the rank is told: see ``session.Session``.
    """

    def __init__(self, server: ForkServerHandle, *, fork: bool, spec: dict[str, Any]) -> None:
        self.rank: int = spec["rank"]
        self.names: list[str] = []
        self.recorded: dict[str, Any] = {}  # by fields of the snapshot, in a cell that was traced
        self.exit_status: int | None = None
        self.ready = False
        self.torch_version = self.device = ""
        self.missing_features: tuple[MissingFeature, ...] = ()
        directory = Path(spec["directory"])
        self._directory = directory
        self._requests = 0
        self._asked_s: float | None = None
        self.flight_owed = 0
        self._processor = (0.0, 0.0)
        self.status: MonitorReply | None = None
        self.earlier_status: MonitorReply | None = None
        self.commands, rank_commands = channel_pair()
        self.questions, rank_questions = channel_pair()
        with rank_commands, rank_questions:
            # a fresh log for a fresh process: the ring's count must start at 0
            (directory / f"rank{self.rank}.calls").unlink(missing_ok=True)
            descriptors = rank_commands.fileno(), rank_questions.fileno()
            what = {"do": "rank", "directory": spec["directory"], "fork": fork}
            self.pid: int = server.request(what, descriptors)["pid"]
        self._process = psutil.Process(self.pid)
        self.commands.send(spec)
        self.tails: dict[Stream, Tail] = {
            "stdout": Tail(directory / f"rank{self.rank}.out"),
            "stderr": Tail(directory / f"rank{self.rank}.err"),
        }
        for tail in self.tails.values():  # a replaced rank appends to its predecessor's text
            tail.read_all()
        self.recorder: RankRecorder | None = None

    def became_ready(self, message: dict[str, Any], source_line: SourceLine) -> None:
        """Take the rank's first message."""
        self.ready = True
        self.torch_version = message["torch"]
        self.take_missing(message)
        self.device = message["device"]
        ring_file = self._directory / f"rank{self.rank}.calls"
        if ring_file.exists():
            self.recorder = RankRecorder(RingReader(ring_file), source_line)

    def take_missing(self, message: dict[str, Any]) -> None:
        """Take which features are off on this rank, as its messages report them."""
        self.missing_features = tuple(
            codec.from_plain(MissingFeature, plain) for plain in message["missing_features"]
        )

    @property
    def alive(self) -> bool:
        """Whether its end has not been reported."""
        return self.exit_status is None

    def command(self, what: dict[str, Any], payload: bytes | None = None) -> int:
        """Send a command to the main thread; returns its number. A dead rank is skipped."""
        self._requests += 1
        with suppress(Closed):
            self.commands.send(what | {"id": self._requests}, payload)
        return self._requests

    def ask(self, what: str) -> None:
        """Ask the monitor; one question at a time, except for those that must not wait."""
        if what == "status":
            if self._asked_s is not None:
                return
            self._asked_s = time.monotonic()
        self.flight_owed += what in ("flight", "stacks")
        self._requests += 1
        with suppress(Closed):
            self.questions.send({"do": what, "id": self._requests})

    def take_answer(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Take what the monitor said; returns entries of the Flight Recorder if there are any."""
        if message["to"] == "status":
            self._asked_s = None
        if "cpu_s" in message:
            position = message["position"]
            self.earlier_status = self.status
            self.status = MonitorReply(
                position=codec.from_plain(Position, position) if position else None,
                stack=tuple(codec.from_plain(Position, frame) for frame in message["stack"]),
                groups={name: tuple(counts) for name, counts in message["groups"].items()},
                cpu_s=message["cpu_s"],
                memory_bytes=message["rss"],
                at_s=message["now_s"],
            )
        self.flight_owed -= message["to"] in ("flight", "stacks")
        entries: list[dict[str, Any]] = message.get("flight", [])
        return entries

    def forget_status(self) -> None:
        """What was said during an earlier cell says nothing about the next."""
        self.status = self.earlier_status = None
        self.recorded = {}
        self.processor_share()

    def processor_share(self) -> float:
        """How much of a processor it has used since this was last asked, as the system counts."""
        now_s, used_s = time.monotonic(), 0.0
        with suppress(psutil.NoSuchProcess):
            times = self._process.cpu_times()
            used_s = times.user + times.system
        before_s, used_before_s = self._processor
        self._processor = (now_s, used_s)
        return (used_s - used_before_s) / max(now_s - before_s, 1e-6)

    @property
    def silent_s(self) -> float:
        """For how long the monitor has owed an answer, in seconds."""
        return 0.0 if self._asked_s is None else time.monotonic() - self._asked_s

    @property
    def stopped(self) -> bool:
        """Whether the operating system has suspended it."""
        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)
        except psutil.NoSuchProcess:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if its end has not been reported (then the pid is still its own)."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def crash_text(self) -> str:
        """What faulthandler wrote when it crashed."""
        with suppress(OSError):
            return (self._directory / f"rank{self.rank}.crash").read_text(errors="replace")[-8000:]
        return ""

    def close(self) -> None:
        """Let go of everything on our side."""
        self.commands.close()
        self.questions.close()
        for tail in self.tails.values():
            tail.close()
        if self.recorder is not None:
            self.recorder.close()
