"""The notebook's handle on one rank's process."""

from __future__ import annotations

import signal
from contextlib import suppress

from ..model import FormatError
from ..model.clock import Clock
from ..wire.channel import Channel, Closed
from ..wire.messages import Envelope, Message, RankReady
from ..wire.ring import RingReader
from .call_log_reader import RankRecorder, SourceLine
from .listeners import Stream
from .observed_rank import ObservedRank
from .output_files import Tail
from .place import StartedRank


class RankHandle(ObservedRank):
    """Talks to one rank.

    Parameters
    ----------
    rank
        Its number.
    started
        Its process, its connections and its files.
    """

    def __init__(self, rank: int, started: StartedRank) -> None:
        super().__init__(rank, started.files)
        self.ready = False
        self.device = ""
        self.python_version = ""
        self.process = self.host_process = started.process
        self.pid = started.process.pid
        self.commands = started.commands
        self.questions: Channel = started.questions
        self._started = started
        self.clock = Clock(-started.ahead_s)
        self.tails: dict[Stream, Tail] = {
            "stdout": Tail(self._file("out")),
            "stderr": Tail(self._file("err")),
        }
        for tail in self.tails.values():  # a new process appends to its predecessor's text
            tail.read_all()

    def became_ready(self, ready: RankReady, source_line: SourceLine) -> None:
        """Process the rank's first message."""
        self.ready = True
        self.torch_version = ready.torch_version
        self.missing_features = ready.missing_features
        self.python_version = ready.python_version
        self.device = ready.device
        ring_file = self._file("calls")
        if ring_file.exists():
            self.recorder = RankRecorder(
                RingReader(ring_file), source_line, wall_s=self._started.wall_s
            )
            self.branch_ring = self._started.branches(self._file("branches"))

    @property
    def now_s(self) -> float:
        """The time on the monotonic clock of its host."""
        return super().now_s - self.clock.ahead_s

    def lasts_s(self, since_s: float) -> float:
        """For how long a wait that began at ``since_s`` on the rank's clock has lasted so far."""
        return self.now_s - since_s

    @property
    def alive(self) -> bool:
        """Whether its end has not been reported."""
        return self.exit_status is None

    @property
    def ending(self) -> bool:
        """Whether its process ends or has ended, though this has not been reported.

        The main thread of a killed process ends before the last thread closes the connections.
        """
        if not self.alive or self.commands.hung_up:
            return self.alive
        return self.process.ending

    def command(self, message: Message, payload: bytes | None = None) -> int:
        """Send a command to the main thread; returns its number. A dead rank is skipped."""
        self._requests += 1
        with suppress(Closed):
            self.commands.send(message, number=self._requests, payload=payload)
        return self._requests

    def receive(self, channel: Channel) -> Envelope:
        """The next message on one of its channels.

        A rank that sends anything else is ended: a cell has written to its connection, and what
        comes after that cannot be read.

        Raises
        ------
        Closed
            If there is no further message.
        """
        try:
            return channel.receive()
        except FormatError as error:
            self.garbled = True
            self.signal(signal.SIGKILL)
            raise Closed from error
        except Closed:
            if self.alive and not channel.hung_up:
                self.garbled = True
                self.signal(signal.SIGKILL)
            raise

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if its end has not been reported (then the pid is still its own)."""
        if self.alive:
            self.process.signal(number)

    def close(self) -> None:
        """Close everything on the notebook's side."""
        super().close()
        self.commands.close()
        for tail in self.tails.values():
            tail.close()
