"""Shows the ranks' output while their cell runs."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from IPython.core.interactiveshell import InteractiveShell

from ..formatting import naming_hosts, ranks_label
from ..host.listeners import DisplayMessage, Stream
from ..model.waits import Waiting
from ..views import html, safe
from ..views.line_buffer import LineBuffer
from ..views.waiting import parts as waiting_parts
from .output_merger import Entry, Merger

#: Limits of the output shown for one rank and cell; the rest stays in the rank's output file.
LINES_SHOWN = 500
CHARACTERS_SHOWN = 50_000
DISPLAYS_SHOWN = 100
#: More ranks than this share the limit of this many: a page with more lines is slow.
RANKS_IN_FULL = 8
#: Least time between two updates of the live region.
_LIVE_EVERY_S = 0.2
#: An unfinished line is shown live when it is this old, or was rewritten by a carriage return.
_PARTIAL_AFTER_S = 0.5
#: Shortest time in seconds that a line about a wait is shown, so that it can be read.
_WAITING_EVERY_S = 1.0
#: Where output goes to a file, a wait is noted when it has lasted this long, and each time that it
#: has become ten times as long: at most a few lines for a cell.
_NOTED_AFTER_S = 3.0
#: Entry in the queue that represents ``clear_output`` on a rank.
_CLEAR = "clear"


class Output(NamedTuple):
    """One line of text, or rich output as JSON (``bundle``), which can be compared."""

    stream: Stream
    text: str
    bundle: str = ""


class OutputStreamer:
    """A `RunListener` that prints in the cell's output area, labelled by rank.

    Parameters
    ----------
    shell
        The notebook's shell.
    running
        The ranks that run the cell.
    output_file
        Path of the file that keeps all output of a rank, for when the shown output is cut.
    clock
        Seconds; replaced in tests.
    hosts
        The host of each rank; labels name it if there are several.
    """

    def __init__(
        self,
        shell: InteractiveShell,
        running: Iterable[int],
        output_file: Callable[[int, Stream], Path],
        clock: Callable[[], float] = time.monotonic,
        hosts: Mapping[int, str] | None = None,
    ) -> None:
        self._shell = shell
        self._hosts = hosts or {}
        self._clock = clock
        self._output_file = output_file
        self._running = sorted(running)
        self._merger: Merger[Output] = Merger(self._running)
        self._buffers: dict[tuple[int, Stream], LineBuffer] = {}
        self._partial_since: dict[tuple[int, Stream], float] = {}
        self._share = min(1.0, RANKS_IN_FULL / max(1, len(self._running)))
        self._budgets: dict[int, list[int]] = {}
        self._live = _live_region(shell)
        self._slots = _DisplaySlots()
        self._waiting: list[str] = []
        self._waiting_at_s = float("-inf")

    def on_output(self, rank: int, stream: Stream, text: str) -> None:
        """Add text of a rank; complete lines are queued."""
        if self._cut(rank):
            return
        key = (rank, stream)
        buffer = self._buffers.setdefault(key, LineBuffer())
        for line in buffer.feed(text):
            self._queue_line(rank, stream, line)
        if buffer.partial:
            self._partial_since.setdefault(key, self._clock())
        else:
            self._partial_since.pop(key, None)

    def on_display(self, rank: int, message: DisplayMessage) -> None:
        """Queue rich output behind the rank's text."""
        if message.kind == "clear":
            self._merger.add(rank, Output("stdout", "", _CLEAR), self._clock(), alone=True)
            return
        plain = str(message.data.get("text/plain", ""))
        rich = {kind for kind in message.data if kind != "text/plain"}
        if not rich and not message.update:
            for line in plain.splitlines():
                self._queue_line(rank, "stdout", line)
            return
        if self._spend(rank, 2, 1, "more figures or tables are not shown"):
            bundle = {
                "data": message.data,
                "metadata": message.metadata,
                "id": message.transient.get("display_id"),
                "update": message.update,
            }
            output = Output("stdout", plain, json.dumps(bundle, sort_keys=True))
            self._merger.add(rank, output, self._clock(), alone=bundle["id"] is not None)

    def on_tick(self, now_s: float) -> None:
        """Print what has waited long enough, and refresh the live region."""
        self._emit(self._merger.take(self._clock()))
        with naming_hosts(self._hosts):
            self._live.show(self._live_lines(), self._clock())

    def on_waiting(self, waiting: Waiting | None) -> None:
        """Remember who waits for whom, for the live region."""
        now = self._clock()
        if waiting is None:
            self._waiting, self._waiting_at_s = [], float("-inf")
        elif now - self._waiting_at_s >= _WAITING_EVERY_S:
            with naming_hosts(self._hosts):
                self._waiting, self._waiting_at_s = waiting_parts(waiting), now
            self._live.note(self._waiting, waiting.waited_s)

    def on_end(self) -> None:
        """Print everything that is left, and take the live region away."""
        for (rank, stream), buffer in self._buffers.items():
            for line in buffer.finish():
                self._queue_line(rank, stream, line)
        self.on_waiting(None)
        self._emit(self._merger.take(self._clock(), everything=True))
        self._live.clear()

    def _queue_line(self, rank: int, stream: Stream, line: str) -> None:
        note = f"more output is in {self._output_file(rank, stream)}"
        if self._spend(rank, 0, 1, note) and self._spend(rank, 1, len(line) + 1, note):
            self._merger.add(rank, Output(stream, line), self._clock())

    def _cut(self, rank: int) -> bool:
        lines, characters, _ = self._budget(rank)
        return lines < 0 or characters < 0

    def _budget(self, rank: int) -> list[int]:
        """How much of the rank's output may still be shown: lines, characters, displays."""
        full = (LINES_SHOWN, CHARACTERS_SHOWN, DISPLAYS_SHOWN)
        return self._budgets.setdefault(rank, [int(self._share * most) for most in full])

    def _spend(self, rank: int, kind: int, amount: int, note: str) -> bool:
        """Use some of a rank's budget; print one notice when it is used up."""
        budget = self._budget(rank)
        if budget[kind] < 0:
            return False
        budget[kind] -= amount
        if budget[kind] < 0:
            self._merger.add(rank, Output("stdout", f"… {note}"), self._clock(), alone=True)
        return budget[kind] >= 0

    def _live_lines(self) -> list[str]:
        now = self._clock()
        lines = [
            f"[{ranks_label((rank,))}] {safe.one_line(buffer.partial, 160)}"
            for (rank, stream), buffer in sorted(self._buffers.items(), key=lambda item: item[0])
            if buffer.partial
            and (
                buffer.rewritten
                or now - self._partial_since.get((rank, stream), now) > _PARTIAL_AFTER_S
            )
        ]
        if self._live.rich:
            return lines + ([" · ".join(self._waiting)] if self._waiting else [])
        return ["  ".join(lines), *self._waiting] if lines else self._waiting

    def _emit(self, entries: list[Entry[Output]]) -> None:
        if not entries:
            return
        with naming_hosts(self._hosts):
            self._print(entries)

    def _print(self, entries: list[Entry[Output]]) -> None:
        self._live.make_room()
        text, current = "", "stdout"
        for entry in entries:
            if entry.content.bundle or entry.content.stream != current:
                _write(current, text)
                text, current = "", entry.content.stream
            if entry.content.bundle:
                self._show(entry)
            else:
                label = f"[{ranks_label(entry.ranks)}]"
                text += f"{label} {entry.content.text}".rstrip() + "\n"
        _write(current, text)

    def _show(self, entry: Entry[Output]) -> None:
        if entry.content.bundle == _CLEAR:
            self._slots.clear(min(entry.ranks))
            return
        label = ranks_label(entry.ranks)
        bundle = json.loads(entry.content.bundle)
        slot, known = self._slots.take(entry.ranks, bundle["id"], update=bundle["update"])
        if not self._live.rich:
            lines = entry.content.text.splitlines()
            _write("stdout", "".join(f"[{label}] {line}".rstrip() + "\n" for line in lines))
            return
        if not known:
            heading = html.line(html.tag("b", label))
            self._publish({"text/plain": f"[{label}]", "text/html": heading})
        self._publish(
            bundle["data"],
            metadata=bundle["metadata"],
            transient={"display_id": slot},
            update=known,
        )

    def _publish(self, data: dict[str, Any], **settings: Any) -> None:
        self._shell.display_pub.publish(data, **settings)


