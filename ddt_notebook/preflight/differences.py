"""Compares what ranks, machines or hosts have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..formatting import in_runs

#: What follows from different versions on two machines.
DIFFERENT_VERSIONS = {
    "torch": "ranks with different versions of torch may not understand each other",
    "nccl": "NCCL refuses to connect different versions, or hangs",
    "cuda": "the kernels and libraries differ",
    "python": "the other side may not be able to load pickled objects",
    "ddt_notebook": "the notebook and an agent may misunderstand each other",
}
#: What may differ between the ranks of one machine.
OF_RANK = frozenset({"RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "CUDA_VISIBLE_DEVICES"})
#: So many have their names in any case, those with the most common value, too.
_NAMED = 3
#: The longest value that is shown whole, in characters.
_SHOWN = 60


def differences(
    facts: Mapping[str, Mapping[str, str]], may_differ: Collection[str]
) -> Iterator[tuple[str, str]]:
    """The names of the facts that differ, and which rank, machine or host has which value."""
    names = dict.fromkeys(name for known in facts.values() for name in known)
    for name in names:
        values: dict[str, list[str]] = {}
        for holder, known in facts.items():
            values.setdefault(known.get(name, "not set"), []).append(holder)
        if len(values) > 1 and name not in may_differ:
            yield name, held_by({_short(value): who for value, who in values.items()})


def held_by(values: Mapping[str, Sequence[str]]) -> str:
    """Which value is on which rank, machine or host; the most common one last if many have it."""
    least_first = sorted(values.items(), key=lambda known: len(known[1]))
    rest = len(least_first[-1][1])
    if rest <= _NAMED or rest == len(least_first[-2][1]):
        return "; ".join(f"{value} on {', '.join(in_runs(who))}" for value, who in values.items())
    shown = [f"{value} on {', '.join(in_runs(who))}" for value, who in least_first[:-1]]
    return "; ".join([*shown, f"{least_first[-1][0]} on the other {rest}"])


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN else f"{value[: _SHOWN // 2]} … {value[-_SHOWN // 2 :]}"
