"""The notebook's handle on one rank's process."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil

from ..model import FormatError
from ..wire.branch_ring import BranchRingReader
from ..wire.channel import Channel, Closed, channel_pair
from ..wire.messages import (
    Envelope,
    Message,
    RankReady,
    RankSpec,
    StartRank,
)
from ..wire.ring import RingReader
from .call_log_reader import RankRecorder, SourceLine
from .launcher import ForkServerHandle
from .listeners import Stream
from .observed_rank import ObservedRank
from .output_files import Tail


class RankHandle(ObservedRank):
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
        directory = Path(spec.directory)
        super().__init__(spec.rank, directory / f"rank{spec.rank}")
        self.ready = False
        self.device = ""
        self._directory = directory
        self.commands, rank_commands = channel_pair()
        self.questions, rank_questions = channel_pair()
        with rank_commands, rank_questions:
            # a new process needs a new log: the ring's count must start at 0
            (directory / f"rank{self.rank}.calls").unlink(missing_ok=True)
            (directory / f"rank{self.rank}.branches").unlink(missing_ok=True)
            descriptors = rank_commands.fileno(), rank_questions.fileno()
            self.pid = server.start(StartRank(fork=fork), descriptors).pid
        self._process = psutil.Process(self.pid)
        self.commands.send(spec)
        self.tails: dict[Stream, Tail] = {
            "stdout": Tail(directory / f"rank{self.rank}.out"),
            "stderr": Tail(directory / f"rank{self.rank}.err"),
        }
        for tail in self.tails.values():  # a new process appends to its predecessor's text
            tail.read_all()

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

    @property
    def ending(self) -> bool:
        """Whether its process ends or has ended, though this has not been reported.

        The main thread of a killed process ends before the last thread closes the connections.
        """
        if not self.alive or self.commands.hung_up:
            return self.alive
        try:
            return self._process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.Error:
            return True

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
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def close(self) -> None:
        """Close everything on the notebook's side."""
        super().close()
        self.commands.close()
        for tail in self.tails.values():
            tail.close()
