"""The connections between hosts as a matrix: from the host of a row to the host of a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..formatting import rate, seconds
from ..model.hosts import HostLink, LinkQuantity, Trial
from . import html, safe, terminal

#: So many hosts have numbers in the text; up to the second limit, each connection has a sign.
_NUMBERS, _SIGNS = 6, 60
#: So many hosts have numbers in a page.
_NUMBERS_IN_PAGE = 16
_LONGEST_NAME = 14
_FAILED, _SLOW, _PASSED, _NOTHING = "✖", "▲", "·", " "
_SIGNS_MEAN = "▲ slower than others, ✖ failed"


@dataclass(frozen=True, slots=True)
class _Quantity:
    """One matrix: its title, and what it shows of a trial."""

    title: LinkQuantity
    of: Callable[[Trial], str]


def to_lines(links: Sequence[HostLink]) -> list[str]:
    """The matrices as text: numbers for a few hosts, signs for many, nothing for very many."""
    hosts, by_pair = _ordered(links)
    if len(hosts) < 2 or len(hosts) > _SIGNS:
        return []
    if len(hosts) > _NUMBERS:
        lines = [f"from the host of the row to that of the column ({_SIGNS_MEAN})"]
        width = max(len(_name(host)) for host in hosts)
        for one in hosts:
            signs = "".join(_sign(by_pair.get((one, other)), one == other) for other in hosts)
            lines.append(f"  {_name(one):<{width}}  {signs}")
        return lines
    lines = []
    for quantity in _quantities(links):
        rows = [
            [_name(one), *(_cell(by_pair.get((one, other)), quantity) for other in hosts)]
            for one in hosts
        ]
        lines.append(f"{quantity.title} from the host of the row to that of the column")
        lines += terminal.columns(rows, ["", *map(_name, hosts)])
    return lines


def to_markup(links: Sequence[HostLink]) -> list[html.Markup]:
    """The matrices for a page; those of many hosts show signs, and numbers in tooltips."""
    hosts, by_pair = _ordered(links)
    if len(hosts) < 2:
        return []
    parts = []
    for quantity in _quantities(links):
        rows = []
        for one in hosts:
            row: list[str] = [html.name(one, _LONGEST_NAME)]
            for other in hosts:
                link = by_pair.get((one, other))
                if len(hosts) > _NUMBERS_IN_PAGE:
                    number = f"{one} → {other}: {_cell(link, quantity)}"
                    row.append(html.tag("span", _sign(link, one == other, quantity), title=number))
                else:
                    row.append(_marked(link, quantity))
            rows.append(row)
        title = f"{quantity.title} from the host of the row to that of the column"
        if len(hosts) > _NUMBERS_IN_PAGE:
            title += f" ({_SIGNS_MEAN})"
        head = ["", *(html.name(host, _LONGEST_NAME) for host in hosts)]
        table = html.table(rows, head, long=len(hosts) > _NUMBERS_IN_PAGE)
        parts += [html.heading(title), html.tag("div", table, style="overflow-x:auto")]
    return parts


def _ordered(links: Sequence[HostLink]) -> tuple[list[str], dict[tuple[str, str], HostLink]]:
    by_pair = {(link.source, link.target): link for link in links}
    return list(dict.fromkeys(host for pair in by_pair for host in pair)), by_pair


def _quantities(links: Sequence[HostLink]) -> list[_Quantity]:
    shown = [_Quantity("round trip", _round_trip)]
    if any(link.trial.bytes_per_s is not None for link in links):
        shown.append(_Quantity("bandwidth", _bandwidth))
    return shown


def _round_trip(trial: Trial) -> str:
    return "" if trial.round_trip_s is None else seconds(trial.round_trip_s)


def _bandwidth(trial: Trial) -> str:
    return "" if trial.bytes_per_s is None else rate(trial.bytes_per_s)


def _cell(link: HostLink | None, quantity: _Quantity) -> str:
    if link is None:
        return ""
    if link.trial.end != "passed":
        return f"{_FAILED} {link.trial.end}"
    number = quantity.of(link.trial)
    return f"{_SLOW} {number}" if quantity.title in link.slow else number


def _marked(link: HostLink | None, quantity: _Quantity) -> str:
    text = _cell(link, quantity)
    notable = text.startswith((_SLOW, _FAILED))
    return html.tag("b", text, style="white-space:nowrap") if notable else text


def _sign(link: HostLink | None, itself: bool, quantity: _Quantity | None = None) -> str:
    """A connection as one character, for one quantity or for all."""
    if link is None:
        return _NOTHING if itself else "?"
    if link.trial.end != "passed":
        return _FAILED
    slow = link.slow if quantity is None else quantity.title in link.slow
    return _SLOW if slow else _PASSED


def _name(host: str) -> str:
    return safe.middle(host, _LONGEST_NAME)