class _DisplaySlots:
    """Chooses the display for each rich output of a rank.

    Different ranks have different ids. After ``clear_output`` on a rank, its next displays take
    the place of its earlier ones: the output of other ranks must not vanish.
    """

    def __init__(self) -> None:
        self._prefix = uuid4().hex
        self._made = 0
        self._shown: dict[int, list[str]] = {}
        self._reusable: dict[int, list[str]] = {}
        self._named: dict[tuple[int, str], str] = {}

    def clear(self, rank: int) -> None:
        """Let the rank's displays be replaced by its next ones."""
        self._reusable.setdefault(rank, []).extend(self._shown.pop(rank, []))

    def take(self, ranks: set[int], name: str | None, *, update: bool) -> tuple[str, bool]:
        """The id to publish under, and whether a display with this id is shown already."""
        rank = min(ranks)
        if name is not None and update and (rank, name) in self._named:
            return self._named[rank, name], True
        reusable = self._reusable.get(rank)
        known = bool(reusable) and len(ranks) == 1
        if known and reusable:
            slot = reusable.pop(0)
        else:
            self._made += 1
            slot = f"{self._prefix}-{self._made}"
        if len(ranks) == 1:
            self._shown.setdefault(rank, []).append(slot)
        if name is not None:
            self._named[rank, name] = slot
        return slot, known


