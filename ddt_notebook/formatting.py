"""Formats ranks, counts, times and sizes, for all messages and views."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

#: From this many consecutive ranks on, a list is written as a range.
_RANGE_FROM = 3
_MINUTE_S = 60
#: Up to these limits, a time is written in seconds, or in minutes and seconds.
_SECONDS_UP_TO_S, _BOTH_UP_TO_S = 120, 600
#: The longest name of a host that is shown.
_LONGEST_HOST = 24
_HOSTS: ContextVar[Mapping[int, str]] = ContextVar("hosts", default={})  # noqa: B039  (read only)


#: So many digits, since a host may be called anything.
_NUMBER_AT_END = re.compile(r"[0-9]{1,9}\Z")


@contextmanager
def naming_hosts(host_of: Mapping[int, str]) -> Iterator[None]:
    """Let the names of ranks show their hosts (``rank 5 · nodeB``) as long as this is entered.

    Parameters
    ----------
    host_of
        The host of each rank, with its full name; nothing changes unless there are several.
    """
    hosts = {host for host in host_of.values() if host}
    shown: Mapping[int, str] = {}
    if len(hosts) > 1:
        first = {host: host.partition(".")[0] for host in hosts}
        brief = first if len(set(first.values())) == len(hosts) else {host: host for host in hosts}
        shown = {rank: _name(brief[host]) for rank, host in host_of.items() if host}
    before = _HOSTS.set(shown)
    try:
        yield
    finally:
        _HOSTS.reset(before)


def _name(host: str) -> str:
    """A host's name for one line; what a record holds in its place may be anything."""
    name = re.sub(r"[^\w.:-]", "_", host)
    return name if len(name) <= _LONGEST_HOST else f"{name[: _LONGEST_HOST - 1]}…"


def host_shown(ranks: Iterable[int]) -> str:
    """``nodeB`` if the host of ranks is shown, and is the same for all of them; else empty."""
    known = _HOSTS.get()
    hosts = {known.get(rank, "") for rank in ranks} if known else set[str]()
    return hosts.pop() if len(hosts) == 1 else ""


def hosts_shown(ranks: Iterable[int]) -> dict[str, list[int]]:
    """The ranks of each host, if hosts are shown."""
    known = _HOSTS.get()
    found: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        if rank in known:
            found.setdefault(known[rank], []).append(rank)
    return found


def _on_host(ranks: Iterable[int]) -> str:
    host = host_shown(ranks)
    return f" · {host}" if host else ""


def rank_list(ranks: Iterable[int]) -> str:
    """``0, 2, 3``; three or more in a row become a range: ``0-3, 6``."""
    return ", ".join(_ranges(ranks))


def _ranges(ranks: Iterable[int]) -> list[str]:
    numbers = sorted(set(ranks))
    parts: list[str] = []
    start = 0
    while start < len(numbers):
        end = start
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        if end - start + 1 >= _RANGE_FROM:
            parts.append(f"{numbers[start]}-{numbers[end]}")
        else:
            parts.extend(map(str, numbers[start : end + 1]))
        start = end + 1
    return parts


def ranks_text(ranks: Iterable[int]) -> str:
    """``rank 1``, ``ranks 0, 2 and 3`` or ``ranks 0-3 and 6``."""
    numbers = set(ranks)
    listed = listing(_ranges(numbers))
    return f"rank{'' if len(numbers) == 1 else 's'} {listed}{_on_host(numbers)}"


def ranks_label(ranks: Iterable[int]) -> str:
    """``rank 1``, ``ranks 0, 2-3``: the short form in front of output."""
    numbers = set(ranks)
    return f"rank{'' if len(numbers) == 1 else 's'} {ranks_cell(numbers)}"


def ranks_cell(ranks: Iterable[int]) -> str:
    """``0, 2, 3`` or ``4-7 · nodeB``, for a column of ranks."""
    numbers = set(ranks)
    return f"{rank_list(numbers)}{_on_host(numbers)}"


def agree(ranks: Iterable[int], one: str, several: str) -> str:
    """The form that fits the number of ranks: ``waits`` or ``wait``."""
    return one if len(set(ranks)) == 1 else several


def count(number: int, noun: str) -> str:
    """``1 group``, ``12 collectives``, ``2 batches``, ``2 epochs``, ``2,000 calls``."""
    hissed = noun.endswith(("ch", "sh", "s", "x")) and not noun.endswith("epoch")
    ending = "es" if hissed else "s"
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def listing(items: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    parts = list(items)
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def in_runs(names: Iterable[str]) -> list[str]:
    """Names with their number at the end; three or more in a row become ``node1 to node8``."""
    runs: list[list[str]] = []
    for name in names:
        if runs and name == _next_name(runs[-1][-1]):
            runs[-1].append(name)
        else:
            runs.append([name])
    return [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)]


def _next_name(name: str) -> str | None:
    number = _NUMBER_AT_END.search(name)
    if number is None:
        return None
    digits = number.group()
    return name[: number.start()] + str(int(digits) + 1).zfill(len(digits))


def seconds(value: float) -> str:
    """``0.35 ms``, ``150 ms``, ``2.1 s``, ``15 s``, ``2 min 30 s``, ``2 h 5 min``."""
    if not math.isfinite(value):
        return "?"
    if value == 0:
        return "0 s"
    if value < 0.9995:
        return f"{1e3 * value:.2f} ms" if value < 0.01 else f"{1e3 * value:.0f} ms"
    if value < 9.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < _SECONDS_UP_TO_S:
        return f"{whole} s"
    minutes, rest = divmod(whole, _MINUTE_S)
    if whole < _BOTH_UP_TO_S and rest:
        return f"{minutes} min {rest} s"
    minutes = round(value / _MINUTE_S)
    if minutes < _MINUTE_S:
        return f"{minutes} min"
    hours, rest = divmod(minutes, _MINUTE_S)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def size(number: int | None) -> str:
    """``512 B``, ``4.2 MB``; a question mark if not known."""
    if number is None:
        return "?"
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def rate(bytes_per_s: float) -> str:
    """``630 MB/s``."""
    return f"{size(round(bytes_per_s) if math.isfinite(bytes_per_s) else None)}/s"
