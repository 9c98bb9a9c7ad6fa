"""The pre-flight report of this machine and of the active session, and of several machines."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ..formatting import count
from ..host.agent_hub import HostAgent
from ..host.errors import SessionError
from ..host.host_comparison import ask_facts, try_connections
from ..host.session import active
from ..host.several_hosts import SeveralHosts
from ..model.codec import FormatError
from ..model.hosts import Pair, Trial
from ..model.preflight import Check, Preflight
from ..views.preflight import PreflightView
from .differences import DIFFERENT_VERSIONS, OF_RANK, differences
from .frameworks import framework_checks
from .hosts import host_checks, links, machine
from .links import slow_pairs
from .network import network_checks, up_interfaces
from .resources import resource_checks
from .shadows import shadow_checks
from .timeouts import timeout_checks
from .variables import described, variable_checks
from .versions import backend_checks, read_versions, version_checks

#: The number of ranks for which a machine is checked without a session.
RANKS = 4
#: How often a connection is measured again that may be slow, and how many times slower that is.
_AGAIN, _MAY_BE_SLOW = 3, 2.0
#: Facts that may differ between machines.
_OF_MACHINE = frozenset({"network.interfaces", "resources.memory", "ranks"})
#: Facts in which a difference between ranks is an error.
_SAME_ON_RANKS = frozenset({"torch", "python", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
#: Facts in which a difference between machines is an error, and its consequence.
_SAME_ON_MACHINES = {f"versions.{name}": why for name, why in DIFFERENT_VERSIONS.items()}


def doctor(
    ranks: int | None = None,
    *,
    form_groups: bool = True,
    bandwidth: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> PreflightView:
    """Check what a job needs before it runs.

    It checks versions that must fit each other, whether backends form a group, environment
    variables, timeouts, host name, interfaces and ports, limits, memory and threads, and modules
    that hide a package. With an active session, it also checks whether its ranks agree. If they run
    on several hosts, it compares these hosts instead, and each one tries to reach each other one.

    Parameters
    ----------
    ranks
        How many ranks the machine must hold; default: as many as the session has, else 4.
    form_groups
        Whether to form a group of two processes with each backend; this takes a few seconds.
    bandwidth
        Whether to measure the bandwidth between several hosts; this sends 16 MiB each way.
    progress
        Called with a line of text about the current check.

    Raises
    ------
    ValueError
        If ``ranks`` is below 1, or if there are no two hosts whose bandwidth can be measured.
    """
    session = active.get()
    place = session.pool.place if session is not None else None
    hosts = place if isinstance(place, SeveralHosts) else None
    if bandwidth and (hosts is None or len(hosts.agents) < 2):
        raise ValueError(
            "bandwidth is measured between the hosts of a session on two or more hosts; start one: "
            "%ddt_start --hosts nodeA:4,nodeB:4, or --join"
        )
    environments = {}
    if session is not None and session.alive and not session.busy and not session.frozen:
        with suppress(SessionError):  # its ranks could not meet again: the hosts may say why
            seen = session.observe("environment", variables=sorted(described()))
            environments = {rank: one.environment or {} for rank, one in seen.items()}
    if hosts is not None:
        return PreflightView(
            examine_hosts(hosts, environments, bandwidth=bandwidth, progress=progress)
        )
    if ranks is None:
        ranks = session.world_size if session is not None else RANKS
    limits = (session.timeout, session.hang_after) if session is not None else None
    return PreflightView(
        examine(
            ranks,
            form_groups=form_groups,
            environments=environments,
            session=limits,
            progress=progress,
        )
    )


def examine(
    ranks: int = RANKS,
    *,
    form_groups: bool = True,
    environments: Mapping[int, Mapping[str, str]] | None = None,
    session: tuple[float | None, float] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Preflight:
    """Run all checks, in the order in which a job would fail them.

    Parameters
    ----------
    ranks, form_groups, progress
        As for `doctor`.
    environments
        The facts of each rank of a session.
    session
        The ``timeout`` and ``hang_after`` of the session, in seconds.

    Raises
    ------
    ValueError
        If ``ranks`` is below 1.
    """
    if ranks < 1:
        raise ValueError(f"the number of ranks is 1 or more, not {ranks}")
    progress("importing torch in a fresh process …")
    facts, ended = read_versions()
    checks: list[Check] = list(version_checks(facts, ended))
    checks += framework_checks(os.environ)
    if form_groups and facts:
        progress("forming a group of two processes …")
        checks += backend_checks(facts)
    progress("checking the environment, the network and the limits …")
    checks += variable_checks(os.environ)
    checks += timeout_checks(facts, os.environ, session)
    checks += network_checks(os.environ)
    checks += resource_checks(ranks, int(facts.get("threads", 1)), os.environ)
    checks += shadow_checks([Path.cwd()])
    checks += rank_checks(environments or {})
    return Preflight(
        machine=platform.node(),
        created=_now(),
        checks=tuple(checks),
        facts={f"versions.{name}": value for name, value in facts.items()}
        | {
            f"environment.{name}": value
            for name, value in sorted(os.environ.items())
            if name in described() and name not in OF_RANK
        }
        | {"network.interfaces": ", ".join(up_interfaces())},
    )


def examine_hosts(
    hosts: SeveralHosts,
    environments: Mapping[int, Mapping[str, str]] | None = None,
    *,
    bandwidth: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Preflight:
    """Compare the hosts of a session.

    Parameters
    ----------
    hosts
        The hosts. They are asked even while a cell runs.
    environments
        The facts of each rank.
    bandwidth, progress
        As for `doctor`.
    """
    progress("asking the hosts …")
    facts, ahead_s, failed = ask_facts(hosts.hub, hosts.agents, sorted(described()))
    progress("each host connects to each other one …")
    reached = [agent for agent in hosts.agents if agent.name in facts]
    trials, lost = try_connections(hosts.hub, reached, bandwidth=bandwidth)
    for _ in range(_AGAIN):
        trials |= _again(hosts, reached, trials, bandwidth)
    checks = list(host_checks(facts, ahead_s, failed | lost, trials))
    named = {check.name for check in checks if check.verdict != "ok"}
    checks += (check for check in rank_checks(environments or {}) if check.name not in named)
    return Preflight(
        machine=machine(facts, failed),
        created=_now(),
        checks=tuple(checks),
        links=links(trials),
    )


def _again(
    hosts: SeveralHosts, agents: Sequence[HostAgent], trials: Mapping[Pair, Trial], bandwidth: bool
) -> dict[Pair, Trial]:
    """Measure what may be slow once more: something else may have used it, or a host, meanwhile.

    The other direction is measured again, too, since a slow connection is told by a faster one.

    Returns
    -------
    dict
        Those of them that passed again, with the best that was measured.
    """
    slow = slow_pairs(trials, _MAY_BE_SLOW)
    if not slow:
        return {}
    both_ways = {*slow, *((other, one) for one, other in slow)}
    passed = {pair for pair in both_ways if pair in trials and trials[pair].end == "passed"}
    again, _ = try_connections(hosts.hub, agents, bandwidth=bandwidth, only=passed)
    return {
        pair: _better(trial, trials[pair]) for pair, trial in again.items() if trial.end == "passed"
    }


def _better(one: Trial, other: Trial) -> Trial:
    times = [time_s for t in (one, other) if (time_s := t.round_trip_s) is not None]
    faster = max(one, other, key=lambda trial: trial.bytes_per_s or 0.0)
    return replace(faster, round_trip_s=min(times, default=None))


def compare_reports(paths: Sequence[str | Path]) -> PreflightView:
    """Read the reports of several machines (``ddt-notebook doctor --json``) and compare them.

    Raises
    ------
    FormatError
        If a file is not such a report.
    OSError
        If a file cannot be read.
    """
    reports = []
    for path in paths:
        try:
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise FormatError(f"{path} is not a pre-flight report: {error}") from error
        try:
            reports.append(Preflight.from_json(plain))
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error
    return PreflightView(compare_machines(reports))


def compare_machines(reports: Iterable[Preflight]) -> Preflight:
    """One report with the differences between several machines, and the errors of each."""
    known = list(reports)
    facts = {_label(report, known): report.facts for report in known}
    checks = [
        Check(
            "machines",
            name,
            "error" if name in _SAME_ON_MACHINES else "warning",
            values,
            _SAME_ON_MACHINES.get(name, "it differs between the machines"),
            "make it the same on all machines",
        )
        for name, values in differences(facts, _OF_MACHINE)
    ]
    if not checks:
        number = len(known[0].facts) if known else 0
        seen = f"{count(len(known), 'machine')} agree in {count(number, 'fact')}"
        checks = [Check("machines", "facts", "ok", seen)]
    for report in known:
        checks += [
            replace(check, name=f"{check.name} on {_label(report, known)}")
            for check in report.checks
            if check.verdict == "error"
        ]
    created = max((report.created for report in known), default="")
    return Preflight(machine=", ".join(facts), created=created, checks=tuple(checks))


def rank_checks(environments: Mapping[int, Mapping[str, str]]) -> Iterator[Check]:
    """Compare the facts of the ranks of a session."""
    differing = list(differences({f"rank {r}": e for r, e in environments.items()}, OF_RANK))
    for name, values in differing:
        yield Check(
            "ranks",
            name,
            "error" if name in _SAME_ON_RANKS else "warning",
            values,
            "it differs between the ranks",
            "set it before the ranks start, or to the same value on all of them",
        )
    if environments and not differing:
        number = len(next(iter(environments.values())))
        seen = f"{count(len(environments), 'rank')} agree in {count(number, 'fact')}"
        yield Check("ranks", "environment", "ok", seen)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _label(report: Preflight, known: list[Preflight]) -> str:
    """The name of the machine, with a number if several machines have the same name."""
    same = [other for other in known if other.machine == report.machine]
    if len(same) == 1:
        return report.machine
    return f"{report.machine} ({1 + next(i for i, o in enumerate(same) if o is report)})"
