"""The thread in each rank that answers the notebook while it trains or is blocked."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import psutil

from ..model import FormatError, Position
from ..model.user_code import users_line
from ..wire.channel import Channel, Closed
from ..wire.messages import (
    AskBranches,
    AskFlight,
    AskRunning,
    AskStatus,
    BranchValues,
    CutSockets,
    Done,
    Envelope,
    Failed,
    FlightEntries,
    Message,
    MonitorStatus,
    RunningAnswer,
)
from .branch_recorder import BranchRecorder
from .probes import builds, ended_threads, polled_files
from .probes.activity import holder_of_lock, other_threads_run, thread_waits_for
from .probes.flight import FlightReader
from .probes.sockets import GroupSockets
from .tracebacks import current_stack
from .training_thread import CURRENT


class Monitor(threading.Thread):
    """Answers questions about this rank, and ends the rank of a notebook that ends.

    Parameters
    ----------
    channel
        The monitor's own connection to the process that asks.
    flight, sockets, branches
        The Flight Recorder, the sockets and the branch events of this rank. Without sockets, no
        question can end a wait of this rank.
    ends_rank
        Whether the rank ends when the connection does.
    running
        Answers questions about the user's objects while the user's code runs.
    """

    def __init__(
        self,
        channel: Channel,
        flight: FlightReader,
        sockets: GroupSockets | None,
        branches: BranchRecorder,
        *,
        ends_rank: bool = True,
        running: Callable[[AskRunning], RunningAnswer] | None = None,
    ) -> None:
        super().__init__(name="ddt-monitor", daemon=True)
        self._channel = channel
        self._flight = flight
        self._sockets = sockets
        self._branches = branches
        self._ends_rank = ends_rank
        self._running = running
        self._process = psutil.Process()

    def run(self) -> None:
        """Answer until the connection closes."""
        try:
            while True:
                request = self._channel.receive()
                try:
                    answer = self._answer(request)
                except Exception as error:  # noqa: BLE001  (a rank without a monitor is worse)
                    answer = Failed(error=f"{type(error).__name__}: {error}")
                self._channel.send(answer, number=request.number)
        except (Closed, FormatError):
            if self._ends_rank:
                os._exit(0)
            self._channel.close()

    def leave(self) -> None:
        """Answer no more."""
        self._channel.end()

    def _answer(self, request: Envelope) -> Message:
        match request.message:
            case AskStatus():
                return self._status()
            case AskFlight(stacks=stacks):
                return FlightEntries(entries=self._flight.drain(stacks=stacks))
            case AskBranches():
                frame = CURRENT.frame()
                values = self._branches.values(frame)
                return BranchValues(
                    values=values,
                    unobserved=self._branches.unobserved,
                    callbacks_only=self._branches.callbacks_only,
                    marks=tuple(self._branches.marks),
                )
            case AskRunning() as asked if self._running is not None:
                return self._running(asked)
            case CutSockets() if self._sockets is not None:
                self._sockets.cut_as_asked(request.number)
                return Done()
        return Failed(error=f"a monitor does not answer {type(request.message).__name__}")

    def _status(self) -> MonitorStatus:
        stack, native_id, at_s = current_stack(CURRENT.ident), CURRENT.native_id, time.monotonic()
        served: tuple[Position, ...] = ()
        inside, inside_s = None, None
        if (serving := CURRENT.served_by()) is not None:
            served = current_stack(serving.ident)
            if (inside := users_line(served)) is not None:
                native_id, inside_s = serving.native_id, at_s - serving.since_s
        waits_for, file = thread_waits_for(native_id)
        held_by = holder_of_lock() if waits_for == "file lock" else None
        ended = ended_threads.RECORD.awaited()
        if ended is not None:
            waits_for = "ended thread"
        if waits_for in ("", "time"):
            polled, path, holder = builds.RECORD.awaited()
            if not polled:
                polled, path, holder = polled_files.RECORD.waits_for((*stack, *served))
            if polled:
                waits_for, file, held_by = polled, path, holder
        compiled = None
        if waits_for in ("process", "data"):
            folder, compiled = builds.RECORD.building()
            if folder:
                waits_for, file = "build", folder
        return MonitorStatus(
            position=users_line(stack),
            stack=stack,
            groups=self._flight.counts(),
            on_device=self._flight.counts_on_device(),
            cpu_s=time.process_time(),  # of all threads
            memory_bytes=self._process.memory_info().rss,
            at_s=at_s,
            waits_for=waits_for,
            file=file,
            held_by=held_by,
            compiled=compiled,
            thread_error=ended,
            threads_run=other_threads_run(),
            inside=inside,
            inside_s=inside_s,
        )
