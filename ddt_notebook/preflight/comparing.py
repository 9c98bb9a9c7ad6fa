"""What differs: between the ranks of a session, and between machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..model.preflight import Check, Preflight
from .lines import line
from .variables import described

#: Facts that differ from rank to rank by right.
_OWN = frozenset({"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "CUDA_VISIBLE_DEVICES"})
#: Facts that differ from machine to machine by right.
_OF_MACHINE = frozenset({"network.interfaces", "resources.memory", "ranks"})
#: Facts that must agree, and what happens when they do not.
_MUST_AGREE = {
    "versions.torch": "ranks with different torch may not understand each other",
    "versions.nccl": "NCCL refuses to connect different versions, or hangs",
    "versions.cuda": "kernels and libraries differ",
    "versions.python": "pickled objects may not load on the other side",
}
_SHOWN = 60


def rank_checks(environments: Mapping[int, Mapping[str, str]]) -> Iterator[Check]:
    """Compare what the ranks of a session say of themselves."""
    differing = list(_differences({f"rank {r}": e for r, e in environments.items()}, _OWN))
    for name, values in differing:
        serious = name in ("torch", "python", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        yield line(
            "ranks",
            name,
            "error" if serious else "warning",
            values,
            "the ranks differ in it",
            "set it before the ranks are started, or alike on all of them",
        )
    if environments and not differing:
        count = len(environments)
        seen = f"{count} ranks agree in {len(next(iter(environments.values())))} facts"
        yield line("ranks", "environment", "ok", seen)


def compare_machines(reports: Iterable[Preflight]) -> Preflight:
    """One report of what differs between several machines, errors of each included."""
    known = list(reports)
    facts = {_label(report, known): report.facts for report in known}
    checks = [
        line(
            "machines",
            name,
            "error" if name in _MUST_AGREE else "warning",
            values,
            _MUST_AGREE.get(name, "the machines differ in it"),
            "make it the same on all machines",
        )
        for name, values in _differences(facts, _OF_MACHINE)
    ]
    if not checks:
        seen = f"{len(known)} machines agree in {len(known[0].facts) if known else 0} facts"
        checks = [line("machines", "facts", "ok", seen)]
    for report in known:
        checks += [
            replace(check, name=f"{check.name} on {_label(report, known)}")
            for check in report.checks
            if check.verdict == "error"
        ]
    created = max((report.created for report in known), default="")
    machine = ", ".join(facts)
    return Preflight(machine=machine, created=created, checks=tuple(checks))


def environment_facts(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how a job runs, as facts."""
    return {
        f"environment.{name}": value
        for name, value in sorted(environment.items())
        if name in described() and name not in _OWN
    }


def _label(report: Preflight, known: list[Preflight]) -> str:
    """The machine's name, with a number if several have the same."""
    same = [other for other in known if other.machine == report.machine]
    if len(same) == 1:
        return report.machine
    return f"{report.machine} ({1 + next(i for i, o in enumerate(same) if o is report)})"


def _differences(
    facts: Mapping[str, Mapping[str, str]], by_right: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Names of facts that are not the same everywhere, and who has which value."""
    names = dict.fromkeys(name for known in facts.values() for name in known)
    for name in names:
        values: dict[str, list[str]] = {}
        for holder, known in facts.items():
            values.setdefault(known.get(name, "not set"), []).append(holder)
        if len(values) > 1 and name not in by_right:
            told = [f"{_short(value)} on {', '.join(who)}" for value, who in values.items()]
            yield name, "; ".join(told)


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN else f"{value[: _SHOWN // 2]} … {value[-_SHOWN // 2 :]}"
