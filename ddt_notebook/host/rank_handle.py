"""The notebook's handle on one rank's process."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from ..model import Observation
from ..model.torch_features import MissingFeature
from ..wire.branch_ring import BranchRingReader
from ..wire.channel import Closed, channel_pair
from ..wire.messages import (
    AskBranches,
    AskFlight,
    AskStatus,
    BranchValues,
    Envelope,
    FlightEntries,
    Message,
    MonitorStatus,
    RankReady,
    RankSpec,
    StartRank,
)
from ..wire.records import FlightEntry
from ..wire.ring import RingReader
from .call_log_reader import RankRecorder, SourceLine
from .launcher import ForkServerHandle
from .listeners import Stream
from .output_files import Tail

#: A rank's monitor that has not answered for this long counts as unable to answer.
SILENT_AFTER_S = 1.5
#: What libstdc++ prints about an exception that nothing caught; ``what()`` may have several lines.
_ABORTED = re.compile(r"terminate called after throwing an instance of '[^\n]*\n\s*what\(\):[^\n]*")
_LAST_BYTES, _MAX_ABORT_TEXT = 16_000, 1_000


class RankHandle:
    """Starts one rank and talks to it.

    Parameters
    ----------
    server
        The fork server that starts and watches it.
    fork
        True to fork it, False to spawn it in a new interpreter.
    spec
        The specification of the rank.
    """

    def __init__(self, server: ForkServerHandle, *, fork: bool, spec: RankSpec) -> None:
        self.rank = spec.rank
        self.names: tuple[str, ...] = ()
        self.recorded: Observation | None = None  # in a traced cell
        self.exit_status: int | None = None
        self.ready = False
        self.torch_version = self.device = ""
        self.missing_features: tuple[MissingFeature, ...] = ()
        directory = Path(spec.directory)
        self._directory = directory
        self._requests = 0
        self._status_asked: tuple[int, float] | None = None  # number of the request, and when
        self._flight_asked: set[int] = set()
        self._processor = (0.0, 0.0)
        self.status: MonitorStatus | None = None
        self.earlier_status: MonitorStatus | None = None
        self.commands, rank_commands = channel_pair()
        self.questions, rank_questions = channel_pair()
        with rank_commands, rank_questions:
            # a new process needs a new log: the ring's count must start at 0
            (directory / f"rank{self.rank}.calls").unlink(missing_ok=True)
            (directory / f"rank{self.rank}.branches").unlink(missing_ok=True)
            descriptors = rank_commands.fileno(), rank_questions.fileno()
            request = StartRank(directory=spec.directory, fork=fork)
            self.pid = server.start(request, descriptors).pid
        self._process = psutil.Process(self.pid)
        self.commands.send(spec)
        self.tails: dict[Stream, Tail] = {
            "stdout": Tail(directory / f"rank{self.rank}.out"),
            "stderr": Tail(directory / f"rank{self.rank}.err"),
        }
        for tail in self.tails.values():  # a new process appends to its predecessor's text
            tail.read_all()
        self.recorder: RankRecorder | None = None
        self.branch_ring: BranchRingReader | None = None
        self.branch_values: BranchValues | None = None
        self._branches_asked = False

    def became_ready(self, ready: RankReady, source_line: SourceLine) -> None:
        """Process the rank's first message."""
        self.ready = True
        self.torch_version = ready.torch_version
        self.missing_features = ready.missing_features
        self.device = ready.device
        ring_file = self._directory / f"rank{self.rank}.calls"
        if ring_file.exists():
            self.recorder = RankRecorder(RingReader(ring_file), source_line)
            self.branch_ring = BranchRingReader(self._directory / f"rank{self.rank}.branches")

    @property
    def alive(self) -> bool:
        """Whether its end has not been reported."""
        return self.exit_status is None

    def command(self, message: Message, payload: bytes | None = None) -> int:
        """Send a command to the main thread; returns its number. A dead rank is skipped."""
        self._requests += 1
        with suppress(Closed):
            self.commands.send(message, number=self._requests, payload=payload)
        return self._requests

    def ask(self, message: Message) -> None:
        """Ask the monitor; for its status only after the last answer has arrived."""
        if isinstance(message, AskStatus) and self._status_asked is not None:
            return
        self._requests += 1
        if isinstance(message, AskStatus):
            self._status_asked = self._requests, time.monotonic()
        elif isinstance(message, AskFlight):
            self._flight_asked.add(self._requests)
        elif isinstance(message, AskBranches):
            self._branches_asked = True
        with suppress(Closed):
            self.questions.send(message, number=self._requests)

    def take_answer(self, answer: Envelope) -> tuple[FlightEntry, ...]:
        """Process the monitor's answer; returns the Flight Recorder's entries that it contains."""
        if self._status_asked is not None and answer.number == self._status_asked[0]:
            self._status_asked = None
        self._flight_asked.discard(answer.number)
        if isinstance(answer.message, MonitorStatus):
            self.earlier_status, self.status = self.status, answer.message
        elif isinstance(answer.message, BranchValues):
            self.branch_values = answer.message
            if self.recorder is not None:
                self.recorder.branch_marks = answer.message.marks
            self._branches_asked = False
        return answer.message.entries if isinstance(answer.message, FlightEntries) else ()

    @property
    def owes_branches(self) -> bool:
        """Whether the monitor has not yet sent the values of the conditions."""
        return self._branches_asked

    @property
    def owes_flight(self) -> bool:
        """Whether the monitor has not yet sent the Flight Recorder's entries."""
        return bool(self._flight_asked)

    def forget_status(self) -> None:
        """Forget answers from an earlier cell, which do not describe the next one."""
        self.status = self.earlier_status = None
        self.recorded = None
        self.branch_values = None
        self._branches_asked = False
        self.processor_share()

    def processor_share(self) -> float:
        """How much of a processor it has used since the last call, as the system counts."""
        now_s, used_s = time.monotonic(), 0.0
        with suppress(psutil.NoSuchProcess):
            times = self._process.cpu_times()
            used_s = times.user + times.system
        before_s, used_before_s = self._processor
        self._processor = (now_s, used_s)
        return (used_s - used_before_s) / max(now_s - before_s, 1e-6)

    @property
    def silent_s(self) -> float:
        """For how long an answer of the monitor has been missing, in seconds."""
        return 0.0 if self._status_asked is None else time.monotonic() - self._status_asked[1]

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

    def abort_text(self) -> str:
        """What the C++ runtime printed about an uncaught exception before it aborted."""
        with suppress(OSError), (self._directory / f"rank{self.rank}.err").open("rb") as printed:
            printed.seek(max(0, printed.seek(0, os.SEEK_END) - _LAST_BYTES))
            found = _ABORTED.findall(printed.read().decode(errors="replace"))
            return str(found[-1])[:_MAX_ABORT_TEXT] if found else ""
        return ""

    def close(self) -> None:
        """Close everything on the notebook's side."""
        self.commands.close()
        self.questions.close()
        for tail in self.tails.values():
            tail.close()
        if self.recorder is not None:
            self.recorder.close()
        if self.branch_ring is not None:
            self.branch_ring.close()
