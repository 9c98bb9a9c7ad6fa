"""Runs probes on ranks at their prompt, and adds the results to the snapshot of a run.

If fingerprints of tensors differ, the ranks compare the values themselves. They do so through a
file, because a collective would need all ranks to take part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..model.observation import Observation, add_observations
from ..model.parity import Disagreement, RankParity, disagreements
from ..wire.messages import Envelope, Failed, Observe, Observed
from ..wire.probe_names import ASKED, PROBES
from .errors import SessionError
from .pool import RankPool
from .run_result import RunResult

_LIMIT_S = 30.0
#: How many tensors are compared by value; the first of each role and object come first.
_MAX_TENSORS = 24
#: How many elements a rank writes for comparison by others: on request, and at the end of a cell.
_MAX_ELEMENTS, _MAX_ELEMENTS_UNASKED = 20_000_000, 1_000_000
_TENSORS = ("parameter", "buffer", "gradient", "state")


def observe(
    pool: RankPool, probes: Sequence[str], names: Iterable[str] | None = None, **options: Any
) -> dict[int, Observation]:
    """Let every rank run probes; returns the observations of the ranks that answered.

    Parameters
    ----------
    pool
        The ranks, at their prompt.
    probes
        Names of probes.
    names
        Variables to observe; default: all.
    options
        Further arguments of the probes.

    Raises
    ------
    SessionError
        If there is no such probe, or a name is unknown on every rank.
    """
    for probe in probes:
        if probe not in PROBES | ASKED:
            raise SessionError(f"nothing observes {probe!r}; there is: {', '.join(PROBES)}")
    wanted = tuple(names) if names else None
    answers = _ask(pool, Observe(probes=tuple(probes), names=wanted, options=options))
    seen = {
        rank: answer.observed
        for rank, answer in answers.items()
        if isinstance(answer, Observed) and answer.observed is not None
    }
    failed = [(rank, text) for rank, answer in answers.items() for text in _failures(answer)]
    if failed and not seen:
        rank, text = failed[0]
        raise SessionError(f"rank {rank}: {text}")
    if wanted is None:  # a requested name may be known on some ranks only
        pool.notes += [f"rank {rank}: {text}" for rank, text in failed]
    return compared(pool, seen, wanted) if "parity" in probes else seen


def _ask(
    pool: RankPool, message: Observe, ranks: Iterable[int] | None = None
) -> dict[int, Observed | Failed]:
    answers = pool.command(message, ranks=ranks, limit_s=_LIMIT_S)
    return {rank: _answer(answers[rank]) for rank in sorted(answers)}


def _answer(envelope: Envelope) -> Observed | Failed:
    answer = envelope.message
    assert isinstance(answer, Observed | Failed)
    return answer


def _failures(answer: Observed | Failed) -> list[str]:
    return [answer.error] if isinstance(answer, Failed) else list(answer.failed.values())


def complete(
    pool: RankPool, result: RunResult, seen: Mapping[int, Observation], *, trace: bool
) -> RunResult:
    """Add the ranks' observations at the end of a run to its result.

    Parameters
    ----------
    pool
        The ranks, at their prompt if the run went well.
    result
        The result of the run.
    seen
        What each rank observed without a request.
    trace
        Whether the cell ran with every probe.
    """
    if trace:
        asked = _observe_traced(pool)
        seen = {
            rank: seen[rank].updated(one) if rank in seen else one for rank, one in asked.items()
        }
    elif result.ok:
        seen = compared(pool, seen, None, _MAX_ELEMENTS_UNASKED)
    if not seen:
        return result
    return replace(result, snapshot=add_observations(result.snapshot, seen, pool.clocks))


def _observe_traced(pool: RankPool) -> dict[int, Observation]:
    """Run every probe, and add what the ranks recorded while the cell ran."""
    seen = observe(pool, list(PROBES))
    for handle in pool.handles:
        if handle.recorded is not None:
            before = seen.get(handle.rank, handle.recorded)
            seen[handle.rank] = before.updated(handle.recorded)
    return seen


# -- values of tensors -----------------------------------------------------------------------------


def compared(
    pool: RankPool,
    seen: Mapping[int, Observation],
    names: tuple[str, ...] | None,
    limit: int = _MAX_ELEMENTS,
) -> dict[int, Observation]:
    """Add to each rank's parity how its tensors differ from those of most other ranks.

    Parameters
    ----------
    pool
        The ranks, at their prompt.
    seen
        What each rank observed.
    names
        Variables that were observed; None for all.
    limit
        How many elements a rank may write, at most.
    """
    parities = {rank: one.parity for rank, one in seen.items() if one.parity is not None}
    by_reference: dict[int, list[Disagreement]] = {}
    for found in _choose(disagreements(list(parities.values())), limit):
        by_reference.setdefault(found.reference, []).append(found)
    for reference, chosen in by_reference.items():
        files = {
            found.name: str(pool.directory / f"parity{number}")
            for number, found in enumerate(chosen)
        }
        try:
            if not _parity_answers(pool, [reference], names, share=files):
                continue
            holding = [found for found in chosen if Path(files[found.name]).exists()]
            for rank in sorted({rank for found in holding for rank in _others(found)}):
                mine = {f.name: files[f.name] for f in holding if rank in _others(f)}
                options = {"against": mine, "reference": reference}
                for answer in _parity_answers(pool, [rank], names, **options):
                    known = parities[rank]
                    differences = known.differences + answer.differences
                    parities[rank] = replace(known, differences=differences)
        finally:
            for file in files.values():
                Path(file).unlink(missing_ok=True)
    return {
        rank: replace(one, parity=parities[rank]) if rank in parities else one
        for rank, one in seen.items()
    }


def _parity_answers(
    pool: RankPool, ranks: list[int], names: tuple[str, ...] | None, **options: Any
) -> list[RankParity]:
    """Run the parity probe with options on some ranks; returns the answers by rank."""
    answers = _ask(pool, Observe(probes=("parity",), names=names, options=options), ranks)
    return [
        answer.observed.parity
        for answer in answers.values()
        if isinstance(answer, Observed) and answer.observed and answer.observed.parity
    ]


def _choose(found: Iterable[Disagreement], limit: int) -> list[Disagreement]:
    """Choose tensors of one shape and type: the first one of each role, then the others."""
    comparable = [f for f in found if f.role in _TENSORS and _same_kind(f)]
    heads: dict[tuple[str, str], Disagreement] = {}
    for one in comparable:
        heads.setdefault((one.role, one.name.partition(".")[0]), one)
    rest = [one for one in comparable if one not in heads.values()]
    chosen: list[Disagreement] = []
    elements = 0
    for one in [*heads.values(), *rest]:
        size = _elements(one)
        if len(chosen) < _MAX_TENSORS and elements + size <= limit:
            chosen.append(one)
            elements += size
    return chosen


def _same_kind(found: Disagreement) -> bool:
    kinds = {k for k, value in zip(found.kinds, found.groups, strict=True) if value}
    kind = next(iter(kinds))
    return len(kinds) == 1 and bool(kind) and not kind.endswith("scalar")


def _elements(found: Disagreement) -> int:
    shape = next(filter(None, found.kinds)).rpartition(" ")[2]
    return math.prod(int(size) for size in shape.split("×"))


def _others(found: Disagreement) -> set[int]:
    return {rank for value, ranks in found.groups.items() if value for rank in ranks} - set(
        found.agreeing
    )
