"""Records the path of this rank through the user's code, while the code runs.

From Python 3.12 on, `sys.monitoring` reports branches, returns and exceptions of the user's code
objects only, so the recorder is always on. On Python 3.11 `sys.settrace` reports the lines of the
user's frames. That slows the user's code, so it runs only when the notebook asks for it. An event
is one transition: a line with a condition or a loop, and the line at which the rank went on; for a
condition inside an expression, whether it held.

`branch_events` takes events from the interpreter and calls `BranchRecorder.note`.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from types import CodeType, FrameType

from ..model.branches import BranchKind, BranchOutcome
from ..wire.branch_ring import COUNT_AT, COUNT_EACH, EVENTS, BranchRingWriter
from .condition_values import values_at

#: The running hash is a polynomial of the events with this factor, modulo 2^64. So the hash of any
#: stretch follows from the hashes and the numbers of events at its two ends.
HASH_FACTOR = 6364136223846793005
_MASK = (1 << 64) - 1
#: How many marks are kept; each pass through DDP makes two.
_MARKS = 4096

#: What identifies an outcome within a code object.
Key = tuple[object, ...]
#: The index of the last outcome at a site, in a list of its own.
Site = list[int]
#: What is known of an instruction: a destination, the index of the outcome, its site, and what is
#: known of other destinations.
Way = tuple[int, int, Site, "Way | None"]


class BranchRecorder:
    """Writes branch events to a ring, and keeps a running hash of them.

    Parameters
    ----------
    writer
        The ring.
    """

    def __init__(self, writer: BranchRingWriter) -> None:
        self._writer = writer
        #: The thread whose events are recorded.
        self.thread = threading.main_thread().ident
        self._movers: list[Callable[[int], None]] = []
        self._indices: dict[tuple[object, ...], int] = {}
        self._outcomes: list[BranchOutcome | None] = [None]
        self._hash_keys: list[int] = [1]
        self._values: dict[int, dict[str, str]] = {}
        #: The last outcome at the site of each outcome; those of one site share the list.
        self._last_at: list[Site] = [[0]]
        self._sites: dict[tuple[str, int, str, str], Site] = {}
        #: The hash of the events before this number.
        self._hashed, self._hash = writer.count, 0
        #: By the address of the instruction of a branch or a return, which is in its code object:
        #: one number is found faster than the code object and the offset, mostly with cold caches.
        self.known: dict[int, Way] = {}
        #: See `BranchValues`.
        self.marks: deque[tuple[int, int]] = deque(maxlen=_MARKS)
        #: By id: since Python 3.13, the hash of a code object takes 2 µs for 100 lines, and is not
        #: kept. The code object is beside it, so that no other one gets its id.
        self.by_code: dict[int, tuple[dict[Key, int], CodeType]] = {}
        #: Why nothing is observed in this run; empty if it is.
        self.unobserved = ""
        #: Whether only functions that a library's trainer calls were observed.
        self.callbacks_only = False

    def begin_run(self) -> None:
        """Forget the events of earlier cells."""
        self._writer.begin_run()
        self._indices.clear()
        del self._outcomes[1:], self._hash_keys[1:]
        self._values.clear()
        del self._last_at[1:]
        self._sites.clear()
        self.known.clear()
        self.by_code.clear()
        self.marks.clear()
        self._hashed, self._hash = self._writer.count, 0
        self.unobserved = ""
        self.callbacks_only = False

    def follow(self) -> None:
        """Record the events of the current thread from here on."""
        self.thread = threading.get_ident()
        for move in self._movers:
            move(self.thread)

    def known_in(self, code: CodeType) -> dict[Key, int]:
        """The indices of the outcomes in a code object, by what identifies them there."""
        found = self.by_code.get(id(code))
        if found is None:
            found = self.by_code[id(code)] = {}, code
        return found[0]

    @property
    def count(self) -> int:
        """How many events this run has had."""
        return self._writer.count - self._writer.run_start

    def mark(self, *, ends: bool = False) -> None:
        """Note the number of events now, for collectives that a library issues from here on.

        Parameters
        ----------
        ends
            The library's call has ended: it issues no more collectives.
        """
        self.marks.append((time.time_ns(), -1 if ends else self.count))

    def index_of(
        self, code: CodeType, line: int, kind: BranchKind, to_line: int = 0, error: str = ""
    ) -> int:
        """The index of an outcome, which is described in the ring on its first occurrence."""
        key = (code.co_filename, line, code.co_name, kind, to_line, error)
        known = self._indices.get(key)
        if known is None:
            outcome = BranchOutcome(
                file=code.co_filename,
                line=line,
                function=code.co_name,
                kind=kind,
                to_line=to_line,
                error=error,
            )
            known = self._indices[key] = self._writer.add_outcome(outcome)
            if known:
                self._outcomes.append(outcome)
                self._last_at.append(self._sites.setdefault(outcome.site, [0]))
                # Python's own hash of a text differs between processes
                self._hash_keys.append(zlib.crc32(repr(key).encode()) << 1 | 1)
        return known

    def noting(
        self,
        learn: Callable[[CodeType, int, int], int],
        changed: Callable[[int], None] = lambda index: None,
    ) -> Callable[[CodeType, int, int], None]:
        """A callback that records an event of the recorded thread.

        It is given the code object, the instruction, and the destination of a branch, or -1. It
        runs at each branch of the user's code, mostly with cold caches. So it calls nothing in the
        usual case, and touches few objects.

        Parameters
        ----------
        learn
            The index of an outcome that is not known yet; negative for none.
        changed
            Is called if the rank took another path here before.
        """
        known, writer, count_all = self.known, self._writer, self._count_all
        recorded, thread = self.thread, threading.get_ident
        events, header = writer.events, writer.header
        last, until_counted = EVENTS - 1, COUNT_EACH - 1

        def note(code: CodeType, offset: int, destination: int) -> None:
            if thread() != recorded:
                return
            found = known.get(id(code) + offset)
            while found is not None and found[0] != destination:
                found = found[3]
            if found is None:
                index = learn(code, offset, destination)
                self.known_in(code)  # keeps the code object, so that no other one gets its place
                site = self._last_at[max(index, 0)]
                at = id(code) + offset
                known[at] = destination, index, site, known.get(at)
            else:
                _, index, site, _ = found
            if index < 0:
                return
            count = writer.count
            events[count & last] = index
            writer.count = header[COUNT_AT] = count = count + 1
            if not count & until_counted:
                count_all()
            if site[0] != index:
                site[0] = index
                changed(index)

        def move(to: int) -> None:
            nonlocal recorded
            recorded = to

        self._movers.append(move)
        return note

    def note(self, index: int) -> bool:
        """Record an event; returns whether the rank took another path here before.

        Parameters
        ----------
        index
            Index of its outcome.
        """
        if not self._writer.write(index) % COUNT_EACH:
            self._count_all()
        site = self._last_at[index]
        if site[0] == index:
            return False
        site[0] = index
        return True

    @property
    def hash(self) -> int:
        """The running hash of the events of this run."""
        # another thread must not change what the recorded one adds to
        if threading.get_ident() != self.thread:
            return self._hash_now()
        self._hash, self._hashed = self._hash_now(), self._writer.count
        return self._hash

    def _hash_now(self) -> int:
        found, keys = self._hash, self._hash_keys
        for index in self._writer.since(self._hashed):
            found = (found * HASH_FACTOR + keys[index]) & _MASK
        return found

    def _count_all(self) -> None:
        """Add the new events to the hash and the counters."""
        self._hash, self._hashed = self._hash_now(), self._writer.count
        self._writer.count_times()

    def keep_values(self, index: int, frame: FrameType) -> None:
        """Read the values of the names in the condition, which ``frame`` runs."""
        outcome = self._outcomes[index]
        if outcome is not None:
            self._values[index] = values_at(outcome.file, outcome.line, frame)

    def values(self, frame: FrameType | None) -> dict[int, dict[str, str]]:
        """The values of the names in conditions, by index of the outcome.

        Parameters
        ----------
        frame
            The innermost frame of the recorded thread. In functions that still run, the values are
            those of now.
        """
        found = dict(self._values)
        live = frames_by_code(frame)
        for (index,) in list(self._sites.values()):
            outcome = self._outcomes[index]
            if outcome is None or outcome.kind not in ("branch", "guard"):
                continue
            running = live.get((outcome.file, outcome.function))
            if running is not None:
                now = values_at(outcome.file, outcome.line, running)
                found[index] = now or found.get(index, {})
        return {index: values for index, values in found.items() if values}


def frames_by_code(frame: FrameType | None) -> Mapping[tuple[str, str], FrameType]:
    """The frames of a stack by file and function; the innermost of several."""
    found: dict[tuple[str, str], FrameType] = {}
    while frame is not None:
        found.setdefault((frame.f_code.co_filename, frame.f_code.co_name), frame)
        frame = frame.f_back
    return found
