"""Asks the ranks at their prompt what they hold, and adds it to a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, get_type_hints

from ..model import Snapshot, codec
from ..wire.probe_names import ASKED, PROBES
from .errors import SessionError
from .parity_values import MAX_ELEMENTS, add_differences
from .pool import RankPool
from .result import RunResult

_LIMIT_S = 30.0
#: What a rank writes for others to compare with when nobody has asked for it.
_UNASKED_ELEMENTS = 1_000_000


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
        if name not in PROBES | ASKED:
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
    pool: RankPool,
    message: dict[str, Any],
    parity: dict[int, dict[str, Any]],
    limit: int = MAX_ELEMENTS,
) -> None:
    def ask(ranks: Iterable[int], options: dict[str, Any]) -> dict[int, dict[str, Any]]:
        asked = message | {"what": ["parity"], "options": options}
        answers = pool.command(asked, ranks=ranks, limit_s=_LIMIT_S)
        return {
            rank: answer["observed"]["parity"]
            for rank, answer in answers.items()
            if "parity" in answer.get("observed", {})
        }

    add_differences(parity, pool.directory, ask, limit)


def complete(
    pool: RankPool, result: RunResult, seen: dict[int, dict[str, Any]], *, trace: bool
) -> RunResult:
    """Add to a run what the ranks observed at its end.

    Parameters
    ----------
    pool
        The ranks, at their prompt if the run went well.
    result
        How it went.
    seen
        What each rank observed unasked.
    trace
        Whether it ran with every probe.
    """
    if trace:
        seen = observe_traced(pool)
    elif result.ok:
        message = {"do": "observe", "names": None}
        parity = {rank: one["parity"] for rank, one in seen.items() if "parity" in one}
        _compare_values(pool, message, parity, _UNASKED_ELEMENTS)
    return replace(result, snapshot=add(result.snapshot, seen)) if seen else result


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
