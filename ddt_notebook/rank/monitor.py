"""The thread in each rank that answers while the main thread is stuck."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import psutil

from ..model import codec
from ..wire.channel import Channel, Closed, Message
from .probes.flight import FlightReader
from .probes.sockets import GroupSockets
from .shell import current_stack, users_line


class Monitor(threading.Thread):
    """Answers the notebook's questions about this rank, and ends the rank when it goes away.

    Parameters
    ----------
    channel
        Its own connection to the notebook.
    flight, sockets
        Of this rank.
    """

    def __init__(self, channel: Channel, flight: FlightReader, sockets: GroupSockets) -> None:
        super().__init__(name="ddt-monitor", daemon=True)
        self._channel = channel
        self._flight = flight
        self._sockets = sockets
        self._main = threading.main_thread().ident or 0
        self._process = psutil.Process()

    def run(self) -> None:
        """Answer until the connection closes; a rank never outlives its notebook."""
        try:
            while True:
                message = self._channel.receive()
                try:
                    answer = self._answer(message)
                except Exception as error:  # noqa: BLE001  (a rank without monitor is worse)
                    answer = {"error": f"{type(error).__name__}: {error}"}
                self._channel.send(answer | {"reply": message["id"], "to": message["do"]})
        except Closed:
            os._exit(0)

    def _answer(self, message: Message) -> Message:
        match message["do"]:
            case "status":
                return self._status()
            case "flight":
                return {"flight": self._flight.drain()}
            case "stacks":
                return {"flight": self._flight.drain(stacks=True)}
            case "cut":
                return {"cut": self._sockets.cut_as_asked(message["id"])}
        return {"error": f"unknown request {message['do']!r}"}

    def _status(self) -> dict[str, Any]:
        stack = current_stack(self._main)
        return {
            "position": codec.to_plain(users_line(stack)),
            "stack": [codec.to_plain(frame) for frame in stack],
            "groups": self._flight.counts(),
            "cpu_s": time.process_time(),  # of all threads
            "rss": self._process.memory_info().rss,
            "now_s": time.monotonic(),
        }
