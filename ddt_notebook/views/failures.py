"""The original errors of the ranks: the first cause whole, its consequences folded."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..model import RankReport, Report, Snapshot
from . import safe, words
from .source_positions import group

#: A frame of torch itself or of our wrappers around it; also IPython's note on hidden frames.
_MACHINERY = re.compile(
    r"File \S*(?:torch[/\\](?:distributed[/\\]|autograd[/\\]|_tensor\.py)|"
    r"ddt_notebook[/\\]rank[/\\])|"
    r"\s*\[\.\.\. skipping hidden"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of one rank, or of several ranks with the same error.

    Attributes
    ----------
    ranks
        Those ranks.
    title
        ``rank 1 raised ValueError at cell[3] line 4: bad batch``.
    text
        The traceback, or the last output of a rank that died.
    cause
        True if the report's first finding blames one of these ranks.
    freed
        True if the session ended these ranks' wait: their errors add no information.
    """

    ranks: tuple[int, ...]
    title: str
    text: str
    cause: bool
    freed: bool = False


def of_snapshot(snapshot: Snapshot, report: Report) -> list[Failure]:
    """The errors of a run, the cause first, then by time."""
    blamed = set(report.findings[0].ranks) if report.findings else set()
    failed = [r for r in snapshot.ranks if r.error is not None or r.state == "died"]
    failed.sort(key=lambda r: _order(r, blamed))
    found = []
    for _, alike in group(failed, lambda r: _identity(r, blamed)):
        numbers = tuple(sorted(r.rank for r in alike))
        found.append(
            Failure(
                ranks=numbers,
                title=_title(alike),
                text=_text(alike[0]),
                cause=not blamed.isdisjoint(numbers),
                freed=alike[0].error is not None and alike[0].error.released,
            )
        )
    return found


def to_text(found: list[Failure]) -> str:
    """The first failure with its traceback, the others counted."""
    if not found:
        return ""
    first, *rest = found
    lines = [first.title]
    if first.text and not first.freed:
        lines.append(safe.block(_without_machinery(first.text)))
    if rest:
        lines.append("consequences:" if first.cause else "also:")
        lines += [f"  {failure.title}" for failure in rest[:3]]
    if len(rest) > 3:
        others = sorted(rank for failure in rest[3:] for rank in failure.ranks)
        lines.append(f"  and {words.count(len(rest) - 3, 'more')} on {words.ranks(others)}")
    return "\n".join(lines)


def _without_machinery(traceback: str) -> str:
    """A traceback as IPython prints it, less the frames below the user's call."""
    kept: list[str] = []
    dropped = 0
    for part in traceback.split("\n\n"):
        if _MACHINERY.match(part):
            dropped += 1
            continue
        if dropped:
            kept.append(f"    [... {words.count(dropped, 'frame')} hidden]")
            dropped = 0
        kept.append(part)
    return "\n\n".join(kept)


def _order(report: RankReport, blamed: set[int]) -> tuple[bool, bool, float, int]:
    error = report.error
    released = error is not None and error.released
    at = error.at_s if error is not None and error.at_s is not None else float("inf")
    return (report.rank not in blamed, released, at, report.rank)


def _identity(report: RankReport, blamed: set[int]) -> tuple[object, ...]:
    """Consequences of the same kind and place are one: only addresses and ports differ."""
    error = report.error
    if error is None:
        return (report.rank, "died")
    place = error.where.place if error.where else ""
    culprit = report.rank in blamed
    return (culprit, error.type, place, error.message if culprit else None, error.released)


def _title(alike: list[RankReport]) -> str:
    first = alike[0]
    who = words.ranks(r.rank for r in alike)
    error = first.error
    if error is None:
        return f"{who} {words.state(first)}"
    verb = "was freed with" if error.released else "raised"
    if error.released and len(alike) > 1:
        verb = "were freed with"
    place = f" at {safe.one_line(error.where.place)}" if error.where else ""
    message = "" if error.released else safe.one_line(error.message, 100)
    return f"{who} {verb} {error.type}{place}" + (f": {message}" if message else "")


def _text(report: RankReport) -> str:
    return report.error.traceback if report.error is not None else report.crash_text
