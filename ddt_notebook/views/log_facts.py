"""What logs say about the job as a whole, in a few rows, each with the lines that it rests on."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..model.log_facts import ClockSkew, LogFacts, LogLine, LogTimeout, ProcessEnd, Said
from . import html, safe, terminal, words
from .html import Markup

TITLE = "what the log says about the job"
#: Items of one row that are shown, and characters of a value.
_ITEMS, _VALUE = 8, 120
#: Differences between time zones are multiples of this.
_ZONE_S, _ZONE_SLACK_S = 900, 5
_REASONS = {
    "memory": "out of memory",
    "time": "the time limit of the job",
    "launcher": "ended by the launcher after another failure",
}


@dataclass(frozen=True, slots=True)
class _Item:
    text: str
    lines: tuple[LogLine, ...]


def as_text(facts: LogFacts | None, style: terminal.Style | None = None) -> list[str]:
    """The rows as paragraphs of a terminal; each item names its lines."""
    if not facts:
        return []
    lines = []
    for number, (label, items) in enumerate(_rows(facts)):
        shown = "; ".join(
            f"{item.text} ({_where(item.lines)})" if item.lines else item.text
            for item in items[:_ITEMS]
        )
        more = f"; and {len(items) - _ITEMS} more" if len(items) > _ITEMS else ""
        lines += terminal.wrap(" " if number else "log", f"{label}: {shown}{more}", style)
    return lines


def as_html(facts: LogFacts | None) -> list[Markup]:
    """A folded table; each item quotes its lines."""
    if not facts:
        return []
    rows: list[Sequence[str]] = []
    for label, items in _rows(facts):
        for number, item in enumerate(items[:_ITEMS]):
            quoted = [
                html.line(f"{_where([line])}: ", html.code(safe.one_line(line.text)))
                for line in item.lines
            ]
            head = Markup() if number else html.tag("span", label, style="white-space:nowrap")
            rows.append([head, item.text, Markup("".join(quoted))])
        if len(items) > _ITEMS:
            rows.append(["", f"and {len(items) - _ITEMS} more", ""])
    return [html.details(TITLE, html.table(rows, ("", "", "line")))]


def _rows(facts: LogFacts) -> Iterator[tuple[str, list[_Item]]]:
    rows = (
        ("started by", [_said(one, named=False) for one in facts.launchers]),
        ("versions", [_said(one) for one in facts.versions]),
        ("environment", [_said(one) for one in facts.variables]),
        ("network", [_said(one) for one in facts.network]),
        ("time-outs", [_timeout(one) for one in facts.timeouts]),
        ("meanwhile", [*_meanwhile(facts)]),
        ("ends", [_end(one) for one in facts.ends]),
        ("started again", [*_restarts(facts)]),
        ("clocks", [_skew(one) for one in facts.skews]),
    )
    for label, items in rows:
        if items:
            yield label, items
    if facts.silent and facts.world_size is not None:
        text = f"no line names {words.ranks(facts.silent)} of {facts.world_size}"
        yield "ranks", [_Item(text, ())]


def _said(one: Said, *, named: bool = True) -> _Item:
    value = safe.one_line(one.value, _VALUE)
    text = f"{safe.one_line(one.name, _VALUE)} {value}" if named else value
    if one.ranks:
        text += f" on {words.ranks(one.ranks)}"
    elif one.hosts:
        text += f" on {safe.one_line(', '.join(one.hosts), _VALUE)}"
    return _Item(text, (one.line,))


def _timeout(one: LogTimeout) -> _Item:
    who = words.ranks(one.ranks) if one.ranks else "somebody"
    what = one.op if one.sequence is None else f"{one.op} #{one.sequence}"
    text = f"{who} gave up {safe.one_line(what, _VALUE)}, limit {words.duration(one.limit_s)}"
    if one.waited_s is not None:
        text += f", waited {words.duration(one.waited_s)}"
    return _Item(text, (one.line,))


def _meanwhile(facts: LogFacts) -> Iterator[_Item]:
    for work in facts.work:
        who = "another process" if work.rank is None else words.ranks([work.rank])
        text = f"{who} was at work" + (" after the others gave up" if work.after else "")
        if work.worked_s is not None:
            text += f", for {words.duration(work.worked_s)} so far"
        yield _Item(text, (work.line,))
    for one in facts.quiet:
        since = words.duration(one.since_s)
        yield _Item(f"{words.ranks([one.rank])} had printed nothing for {since}", (one.line,))


def _end(one: ProcessEnd) -> _Item:
    who = [words.ranks(one.ranks)] if one.ranks else []
    who += [f"on {safe.one_line(one.where, _VALUE)}"] if one.where else []
    how = []
    if one.signal is not None:
        how.append(f"signal {one.signal}{_name(one.signal)}")
    elif one.code is not None:
        how.append(f"exit code {one.code}")
    if one.code is not None and one.signal is not None:
        how.append(f"exit code {one.code}")
    if one.reason:
        how.append(_REASONS.get(one.reason, one.reason))
    if one.first:
        how.append("the first failure")
    return _Item(f"{' '.join(who) or 'a process'}: {', '.join(how) or 'failed'}", (one.line,))


def _name(number: int) -> str:
    try:
        return f" {signal.Signals(number).name}"
    except ValueError:
        return ""


def _restarts(facts: LogFacts) -> Iterator[_Item]:
    if facts.restarts and facts.restarted is not None:
        yield _Item(words.count(facts.restarts, "time"), (facts.restarted,))


def _skew(one: ClockSkew) -> _Item:
    who = words.ranks(one.ranks) if one.ranks else safe.one_line(", ".join(one.files), _VALUE)
    side = "ahead of" if one.ahead_s > 0 else "behind"
    first = one.lines[0]
    than = words.ranks([first.rank]) if first.rank is not None else safe.one_line(first.file)
    size = abs(one.ahead_s)
    text = f"the time stamps of {who} are {words.duration(size)} {side} those of {than}"
    text += f" (median of {words.count(one.events, 'event')}"
    text += f", spread {words.duration(one.spread_s)})" if one.events > 1 else ")"
    rest = size % _ZONE_S
    if size >= _ZONE_S and min(rest, _ZONE_S - rest) <= _ZONE_SLACK_S:
        text += ", like another time zone"
    return _Item(text, one.lines)


def _where(lines: Iterable[LogLine]) -> str:
    """``line 3 of rank0.log``."""
    return " and ".join(
        f"line {line.number}" + (f" of {safe.one_line(line.file, _VALUE)}" if line.file else "")
        for line in lines
    )
