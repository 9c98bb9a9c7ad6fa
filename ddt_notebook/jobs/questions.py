"""Asks the ranks of a running job about the user's objects: devices, memory, data, parameters.

Ranks answer one after the other, within `_LIMIT_S`. Parameters are compared at the end of the same
optimizer step on all ranks, or, in a job that hangs, as they stand.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ..model import Observation
from ..model.running import AskedRunning, Unanswered, Why
from ..wire.messages import AskRunning, Failed, Message, RunningAnswer

#: An answer takes milliseconds, or some tenths of a second on a busy machine.
_LIMIT_S = 1.0
#: The first ranks of a larger job are asked: each answer may hold a thousand tensors.
_MOST_RANKS = 64
#: How long the end of a step is awaited, and how often the ranks are asked whether it has come.
_STEP_LIMIT_S, _STEP_EVERY_S = 5.0, 0.1
#: The step is to end about so long after it was chosen, so that all ranks know of it before.
_AHEAD_S = 0.5
_TRIES = 2
_NOW = ("placement", "memory", "partition")
_ALL = (*_NOW, "parity")


class Asked(Protocol):
    """What is used here of a `recorded_process.RecordedRank`."""

    rank: int
    gone_s: float | None
    is_here: bool
    running: RunningAnswer | Failed | None

    @property
    def silent_s(self) -> float: ...

    def connect(self) -> bool: ...

    def ask(self, message: Message) -> None: ...


def ask_running(
    ranks: Sequence[Asked], receive: Callable[[float], None], *, stands: bool
) -> tuple[dict[int, Observation], AskedRunning]:
    """What the ranks that run answer, by rank, and what they did not answer.

    Parameters
    ----------
    ranks
        The ranks of the job.
    receive
        Waits for answers for at most so many seconds, and processes them.
    stands
        Whether the job hangs.
    """
    return _Questions(ranks, receive).ask(stands=stands)


class _Questions:
    def __init__(self, ranks: Sequence[Asked], receive: Callable[[float], None]) -> None:
        self._running = [rank for rank in ranks if rank.gone_s is None]
        self._receive = receive
        self._seen: dict[int, Observation] = {}
        self._unanswered: dict[tuple[str, Why, str], list[int]] = defaultdict(list)

    def ask(self, *, stands: bool) -> tuple[dict[int, Observation], AskedRunning]:
        here = [rank for rank in self._running if rank.is_here]
        self._missing(_ALL, "elsewhere", [rank for rank in self._running if not rank.is_here])
        self._missing(_ALL, "left out", here[_MOST_RANKS:])
        # a monitor that owes an answer for so long would delay the others' answers only
        asked = [r for r in here[:_MOST_RANKS] if r.connect() and r.silent_s < _LIMIT_S / 2]
        self._missing(_ALL, "silent", [r for r in here[:_MOST_RANKS] if r not in asked])
        answered = self._answers(asked, AskRunning(probes=_NOW))
        self._missing(_ALL, "silent", [rank for rank in asked if rank.running is None])
        self._keep(answered)
        step, waited_s = None, 0.0
        if len(answered) > 1:
            begun_s = time.monotonic()
            step = self._compare_standing(answered) if stands else self._compare_running(answered)
            waited_s = round(time.monotonic() - begun_s, 3)
        unanswered = tuple(
            Unanswered(what=what, ranks=tuple(sorted(ranks)), why=why, detail=detail)
            for (what, why, detail), ranks in self._unanswered.items()
        )
        return self._seen, AskedRunning(
            stood=stands, step=step, waited_s=waited_s, unanswered=unanswered
        )

    def _missing(
        self, what: Iterable[str], why: Why, ranks: Iterable[Asked], detail: str = ""
    ) -> None:
        for rank in ranks:
            for name in what:
                self._unanswered[name, why, detail].append(rank.rank)

    def _answers(
        self, ranks: Iterable[Asked], message: AskRunning, limit_s: float = _LIMIT_S
    ) -> dict[Asked, RunningAnswer]:
        """Ask, and wait; the answers of the ranks that have answered in time."""
        ranks = list(ranks)
        for rank in ranks:
            rank.ask(message)
        deadline = time.monotonic() + limit_s
        while any(rank.running is None for rank in ranks):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            self._receive(min(left_s, 0.05))
        found = {}
        for rank in ranks:
            if isinstance(rank.running, Failed):
                self._missing(message.probes, "error", [rank], rank.running.error)
            elif rank.running is not None:
                found[rank] = rank.running
        return found

    def _keep(self, answers: dict[Asked, RunningAnswer]) -> None:
        for rank, answer in answers.items():
            if answer.observed is not None:
                before = self._seen.get(rank.rank, answer.observed)
                self._seen[rank.rank] = before.updated(answer.observed)
            for what, detail in answer.failed.items():
                self._missing([what], "error", [rank], detail)

    # -- parity ----------------------------------------------------------------------------------

    def _compare_standing(self, known: dict[Asked, RunningAnswer]) -> int | None:
        inside = [rank for rank, answer in known.items() if answer.stepping]
        if inside:
            self._missing(["parity"], "in step", inside)
            return None
        if len({answer.steps for answer in known.values()}) > 1:
            numbers = ", ".join(f"rank {rank.rank}: {a.steps:,}" for rank, a in known.items())
            self._missing(["parity"], "apart", known, numbers[:200])
            return None
        answers = self._answers(known, AskRunning(probes=("parity",)))
        self._missing(["parity"], "silent", [rank for rank in known if rank.running is None])
        self._keep(answers)
        return next(iter(known.values())).steps

    def _compare_running(self, known: dict[Asked, RunningAnswer]) -> int | None:
        ahead_s = _AHEAD_S
        for _ in range(_TRIES):
            begun_s = time.monotonic()
            before = max(answer.steps for answer in known.values())
            time.sleep(ahead_s / 2)
            known = self._answers(known, AskRunning())
            if len(known) < 2:
                return None
            now = max(answer.steps for answer in known.values())
            rate = (now - before) / (time.monotonic() - begun_s)
            step = now + 2 + math.ceil(rate * ahead_s)
            taken = self._wait_for(step, list(known))
            if taken is None:  # a rank was faster
                ahead_s *= 4
                continue
            if len(taken) == len(known):
                self._keep(taken)
                return step
            break
        self._missing(["parity"], "no step", known)
        return None

    def _wait_for(self, step: int, ranks: list[Asked]) -> dict[Asked, RunningAnswer] | None:
        """What ranks read at the end of a step; None if one had ended it before it was asked."""
        taken: dict[Asked, RunningAnswer] = {}
        deadline = time.monotonic() + _STEP_LIMIT_S
        while len(taken) < len(ranks) and time.monotonic() < deadline:
            left = [rank for rank in ranks if rank not in taken]
            for rank, answer in self._answers(left, AskRunning(at_step=step)).items():
                if answer.observed is not None or answer.failed:
                    taken[rank] = answer
                elif answer.steps >= step:
                    return None
            if len(taken) < len(ranks):
                time.sleep(_STEP_EVERY_S)
        return taken
