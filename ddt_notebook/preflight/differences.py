"""Compares what ranks, machines or hosts have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

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
            shown = (f"{_short(value)} on {', '.join(who)}" for value, who in values.items())
            yield name, "; ".join(shown)


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN else f"{value[: _SHOWN // 2]} … {value[-_SHOWN // 2 :]}"
