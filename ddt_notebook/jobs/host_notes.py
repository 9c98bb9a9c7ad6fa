"""What the reader of a job on several hosts should know; hosts are given by rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..formatting import ranks_text, seconds
from ..model.clock import Clock

#: A note names at most this many hosts.
_MOST_HOSTS = 8


def about_hosts(host_of: Mapping[int, str]) -> Iterator[str]:
    """Which ranks ran on which host, if there are several."""
    ranks: dict[str, list[int]] = {}
    for rank, host in host_of.items():
        ranks.setdefault(host, []).append(rank)
    if len(ranks) > 1:
        first, *others = list(ranks.items())[:_MOST_HOSTS]
        text = f"{ranks_text(first[1])} ran on {first[0]}"
        text += "".join(f", {ranks_text(there)} on {host}" for host, there in others)
        yield text + (", …" if len(ranks) > _MOST_HOSTS else "")


def about_unknown_ends(host_of: Mapping[int, str]) -> Iterator[str]:
    """Which hosts do not answer, with the ranks of which nothing else is known."""
    if host_of:
        hosts = list(dict.fromkeys(host_of.values()))
        named = ", ".join(hosts[:_MOST_HOSTS]) + (", …" if len(hosts) > _MOST_HOSTS else "")
        yield (
            "nothing shows how it stands with the processes of "
            f"{ranks_text(list(host_of))}: no ddt-notebook run on {named} "
            "answers; what is shown is from their last record"
        )


def about_clocks(host_of: Mapping[int, str], clock_of: Mapping[int, Clock]) -> Iterator[str]:
    """How the times of other hosts were aligned."""
    shown = {host: clock_of[rank] for rank, host in host_of.items()}
    for host, clock in shown.items():
        if clock.error_s is None:
            yield f"the times of {host} were aligned by its wall clock, with an unknown error"
        elif clock.error_s:
            yield (
                f"the times of {host} were aligned by collectives, "
                f"with an error of at most {seconds(clock.error_s)}"
            )
