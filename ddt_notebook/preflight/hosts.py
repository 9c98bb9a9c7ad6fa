"""Compares the hosts of a session, and says which of them do not reach each other."""

from __future__ import annotations

import ipaddress
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from ..formatting import count, in_runs, listing, rate, seconds
from ..model.hosts import HostFacts, HostLink, Pair, Trial, TrialEnd
from ..model.preflight import Check, Verdict
from .differences import DIFFERENT_VERSIONS, OF_RANK, differences, held_by
from .links import link_checks, slow_pairs
from .resources import shared_memory_check
from .variables import variable_checks

#: Variables that may differ between hosts: the names of interfaces and devices.
_OF_HOST = OF_RANK | {
    *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_IB_HCA"),
}
#: Clocks that differ by less do not confuse who compares logs.
_CLOCK_S = 0.5
#: So many hosts have a line of their own in a list.
_NAMED = 3

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
    by_reason: dict[str, list[str]] = {}
    for host, why in failed.items():
        by_reason.setdefault(why.removeprefix(host), []).append(host)
    for why, hosts in by_reason.items():
        names = listing(in_runs(hosts))
        seen = failed[hosts[0]] if len(hosts) == 1 else f"each of these {len(hosts)} hosts{why}"
        meaning = f"nothing is known of {'this host' if len(hosts) == 1 else 'these hosts'}"
        fix = "stop this session, and start one with all hosts"
        yield Check("hosts", names, "error", seen, meaning, fix, "host-lost")
    yield from _connections(facts, trials)
    yield from _versions({host: one.versions for host, one in facts.items()})
    yield from _variables({host: one.variables for host, one in facts.items()})
    if len(facts) > 1:  # on one host, ranks reach each other through the loopback interface
        yield from _names(facts)
    yield from _clocks(ahead_s)
    yield from _packets(facts)
    yield from _shared_memory(facts)


def links(trials: Mapping[Pair, Trial]) -> tuple[HostLink, ...]:
    """The connections between the hosts, with what is slow about them."""
    slow = slow_pairs(trials)
    return tuple(
        HostLink(source=one, target=other, trial=trial, slow=slow.get((one, other), ()))
        for (one, other), trial in trials.items()
    )


def _connections(facts: Mapping[str, HostFacts], trials: Mapping[Pair, Trial]) -> Iterator[Check]:
    failed: dict[tuple[TrialEnd, str], set[Pair]] = {}
    for pair, trial in trials.items():
        if trial.end != "passed":
            failed.setdefault((trial.end, trial.error), set()).add(pair)
    for (end, error), pairs in failed.items():
        for sources, targets in _blocks(pairs, list(dict.fromkeys(h for p in trials for h in p))):
            where = [facts[host].address if host in facts else host for host in targets]
            shown = where[0] if len(where) == 1 else count(len(where), "address")
            said = f" ({error})" if error else ""
            meaning, fix = _ENDS[end]
            yield Check(
                "connections",
                f"{listing(in_runs(sources))} → {listing(in_runs(targets))}",
                "error",
                f"{end} at {shown}{said}",
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


def _blocks(pairs: set[Pair], order: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Connections by the host that most of them lead to, or come from."""
    left = set(pairs)
    while left:
        ends = Counter((side, pair[side]) for pair in sorted(left) for side in (1, 0))
        side, host = max(ends, key=lambda end: ends[end])
        mine = {pair for pair in left if pair[side] == host}
        left -= mine
        others = [other for other in order if other in {pair[1 - side] for pair in mine}]
        yield (others, [host]) if side else ([host], others)


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
            yield replace(check, name=f"{check.name} on {listing(in_runs(hosts))}")


def _names(facts: Mapping[str, HostFacts]) -> Iterator[Check]:
    """Whether the name of each host leads to it; hosts with the same fault are one check."""
    well: list[str] = []
    alike: dict[tuple[str, ...], list[str]] = {}
    for host, one in facts.items():
        known = one.name_addresses
        # on one machine, hosts that meet at a loopback address may be called so
        leads = known and (_is_loopback(one.address) or not all(map(_is_loopback, known)))
        if leads or one.gloo_interface:
            well.append(host)
        else:
            alike.setdefault((one.interface, *known), []).append(host)
    if well:
        shown = [_named(facts[host]) for host in well]
        seen = listing(shown) if len(well) <= _NAMED else f"{shown[0]}, …, {shown[-1]}"
        names = listing(in_runs(well))
        yield Check("hosts", f"{'name' if len(well) == 1 else 'names'} of {names}", "ok", seen)
    for (interface, *addresses), hosts in alike.items():
        first, names = facts[hosts[0]], listing(in_runs(hosts))
        alone = len(hosts) == 1
        address = ", ".join(addresses) or "no address"
        meaning = (
            "a job there gives this address to other hosts, which connect to themselves"
            if addresses
            else "a job there does not find its own address"
        )
        line = f"{first.address} {first.name}"
        entry = f"write {line} into" if alone else f"write a line of each host, as {line}, into"
        yield Check(
            "hosts",
            f"name of {names}",
            "warning",
            f"on {names}, {_named(first)}" if alone else f"on each of them, its name is {address}",
            f"{meaning}; this session is not affected, since its ranks use {interface}",
            f"{entry} /etc/hosts on {names if alone else 'each of them'}, or set "
            f"GLOO_SOCKET_IFNAME={interface} there before a job",
            "loopback-address" if addresses else "",
        )


def _named(facts: HostFacts) -> str:
    known = facts.name_addresses
    shown = f"{facts.name} is {', '.join(known)}" if known else f"{facts.name} has no address"
    if facts.gloo_interface and all(map(_is_loopback, known)):
        shown += f", and GLOO_SOCKET_IFNAME is {facts.gloo_interface}"
    return shown


def _shared_memory(facts: Mapping[str, HostFacts]) -> Iterator[Check]:
    """What the host with the least shared memory has, of those that have enough and the others."""
    by_verdict: dict[Verdict, dict[str, tuple[int, Check]]] = {}
    for host, one in facts.items():
        if one.shared_bytes is not None and one.shared_free is not None:
            check = shared_memory_check(one.shared_bytes, one.shared_free)
            by_verdict.setdefault(check.verdict, {})[host] = one.shared_free, check
    for known in by_verdict.values():
        _, check = min(known.values(), key=lambda one: one[0])
        seen = check.seen if len(known) == 1 else f"{check.seen}, or more"
        name = f"{check.name} on {listing(in_runs(known))}"
        yield replace(check, topic="hosts", name=name, seen=seen)


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
    if len(ahead_s) > _NAMED:
        usual_s = statistics.median_low(ahead_s.values())
        values: dict[str, list[str]] = {}
        for host, one in ahead_s.items():
            as_usual = abs(one - usual_s) < _CLOCK_S
            values.setdefault(f"{usual_s if as_usual else one:+.1f} s", []).append(host)
        shown = held_by(values)
    else:
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
    if len(facts) > _NAMED:
        values: dict[str, list[str]] = {}
        for host, one in facts.items():
            values.setdefault(f"{one.interface}, MTU {one.mtu},", []).append(host)
        addresses = [one.address for one in facts.values()]
        every = f"{next(iter(values))} at {addresses[0]} to {addresses[-1]}"
        shown = every if len(values) == 1 else held_by(values)
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
    shown = ", ".join(in_runs(names))
    return shown if len(names) <= _NAMED else f"{count(len(names), 'host')} ({shown})"
