"""The kernel's end of JupyterLab's "Rank Output": keeps the output of the last cell and sends it.

Lines are kept while JupyterLab listens, and sent to a front end that asks "lines after n". The
answer is one page. After a question, news is sent without further questions for a while, because
each question that arrives while a cell runs makes JupyterLab show the kernel as idle. The rate is
far below the one at which a Jupyter server stops forwarding a kernel's messages (1 MB/s).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from ..host.listeners import DisplayMessage, Stream
from ..host.session import active
from ..model import Cell
from ..model.waits import Waiting
from ..views.output_log import OutputLog, of_texts

#: The most bytes of a message, the least seconds between two that are sent without a request, and
#: how many messages one request allows.
_PAGE_BYTES, _EVERY_S, _ALLOWED = 100_000, 0.25, 1000

Send = Callable[[dict[str, Any]], None]


class _Sent(NamedTuple):
    """The position that was sent last: number of the run, its lines, version of the log."""

    run: int = 0
    lines: int = 0
    version: int = -1


class LabOutput:
    """What the ranks printed in the last cell, for front ends that ask.

    Parameters
    ----------
    send
        Sends a message to all front ends.
    clock
        Seconds; replaced in tests.
    """

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._lock = threading.RLock()  # questions come on a subshell, output on the main thread
        self._log: OutputLog | None = None
        self._number = 0
        self._allowed = 0
        self._sent = _Sent()
        self._sent_s = float("-inf")

    def begin(self) -> None:
        """Keep the output that is printed from now on."""
        active.listeners.append(self._of_cell)

    def end(self) -> None:
        """Stop keeping output."""
        active.listeners.remove(self._of_cell)

    def asked(self, question: dict[str, Any]) -> None:
        """Answer a front end that has the lines before number ``after`` of run ``run``."""
        with self._lock:
            last = active.last_run()
            if self._log is None and last is not None:  # the cell ran before a front end listened
                self._log = of_texts(last.snapshot.cell.number, last.outputs)
                self._number += 1
            self._allowed = _ALLOWED
            self._send_lines(question["after"] if question["run"] == self._number else 0)

    def enough(self) -> None:
        """Send nothing until the next question."""
        self._allowed = 0

    # -- events of a running cell ----------------------------------------------------------------

    def _of_cell(self, cell: Cell, _: tuple[int, ...]) -> _CellListener:
        with self._lock:
            self._log = OutputLog(cell.number)
            self._number += 1
            return _CellListener(self._log, self._lock, self._news)

    def _news(self, at_once: bool) -> None:
        """Send what is new, if a front end has asked and the last message is old enough."""
        with self._lock:
            sent, log = self._sent, self._log
            if log is None or self._allowed <= 0:
                return
            new_run = sent.run != self._number
            if not new_run and sent.version == log.version:
                return
            if at_once or self._clock() - self._sent_s >= _EVERY_S:
                self._allowed -= 1
                self._send_lines(0 if new_run else sent.lines)

    def _send_lines(self, after: int) -> None:
        log = self._log if self._log is not None else of_texts(0, {})
        page = log.page(after, _PAGE_BYTES)
        before = self._sent if self._sent.run == self._number else _Sent(self._number)
        whole = page["next"] == page["total"]
        self._sent = _Sent(
            run=self._number,
            lines=max(page["next"], before.lines),
            version=log.version if whole else before.version,
        )
        self._sent_s = self._clock()
        session = active.get()
        folder = str(session.output_file(0, "stdout").parent) if session is not None else ""
        self._send({"output": page | {"run": self._number, "folder": folder}})


class _CellListener:
    """Receives the output of one cell."""

    def __init__(
        self, log: OutputLog, lock: AbstractContextManager[object], news: Callable[[bool], None]
    ) -> None:
        self._log = log
        self._lock = lock
        self._news = news

    def on_output(self, rank: int, stream: Stream, text: str) -> None:
        with self._lock:
            self._log.add(rank, stream, text)

    def on_display(self, rank: int, message: DisplayMessage) -> None:
        plain = message.data.get("text/plain")
        if plain is not None and not message.update:
            with self._lock:
                self._log.add(rank, "display", f"{plain}\n")

    def on_tick(self, now_s: float) -> None:
        self._news(False)

    def on_waiting(self, waiting: Waiting | None) -> None: ...

    def on_end(self) -> None:
        with self._lock:
            self._log.finish()
        self._news(True)