class _NotebookLive:
    """A region of the cell's output that is rewritten, at most five times a second."""

    rich = True

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._id: str | None = None
        self._shown: list[str] = []
        self._at_s = float("-inf")

    def show(self, lines: list[str], now_s: float) -> None:
        if lines != self._shown and now_s - self._at_s >= _LIVE_EVERY_S:
            self._shown, self._at_s = lines, now_s
            text = "\n".join(lines)
            self._publish({"text/plain": text, "text/html": html.pre(text) if text else ""})

    def clear(self) -> None:
        if self._id is not None and self._shown:
            self._publish({"text/plain": "", "text/html": ""})
            self._shown = []

    def make_room(self) -> None:
        """New output goes below the region."""

    def note(self, waiting: list[str], waited_s: float) -> None:
        """The region shows the wait."""

    def _publish(self, data: dict[str, str]) -> None:
        update = self._id is not None
        self._id = self._id or uuid4().hex
        self._shell.display_pub.publish(data, transient={"display_id": self._id}, update=update)


class _TerminalLive:
    """The last lines of a terminal."""

    rich = False

    def __init__(self) -> None:
        self._note_after_s = _NOTED_AFTER_S
        self._shown: list[str] = []
        self._at_s = float("-inf")

    def show(self, lines: list[str], now_s: float) -> None:
        if lines == self._shown or now_s - self._at_s < _LIVE_EVERY_S or not sys.stderr.isatty():
            return
        self.make_room()
        self._shown, self._at_s = lines, now_s
        width = shutil.get_terminal_size().columns
        texts = [safe.clean(line) for line in lines]
        cut = [text if len(text) < width else f"{text[: width - 2]}…" for text in texts]
        sys.stderr.write("\n".join(cut))
        sys.stderr.flush()

    def clear(self) -> None:
        self.make_room()

    def make_room(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K" + "\x1b[1A\x1b[2K" * (len(self._shown) - 1))
            sys.stderr.flush()
            self._shown = []

    def note(self, waiting: list[str], waited_s: float) -> None:
        """Print the wait as a separate line, rarely, where lines cannot be rewritten."""
        if not sys.stderr.isatty() and waited_s >= self._note_after_s:
            self._note_after_s = 10 * waited_s
            _write("stderr", f"{' · '.join(map(safe.clean, waiting))}\n")


def _live_region(shell: InteractiveShell) -> _NotebookLive | _TerminalLive:
    """Rich output needs a kernel behind the shell."""
    return _NotebookLive(shell) if getattr(shell, "kernel", None) else _TerminalLive()


@contextmanager
def live_line(shell: InteractiveShell, text: str) -> Iterator[Callable[[str], None]]:
    """Show a line while the block runs; the yielded function replaces it by another."""
    region = _live_region(shell)
    region.show([text], time.monotonic())

    def say(other: str) -> None:
        region.show(
            other.split("\n"), time.monotonic() + _LIVE_EVERY_S
        )  # each stays for a while: show all

    try:
        yield say
    finally:
        region.clear()


def _write(stream: str, text: str) -> None:
    if text:
        target = sys.stderr if stream == "stderr" else sys.stdout
        target.write(text)
        target.flush()
