"""Lines of a log, each with its number and the rank that printed it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_DATE = r"(?:\w{3} \w{3} +\d+ [\d:]+ \d{4} ?)?"
#: A time stamp of a container's log, which stays in the text.
_STAMP = re.compile(r"20\d\d-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) ")
#: Marks that launchers print before a line of a rank.
_TAGS = (
    re.compile(r"\[(?:rank|default) ?(\d+)\]: ?"),  # torchrun
    re.compile(_DATE + r"\[\d+,(\d+)\]<std(?:out|err|diag)>: ?"),  # mpirun
    re.compile(_DATE + r"\[(\d+)\]<std(?:out|err)>: ?"),  # horovodrun
    re.compile(r"\[(\d{1,5})\]: ?"),
)  # fmt: skip
#: ``srun --label``; plain text may begin like that, so most lines must have the mark.
_SLURM = re.compile(r" *(\d{1,5}): ")
#: "Most lines" means more than this part.
_MOST = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """A line without the mark of its rank.

    Attributes
    ----------
    number
        Its number in the log, counted from 1.
    rank
        The rank that printed it, None if the log does not show it.
    text
        Its text without terminal codes.
    """

    number: int
    rank: int | None
    text: str


def separate(numbered: Iterable[tuple[int, str]]) -> list[Line]:
    """Assign the lines of a log to ranks by the marks that the launcher printed before them."""
    plain = [(number, _ANSI.sub("", text) if "\x1b" in text else text) for number, text in numbered]
    tags: Sequence[re.Pattern[str]] = _TAGS
    labelled = sum(1 for _, text in plain if _SLURM.match(text))
    if labelled >= 2 and labelled > _MOST * sum(1 for _, text in plain if text.strip()):
        tags = (*_TAGS, _SLURM)
    return [_line(number, text, tags) for number, text in plain]


def _line(number: int, text: str, tags: Sequence[re.Pattern[str]]) -> Line:
    stamp = _STAMP.match(text) if text.startswith("20") else None
    start = stamp.end() if stamp else 0
    for tag in tags:
        if match := tag.match(text, start):
            return Line(number, int(match[1]), text[:start] + text[match.end() :])
    return Line(number, None, text)


def by_rank(lines: Iterable[Line]) -> dict[int | None, list[Line]]:
    """Return the lines of each rank in their order."""
    found: dict[int | None, list[Line]] = defaultdict(list)
    for line in lines:
        found[line.rank].append(line)
    return dict(found)
