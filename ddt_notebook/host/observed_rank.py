"""A rank's process as it is seen from outside: its records, and the answers of its monitor."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from ..model import Observation
from ..model.clock import Clock
from ..model.threads import ThreadCall
from ..model.torch_features import MissingFeature
from ..wire import thread_file
from ..wire.branch_ring import BranchRingReader
from ..wire.channel import Channel, Closed
from ..wire.messages import (
    AskBranches,
    AskFlight,
    AskRunning,
    AskStatus,
    BranchValues,
    Envelope,
    Failed,
    FlightEntries,
    Message,
    MonitorStatus,
    RunningAnswer,
)
from ..wire.records import FlightEntry
from .call_log_reader import RankRecorder
from .place import HostProcess

#: A rank's monitor that has not answered for this long counts as unable to answer.
SILENT_AFTER_S = 1.5
#: What libstdc++ prints about an exception that nothing caught; ``what()`` may have several lines.
_ABORTED = re.compile(r"terminate called after throwing an instance of '[^\n]*\n\s*what\(\):[^\n]*")
_LAST_BYTES, _MAX_ABORT_TEXT = 16_000, 1_000


class ObservedRank:
    """One rank's process, its call log and branch events, and what its monitor answered.

    Attributes
    ----------
    rank, pid
        The rank and its process.
    files
        Its files' common path: ``.calls``, ``.branches``, ``.crash``, ``.err`` follow.
    questions
        The connection to its monitor; None if there is none.
    recorder
        Reads its call log; None if it keeps none.
    """

    #: Its process as the operating system shows it; None if that cannot be asked.
    host_process: HostProcess | None = None
    #: What puts its times on the clock of the notebook.
    clock = Clock()

    def __init__(self, rank: int, files: Path) -> None:
        self.rank = rank
        self.pid = 0
        self.files = files
        self.questions: Channel | None = None
        self.recorder: RankRecorder | None = None
        self.branch_ring: BranchRingReader | None = None
        self.branch_values: BranchValues | None = None
        self.names: tuple[str, ...] = ()
        self.recorded: Observation | None = None  # in a traced cell
        self.exit_status: int | None = None
        #: Whether it was ended because it sent something else than messages.
        self.garbled = False
        self.torch_version = ""
        self.missing_features: tuple[MissingFeature, ...] = ()
        self.status: MonitorStatus | None = None
        self.earlier_status: MonitorStatus | None = None
        self._requests = 0
        self._status_asked: tuple[int, float] | None = None  # number of the request, and when
        self._flight_asked: set[int] = set()
        self._branches_asked = False
        self._running_asked: int | None = None  # number of the request
        self.running: RunningAnswer | Failed | None = None  # the last answer
        self._processor, self._share = (0.0, 0.0), 0.0

    @property
    def host(self) -> str:
        """The name of its host; empty for the machine of the notebook."""
        return self.host_process.host if self.host_process is not None else ""

    @property
    def now_s(self) -> float:
        """The time, on the machine's monotonic clock, at which the rank is looked at."""
        return time.monotonic()

    def lasts_s(self, since_s: float) -> float:
        """For how long a wait that began at ``since_s`` on the rank's clock has lasted so far."""
        return time.monotonic() - since_s

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
        elif isinstance(message, AskRunning):
            self._running_asked, self.running = self._requests, None
        if self.questions is not None:
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
        elif answer.number == self._running_asked:
            if isinstance(answer.message, RunningAnswer | Failed):
                self.running = answer.message
            self._running_asked = None
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
        if self.host_process is not None:
            used_s, now_s = self.host_process.used()
        else:
            used_s, now_s = 0.0, time.monotonic()
        before_s, used_before_s = self._processor
        if now_s > before_s:  # what runs on another host is measured only now and then
            self._processor = (now_s, used_s)
            self._share = (used_s - used_before_s) / max(now_s - before_s, 1e-6)
        return self._share

    @property
    def silent_s(self) -> float:
        """For how long an answer of the monitor has been missing, in seconds."""
        return 0.0 if self._status_asked is None else time.monotonic() - self._status_asked[1]

    @property
    def stopped(self) -> bool:
        """Whether the operating system has suspended it."""
        return self.host_process is not None and self.host_process.stopped

    def _file(self, ending: str) -> Path:
        return self.files.with_name(f"{self.files.name}.{ending}")

    def crash_text(self, most: int = 8000) -> str:
        """What faulthandler wrote when it crashed; its last ``most`` characters."""
        with suppress(OSError):
            return self._file("crash").read_text("utf-8", "replace")[-most:]
        return ""

    def thread_calls(self) -> tuple[ThreadCall, ...]:
        """The collectives that threads beside the main one entered."""
        return thread_file.read(self._file("threads"))

    def abort_text(self) -> str:
        """What the C++ runtime printed about an uncaught exception before it aborted."""
        with suppress(OSError), self._file("err").open("rb") as printed:
            printed.seek(max(0, printed.seek(0, os.SEEK_END) - _LAST_BYTES))
            found = _ABORTED.findall(printed.read().decode(errors="replace"))
            return str(found[-1])[:_MAX_ABORT_TEXT] if found else ""
        return ""

    def close(self) -> None:
        """Close everything on this side."""
        if self.questions is not None:
            self.questions.close()
        if self.recorder is not None:
            self.recorder.close()
        if self.branch_ring is not None:
            self.branch_ring.close()
