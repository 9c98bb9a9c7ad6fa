"""Asks the ranks at their prompt what they hold, and adds it to a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, get_type_hints

from ..model import Snapshot, codec
from ..probes.registry import PROBES
from .comparing import add_differences
from .errors import SessionError
from .pool import RankPool

_LIMIT_S = 30.0


def observe(
    pool: RankPool, what: Sequence[str], names: Iterable[str] | None = None, **options: Any
) -> dict[int, dict[str, Any]]:
    """Let every rank run probes; returns for each rank that answered what each of them saw.

    Parameters
    ----------
    pool
        The ranks, at their prompt.
    what
        Names of probes.
    names
        Variables to look at; default: all.
    options
        For the probe.

    Raises
    ------
    SessionError
        If there is no such probe, or a name is unknown on every rank.
    """
    for name in what:
        if name not in PROBES:
            raise SessionError(f"nothing observes {name!r}; there is: {', '.join(PROBES)}")
    message = {
        "do": "observe",
        "what": list(what),
        "names": list(names) if names else None,
        "options": options,
    }
    answers = pool.command(message, limit_s=_LIMIT_S)
    seen = {rank: a["observed"] for rank, a in sorted(answers.items()) if a.get("observed")}
    failed = [(rank, text) for rank, a in sorted(answers.items()) for text in _failures(a)]
    if failed and not seen:
        rank, text = failed[0]
        raise SessionError(f"rank {rank}: {text}")
    if names is None:  # a name may well be known on some ranks only
        pool.notes += [f"rank {rank}: {text}" for rank, text in failed]
    if "parity" in what:
        _compare_values(pool, message, {r: o["parity"] for r, o in seen.items() if "parity" in o})
    return seen


def _compare_values(
    pool: RankPool, message: dict[str, Any], parity: dict[int, dict[str, Any]]
) -> None:
    def ask(ranks: Iterable[int], options: dict[str, Any]) -> dict[int, dict[str, Any]]:
        asked = message | {"what": ["parity"], "options": options}
        answers = pool.command(asked, ranks=ranks, limit_s=_LIMIT_S)
        return {
            rank: answer["observed"]["parity"]
            for rank, answer in answers.items()
            if "parity" in answer.get("observed", {})
        }

    add_differences(parity, pool.directory, ask)


def observe_traced(pool: RankPool) -> dict[int, dict[str, Any]]:
    """Run every probe, and add what the ranks recorded while the cell ran."""
    seen = observe(pool, list(PROBES))
    return {
        handle.rank: seen.get(handle.rank, {}) | handle.recorded
        for handle in pool.handles
        if handle.recorded or handle.rank in seen
    }


def _failures(answer: dict[str, Any]) -> list[str]:
    if "error" in answer:
        return [answer["error"]]
    return list(answer.get("failed", {}).values())


def add(snapshot: Snapshot, seen: dict[int, dict[str, Any]]) -> Snapshot:
    """The snapshot with what `observe` saw: each probe fills the field of its name."""
    hints = get_type_hints(Snapshot)
    fields: dict[str, Any] = {}
    for name in {name for observed in seen.values() for name in observed}:
        plain = [{"rank": rank, **seen[rank][name]} for rank in sorted(seen) if name in seen[rank]]
        fields[name] = codec.from_plain(hints[name], plain)
    return replace(snapshot, **fields)
