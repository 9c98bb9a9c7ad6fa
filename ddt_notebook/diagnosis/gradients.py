"""Derives from projections, which add up, how the ranks' gradients became those of the step."""

from __future__ import annotations

import math
from collections.abc import Callable

from ddt_notebook.diagnosis.replicas import Replicas
from ddt_notebook.model.training import TrainingState

#: Relative error up to which projections count as equal: sums of 1,024 products in float32, and
#: gradients that were sent as bfloat16 (2**-8) do not count.
_TOLERANCE = 1e-3


def factor(
    group: Replicas, before: Callable[[TrainingState], tuple[float, ...]], *, of_sum: bool = True
) -> float | None:
    """Return the factor between the sum over the ranks and the gradients that were used.

    If the last change of the gradients was that they were clipped, those before it count.

    It is 1 for a sum and 1 / number of ranks for a mean; None if no such factor fits all watched
    gradients in all sampled steps, or if the ranks' gradients were equal.

    Parameters
    ----------
    before
        Returns the projections to start from: ``local`` or ``clipped``.
    of_sum
        False to compare with the rank's own gradients instead of the sum over the ranks.
    """
    sampled = [
        at
        for step, at in group.states.items()
        if step in group.stepped and all(state.used and before(state) for state in at.values())
    ]
    factors = (1.0, 1.0 / len(group.ranks)) if of_sum else (1.0,)
    if not sampled:
        return None
    for one in factors:
        if all(_fits(at, before, one, of_sum) for at in sampled):
            return one
    return None


def _combined(state: TrainingState) -> tuple[float, ...]:
    """Return the gradients as the ranks combined them, before they were clipped last."""
    return state.unclipped if state.unclipped and state.used == state.clipped else state.used


def _fits(
    at: dict[int, TrainingState],
    before: Callable[[TrainingState], tuple[float, ...]],
    number: float,
    of_sum: bool,
) -> bool:
    """Whether the factor fits all gradients of a step, and at least one differs between ranks."""
    differs = False
    for own, used in zip(
        zip(*map(before, at.values()), strict=False),
        zip(*(map(_combined, at.values())), strict=False),
        strict=False,
    ):
        size = sum(map(abs, own))
        near = _TOLERANCE * size
        expected = [number * sum(own)] * len(own) if of_sum else [number * one for one in own]
        if any(abs(a - b) > near for a, b in zip(expected, used, strict=True)):
            return False
        differs = differs or max(own) - min(own) > near
    return differs or not of_sum


def shared_and_own(group: Replicas) -> tuple[set[int], set[int]]:
    """Return the positions of the gradients that ranks exchanged, and of those they did not.

    A gradient was exchanged if the ranks computed different ones and then had the same. It was not
    if each rank kept the one that it had computed, before a limit on the norm scaled all of them.
    Both are empty unless that holds in all sampled steps.
    """
    sampled = [
        at
        for step, at in group.states.items()
        if step in group.stepped and all(state.used and state.local for state in at.values())
    ]
    known: tuple[set[int], set[int]] | None = None
    for at in sampled:
        shared: set[int] = set()
        own: set[int] = set()
        pairs = zip(
            zip(*(state.local for state in at.values()), strict=False),
            zip(*map(_combined, at.values()), strict=False),
            strict=False,
        )
        for place, (computed, used) in enumerate(pairs):
            if len({*computed}) == 1:
                continue
            if len({*used}) == 1:
                shared.add(place)
            elif all(
                math.isclose(one, other, rel_tol=_TOLERANCE)
                for one, other in zip(computed, used, strict=True)
            ):
                own.add(place)
        known = (shared, own) if known is None else (known[0] & shared, known[1] & own)
    return known if known is not None and len(sampled) > 1 else (set(), set())


def overwritten(group: Replicas) -> list[int]:
    """Return the sampled steps in which a backward pass followed the exchange of gradients.

    The ranks then had the same gradients, and added those of their own passes to them.
    """
    return [
        step
        for step, at in group.states.items()
        if step in group.stepped
        and all(state.exchanged for state in at.values())
        and any(
            len({*before}) == 1 and before[0] and len({*after}) > 1
            for before, after in zip(
                zip(*(state.exchanged for state in at.values()), strict=False),
                zip(*(state.used for state in at.values()), strict=False),
                strict=False,
            )
        )
    ]
