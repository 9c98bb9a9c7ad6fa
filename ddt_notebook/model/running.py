"""What the ranks of a running job were asked, and what they could not answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Why a rank did not answer: its monitor was silent, it runs on another host, it is not among the
#: ranks that are asked, an error, no optimizer step ended meanwhile, the ranks stand after
#: different numbers of steps, or the rank is inside a step.
Why = Literal["silent", "elsewhere", "left out", "error", "no step", "apart", "in step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A question that ranks did not answer.

    Attributes
    ----------
    what
        Field of `Snapshot` that lacks the answers.
    ranks
        The ranks, ascending.
    why
        The reason.
    detail
        The error, for ``"error"``.
    """

    what: str
    ranks: tuple[int, ...]
    why: Why
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedRunning:
    """How the ranks of a job were asked while they ran.

    Attributes
    ----------
    stood
        Whether the job hung, so that nothing changed while the ranks were asked.
    step
        The number of optimizer steps after which all ranks were compared; None if they were not.
    waited_s
        For how many seconds the end of that step was awaited.
    unanswered
        What is not known, and why.
    """

    stood: bool = False
    step: int | None = None
    waited_s: float = 0.0
    unanswered: tuple[Unanswered, ...] = ()
