"""The connections between hosts as a matrix: from the host of a row to the host of a column.

Of many hosts, those that are equal in all connections are one row and one column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..formatting import in_runs, rate, seconds
from ..model.hosts import HostLink, LinkQuantity, Trial
from . import html, safe, terminal

#: So many rows have numbers in the text; up to the second limit, each connection has a sign.
_NUMBERS, _SIGNS = 6, 60
#: So many rows have numbers in a page.
_NUMBERS_IN_PAGE = 16
_LONGEST_NAME = 14
_FAILED, _SLOW, _PASSED, _NOTHING = "✖", "▲", "·", " "
_SIGNS_MEAN = "▲ slower than others, ✖ failed"

#: One host, or several that are equal, and the connections from those of one to those of another.
_Group = tuple[str, ...]
_Links = dict[tuple[_Group, _Group], list[HostLink]]


@dataclass(frozen=True, slots=True)
class _Quantity:
    """One matrix: its title, and what it shows of a trial."""

    title: LinkQuantity
    of: Callable[[Trial], float | None]
    shown: Callable[[float], str]


def to_lines(links: Sequence[HostLink]) -> list[str]:
    """The matrices as text: numbers for a few rows, signs for many, nothing for very many."""
    groups, by_pair = _ordered(links)
    if not links or len(groups) > _SIGNS:
        return []
    if len(groups) > _NUMBERS:
        lines = [f"from the host of the row to that of the column ({_SIGNS_MEAN})"]
        width = max(len(_name(group)) for group in groups)
        for one in groups:
            signs = "".join(_sign(by_pair.get((one, other)), one == other) for other in groups)
            lines.append(f"  {_name(one):<{width}}  {signs}")
        return [*lines, *_members(groups)]
    lines = []
    for quantity in _quantities(links):
        rows = [
            [_name(one), *(_cell(by_pair.get((one, other)), quantity) for other in groups)]
            for one in groups
        ]
        lines.append(f"{quantity.title} from the host of the row to that of the column")
        lines += terminal.columns(rows, ["", *map(_name, groups)])
    return [*lines, *_members(groups)]


def _members(groups: Sequence[_Group]) -> Iterator[str]:
    for group in groups:
        if len(group) > 1:
            names = ", ".join(in_runs(map(safe.one_line, group)))
            yield from terminal.wrap("", f"{_name(group)}: {names}")


def to_markup(links: Sequence[HostLink]) -> list[html.Markup]:
    """The matrices for a page; those of many rows show signs, and numbers in tooltips."""
    groups, by_pair = _ordered(links)
    if not links:
        return []
    parts: list[html.Markup] = []
    for quantity in _quantities(links):
        rows = []
        for one in groups:
            row: list[str] = [_markup_name(one)]
            for other in groups:
                between = by_pair.get((one, other))
                if len(groups) > _NUMBERS_IN_PAGE:
                    number = f"{_name(one)} → {_name(other)}: {_cell(between, quantity)}"
                    sign = _sign(between, one == other, quantity)
                    row.append(html.tag("span", sign, title=number))
                else:
                    row.append(_marked(between, quantity))
            rows.append(row)
        title = f"{quantity.title} from the host of the row to that of the column"
        if len(groups) > _NUMBERS_IN_PAGE:
            title += f" ({_SIGNS_MEAN})"
        table = html.table(
            rows, ["", *map(_markup_name, groups)], long=len(groups) > _NUMBERS_IN_PAGE
        )
        parts += [html.heading(title), html.tag("div", table, style="overflow-x:auto")]
    for group in groups:
        if len(group) > 1:
            parts.append(html.line(f"{_name(group)}: {', '.join(in_runs(group))}"))
    return parts


def _ordered(links: Sequence[HostLink]) -> tuple[list[_Group], _Links]:
    """The rows, those that stand out first, and the connections between them."""
    hosts = list(dict.fromkeys(host for link in links for host in (link.source, link.target)))
    apart = set(hosts) if len(hosts) <= _NUMBERS else _stand_out(links, len(hosts))
    rest = tuple(host for host in hosts if host not in apart)
    if len(rest) == 1:
        apart.add(rest[0])
    groups: list[_Group] = [(host,) for host in hosts if host in apart]
    if len(rest) > 1:
        groups.append(rest)
    group_of = {host: group for group in groups for host in group}
    by_pair: _Links = {}
    for link in links:
        by_pair.setdefault((group_of[link.source], group_of[link.target]), []).append(link)
    return groups, by_pair


def _stand_out(links: Sequence[HostLink], hosts: int) -> set[str]:
    """The hosts that fail or are slow with most others; and both ends of the other connections."""
    left = [link for link in links if link.slow or link.trial.end != "passed"]
    found: set[str] = set()
    while left:
        ends = Counter(host for link in left for host in (link.source, link.target))
        host, most = max(ends.items(), key=lambda end: end[1])
        if 2 * most < hosts:
            return found | set(ends)
        found.add(host)
        left = [link for link in left if host not in (link.source, link.target)]
    return found


def _quantities(links: Sequence[HostLink]) -> list[_Quantity]:
    shown = [_Quantity("round trip", lambda trial: trial.round_trip_s, seconds)]
    if any(link.trial.bytes_per_s is not None for link in links):
        shown.append(_Quantity("bandwidth", lambda trial: trial.bytes_per_s, rate))
    return shown


def _cell(links: Sequence[HostLink] | None, quantity: _Quantity) -> str:
    """What is the worst of these connections, or the least and the most of them."""
    if not links:
        return ""
    failed = [link.trial.end for link in links if link.trial.end != "passed"]
    if failed:
        of_all = "" if len(failed) == len(links) else f" ({len(failed)} of {len(links)})"
        return f"{_FAILED} {failed[0]}{of_all}"
    known = [number for link in links if (number := quantity.of(link.trial)) is not None]
    if not known:
        return ""
    least, most = quantity.shown(min(known)), quantity.shown(max(known))
    shown = least if least == most else f"{least} to {most}"
    return f"{_SLOW} {shown}" if any(quantity.title in link.slow for link in links) else shown


def _marked(links: Sequence[HostLink] | None, quantity: _Quantity) -> str:
    text = _cell(links, quantity)
    notable = text.startswith((_SLOW, _FAILED))
    return html.tag("b", text, style="white-space:nowrap") if notable else text


def _sign(links: Sequence[HostLink] | None, itself: bool, quantity: _Quantity | None = None) -> str:
    """Connections as one character, for one quantity or for all."""
    if not links:
        return _NOTHING if itself else "?"
    if any(link.trial.end != "passed" for link in links):
        return _FAILED
    slow = [link.slow if quantity is None else quantity.title in link.slow for link in links]
    return _SLOW if any(slow) else _PASSED


def _name(group: _Group) -> str:
    return safe.middle(group[0], _LONGEST_NAME) if len(group) == 1 else f"{len(group)} equal hosts"


def _markup_name(group: _Group) -> str:
    return html.name(group[0], _LONGEST_NAME) if len(group) == 1 else _name(group)
