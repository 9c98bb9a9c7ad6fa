"""Compares the hosts of a session, and says which of them do not reach each other."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from ..formatting import count, listing, rate, seconds
from ..model.hosts import HostFacts, HostLink, Pair, Trial, TrialEnd
from ..model.preflight import Check
from .differences import DIFFERENT_VERSIONS, OF_RANK, differences
from .links import link_checks, slow_pairs
from .resources import shared_memory_check
from .variables import variable_checks

#: Variables that may differ between hosts: the names of interfaces and devices.
_OF_HOST = OF_RANK | {
    *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_IB_HCA"),
}
#: Clocks that differ by less do not confuse who compares logs.
_CLOCK_S = 0.5
#: So many connections are listed.
_LISTED = 12

_OTHER_NETWORK = (
    "choose a network in which all hosts reach each other: ddt-notebook agent --interface NAME …, "
    "or GLOO_SOCKET_IFNAME"
)
#: What the end of a trial means, and what to do.
_ENDS: dict[TrialEnd, tuple[str, str]] = {
    "refused": (
        "an agent listens there, so a firewall rejects this, or the address leads elsewhere",
        "let all TCP ports through between the hosts, since ranks use any free port; or "
        + _OTHER_NETWORK,
    ),
    "no answer": (
        "an agent listens there, so a firewall drops what is sent, or there is no way back",
        "let all TCP ports through between the hosts, since ranks use any free port; or "
        + _OTHER_NETWORK,
    ),
    "unreachable": ("there is no way to this address", _OTHER_NETWORK),
    "stalled": (
        "short messages arrive and a long one does not: packets of full size are lost on the way",
        "set the same MTU on all interfaces on the way, or a smaller one on all hosts",
    ),
    "other": (
        "another host or program answers at this address",
        "each host needs an address of its own; " + _OTHER_NETWORK,
    ),
}


def host_checks(
    facts: Mapping[str, HostFacts],
    ahead_s: Mapping[str, float],
    failed: Mapping[str, str],
    trials: Mapping[Pair, Trial],
) -> Iterator[Check]:
    """Compare the hosts of a session.

    Parameters
    ----------
    facts
        What each host reported.
    ahead_s
        How far the wall clock of each host is ahead of that of the notebook's machine.
    failed
        Why a host did not report.
    trials
        How each host tried to reach each other one.
    """
    for host, why in failed.items():
        fix = "stop this session, and start one with all hosts"
        yield Check("hosts", host, "error", why, "nothing is known of this host", fix, "host-lost")
    yield from _connections(facts, trials)
    yield from _versions({host: one.versions for host, one in facts.items()})
    yield from _variables({host: one.variables for host, one in facts.items()})
    for host, one in facts.items():
        if len(facts) > 1:  # on one host, ranks reach each other through the loopback interface
            yield _name(host, one)
    yield from _clocks(ahead_s)
    yield from _packets(facts)
    for host, one in facts.items():
        if one.shared_bytes is not None and one.shared_free is not None:
            check = shared_memory_check(one.shared_bytes, one.shared_free)
            yield replace(check, topic="hosts", name=f"{check.name} on {host}")


def links(trials: Mapping[Pair, Trial]) -> tuple[HostLink, ...]:
    """The connections between the hosts, with what is slow about them."""
    slow = slow_pairs(trials)
    return tuple(
        HostLink(source=one, target=other, trial=trial, slow=slow.get((one, other), ()))
        for (one, other), trial in trials.items()
    )


def _connections(facts: Mapping[str, HostFacts], trials: Mapping[Pair, Trial]) -> Iterator[Check]:
    failed: dict[tuple[str, TrialEnd, str], list[str]] = {}
    for (one, other), trial in trials.items():
        if trial.end != "passed":
            failed.setdefault((other, trial.end, trial.error), []).append(one)
    for (other, end, error), who in failed.items():
        where = facts[other].address if other in facts else other
        said = f" ({error})" if error else ""
        meaning, fix = _ENDS[end]
        yield Check(
            "connections",
            f"{listing(who)} → {other}",
            "error",
            f"{end} at {where}{said}",
            f"{meaning}; collectives between these hosts fail or hang",
            fix,
            "full-packets-lost" if end == "stalled" else "hosts-not-connected",
        )
    passed = {pair: trial for pair, trial in trials.items() if trial.end == "passed"}
    if not passed:
        return
    all_of_them = len(passed) == len(trials)
    seen = "each host reached each other one" if all_of_them else f"{len(passed)} others passed"
    times = [trial.round_trip_s for trial in passed.values() if trial.round_trip_s is not None]
    rates = [trial.bytes_per_s for trial in passed.values() if trial.bytes_per_s is not None]
    if times:
        seen += f"; round trip {_between(times, seconds)}"
    if rates:
        seen += f"; {_between(rates, rate)}"
    yield Check("connections", "tried", "ok", seen)
    yield from link_checks(passed)


def _between(values: list[float], shown: Callable[[float], str]) -> str:
    least, most = shown(min(values)), shown(max(values))
    return least if least == most else f"{least} to {most}"


def _versions(versions: Mapping[str, Mapping[str, str]]) -> Iterator[Check]:
    names = dict.fromkeys(name for known in versions.values() for name in known)
    differing: list[tuple[str, str]] = []
    for name in names:  # where one is missing, it may have come in another way
        known = {host: {name: one[name]} for host, one in versions.items() if name in one}
        differing += differences(known, ())
    for name, values in differing:
        meaning = DIFFERENT_VERSIONS.get(name, "it differs between the hosts")
        fix = f"install the same version of {name} on all hosts"
        card = "environment-differs-by-host"
        yield Check("hosts", name, "error", values, meaning, fix, card)
    if versions and not differing:
        first = next(iter(versions.values()))
        seen = ", ".join(f"{name} {version}" for name, version in first.items())
        if len(versions) > 1:
            seen += f" on {'both' if len(versions) == 2 else f'all {len(versions)}'} hosts"
        yield Check("hosts", "versions", "ok", seen)


def _variables(variables: Mapping[str, Mapping[str, str]]) -> Iterator[Check]:
    for name, values in differences(variables, _OF_HOST):
        meaning = "it differs between the hosts"
        fix = "set it to the same value where each agent is started"
        card = "environment-differs-by-host"
        yield Check("hosts", name, "warning", values, meaning, fix, card)
    where: dict[Check, list[str]] = {}
    for host, known in variables.items():
        for check in variable_checks(known):
            where.setdefault(check, []).append(host)
    for check, hosts in where.items():
        if len(hosts) == len(variables):
            yield check
        else:
            yield replace(check, name=f"{check.name} on {listing(hosts)}")


def _name(host: str, facts: HostFacts) -> Check:
    what = f"name of {host}"
    known = facts.name_addresses
    shown = f"{facts.name} is {', '.join(known)}" if known else f"{facts.name} has no address"
    # on one machine, hosts that meet at a loopback address may be called so
    if known and (_is_loopback(facts.address) or not all(map(_is_loopback, known))):
        return Check("hosts", what, "ok", shown)
    if facts.gloo_interface:
        return Check("hosts", what, "ok", f"{shown}; GLOO_SOCKET_IFNAME is {facts.gloo_interface}")
    meaning = (
        "a job there gives this address to other hosts, which connect to themselves"
        if known
        else "a job there does not find its own address"
    )
    return Check(
        "hosts",
        what,
        "warning",
        f"on {host}, {shown}",
        f"{meaning}; this session is not affected, since its ranks use {facts.interface}",
        f"write {facts.address} {facts.name} into /etc/hosts on {host}, or set "
        f"GLOO_SOCKET_IFNAME={facts.interface} there before a job",
        "loopback-address" if known else "",
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _clocks(ahead_s: Mapping[str, float]) -> Iterator[Check]:
    if len(ahead_s) < 2:
        return
    apart_s = max(ahead_s.values()) - min(ahead_s.values())
    if apart_s < _CLOCK_S:
        yield Check("hosts", "clocks", "ok", f"at most {seconds(apart_s)} apart")
        return
    shown = ", ".join(f"{host} {one:+.1f} s" for host, one in ahead_s.items())
    yield Check(
        "hosts",
        "clocks",
        "warning",
        f"{seconds(apart_s)} apart (against the notebook's machine: {shown})",
        "times in the logs of different hosts cannot be compared",
        "let a time service (chrony, systemd-timesyncd) set the clocks",
        "clocks-differ",
    )


def _packets(facts: Mapping[str, HostFacts]) -> Iterator[Check]:
    """The interfaces of the hosts, and the sizes of their packets."""
    shown = ", ".join(
        f"{host} {one.interface} {one.address}, MTU {one.mtu}" for host, one in facts.items()
    )
    sizes: Collection[int] = {one.mtu for one in facts.values() if one.mtu}
    if len(sizes) <= 1:
        yield Check("hosts", "interfaces", "ok", shown)
        return
    yield Check(
        "hosts",
        "MTU",
        "warning",
        shown,
        "packets of the largest size may be lost on their way to a host with a smaller one",
        f"set the same MTU on all hosts, such as {min(sizes)}",
        "full-packets-lost",
    )


def machine(facts: Mapping[str, HostFacts], failed: Mapping[str, str]) -> str:
    """The title of a report on these hosts."""
    names = [*facts, *failed]
    return ", ".join(names) if len(names) <= _LISTED else count(len(names), "host")
