"""Finds what ranks did while others waited for them in a collective, and which ranks were quiet.

A time limit was too short if a rank was at work; a rank that printed nothing may be dead or stuck.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ddt_notebook.model.log_facts import ClockSkew, LogTimeout, Quiet, Work

from . import stamps
from .sources import Origin, Source
from .stamps import Stamp

#: tqdm's bar: what is done, the done and all items, the time that passed, and the unit of the rate.
_BAR = re.compile(
    r"([^\r\n|]{0,80}?):? +\d{1,3}%\|[^|\r\n]{0,200}\| *([\d.,]+[kMG]?)/([\d.,]+[kMG]?) "
    r"\[(?:(\d{1,3}):)?(\d{1,3}):(\d\d)<[^,\]]{1,20},? *([^\]]{0,40})\]"
)
#: The unit of the bars of Hugging Face's datasets (map, filter, the making of a split). That work
#: makes no collective, so the time that its bar shows was spent outside of all of them.
_OUTSIDE_OF_COLLECTIVES = "examples/s"
#: Lines of PyTorch, NCCL and launchers about the failure, which show no work.
_ABOUT_FAILURE = re.compile(
    r"ProcessGroup|NCCL|atchdog|eartbeat|SIG[A-Z]{3,4}|[Ee]rror|Traceback|elastic|Exception|exit"
)
#: A bar that shows this part of the time limit ran for the whole wait: it is drawn again only after
#: some items, and the others began to wait a little before it began.
_WHOLE = 0.95
#: A line in the last part of the wait shows that the rank was at work when the others gave up.
_LAST_PART = 0.2
#: A rank is quiet if its last line is older than this part of the time limit.
_QUIET = 0.5
#: The last line of a rank that gave up is at least and at most so old, as parts of its wait, with
#: some seconds for the way to the collective.
_AGE, _SLACK_S = (0.5, 2.0), 120.0
_MOST = 4
#: Characters at the end of a line that are searched for a bar.
_BAR_TEXT = 2_000


@dataclass(frozen=True, slots=True)
class _Bar:
    what: str
    done: str
    passed_s: int
    outside: bool


def _bars(text: str) -> list[_Bar]:
    if "%|" not in text:
        return []
    text = text[-_BAR_TEXT:]
    return [
        _Bar(
            match[1].strip(),
            match[2],
            int(match[4] or 0) * 3600 + int(match[5]) * 60 + int(match[6]),
            _OUTSIDE_OF_COLLECTIVES in match[7],
        )
        for match in _BAR.finditer(text)
    ]


def during(
    gave_up: Mapping[int, Origin],
    limits: Sequence[LogTimeout],
    last: Mapping[Source, Iterable[Origin]],
    world: int | None,
) -> tuple[Work, ...]:
    """Return what shows that ranks were at work while the ranks of ``gave_up`` waited.

    Parameters
    ----------
    last
        The last lines of each rank, and of the lines that no rank is named for.
    """
    if not gave_up or (world is not None and len(gave_up) >= world):
        return ()
    limit = limits[0].limit_s
    waited = limits[0].waited_s or limit
    moments = {line.file: line.order for line in reversed(_by_order(gave_up.values()))}
    stamp = _moment(gave_up, last, waited)
    found: list[Work] = []
    for source, lines in last.items():
        if source in gave_up:
            continue
        work = _by_bar([*lines], moments, limit)
        if work is None and isinstance(source, int) and stamp is not None:
            work = _by_stamp([*lines], stamp, waited)
        if work is not None:
            found.append(work)
    return tuple(sorted(found, key=lambda one: (one.rank is None, not one.after))[:_MOST])


def _by_order(lines: Iterable[Origin]) -> list[Origin]:
    return sorted(lines, key=lambda line: line.order)


def _moment(
    gave_up: Mapping[int, Origin], last: Mapping[Source, Iterable[Origin]], waited: float
) -> Stamp | None:
    """Return when the first rank gave up, if the stamps of programs can be compared with it.

    The ranks that gave up show that: their own last lines have to be as old as their wait. A log in
    another time zone, or of ranks that print nothing, shows nothing.
    """
    first = _by_order(gave_up.values())[0]
    moment = stamps.read(first.text)
    if moment is None:
        return None
    ages = []
    for rank in gave_up:
        of_program = (line for line in last.get(rank, ()) if not _ABOUT_FAILURE.search(line.text))
        read = [stamp for line in of_program if (stamp := stamps.read(line.text)) is not None]
        if read:
            ages.append(moment.seconds - read[-1].seconds)
    fit = ages and all(_AGE[0] * waited <= age <= _AGE[1] * waited + _SLACK_S for age in ages)
    return moment if fit else None


def _by_bar(lines: list[Origin], moments: Mapping[str, int], limit: float) -> Work | None:
    """Return the bar that went on after the others gave up, or that had run for the whole wait."""
    before: dict[str, _Bar] = {}
    found: Work | None = None
    for line in lines:
        moment = moments.get(line.file)
        for bar in _bars(line.text):
            after = moment is not None and line.order > moment
            known = before.get(bar.what, bar)
            # Another bar of the same name, of another rank or for the next file, begins at 0.
            advanced = known.done != bar.done and known.passed_s < bar.passed_s
            if after and advanced:
                return Work(rank=line.rank, worked_s=bar.passed_s, after=True, line=line.quoted())
            if bar.outside and bar.passed_s >= _WHOLE * limit:
                found = Work(rank=line.rank, worked_s=bar.passed_s, after=after, line=line.quoted())
            if not after:
                before[bar.what] = bar
    return found


def _by_stamp(lines: list[Origin], gave_up: Stamp, waited: float) -> Work | None:
    """Return the last line that a rank printed late in the wait of the others, or after it."""
    for line in reversed(lines):
        stamp = stamps.read(line.text)
        if stamp is None or stamp.zone != gave_up.zone or _ABOUT_FAILURE.search(line.text):
            continue
        before = gave_up.seconds - stamp.seconds
        if before > _LAST_PART * waited:
            return None
        return Work(rank=line.rank, worked_s=None, after=before < 0, line=line.quoted())
    return None


def quiet(
    gave_up: Mapping[int, Origin],
    limits: Sequence[LogTimeout],
    last: Mapping[Source, Iterable[Origin]],
    skews: Sequence[ClockSkew],
) -> tuple[Quiet, ...]:
    """Return the ranks that gave nothing up and whose last line is old at that moment."""
    if not gave_up:
        return ()
    moment = _moment(gave_up, last, limits[0].waited_s or limits[0].limit_s)
    if moment is None:
        return ()
    ahead = {rank: skew.ahead_s for skew in skews for rank in skew.ranks}
    first = next(rank for rank, line in gave_up.items() if line is _by_order(gave_up.values())[0])
    found = []
    for source, lines in last.items():
        if source in gave_up or not isinstance(source, int):
            continue
        own = [line for line in lines if not _ABOUT_FAILURE.search(line.text)]
        stamp = stamps.read(own[-1].text) if own else None
        if stamp is None or stamp.zone != moment.zone:
            continue
        age = moment.seconds - ahead.get(first, 0.0) - (stamp.seconds - ahead.get(source, 0.0))
        if age >= _QUIET * limits[0].limit_s:
            found.append(Quiet(rank=source, since_s=round(age, 1), line=own[-1].quoted()))
    return tuple(sorted(found, key=lambda one: -one.since_s)[:_MOST])
