"""Compares one optimizer on several ranks: in which steps they agree and in which not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ddt_notebook.model import Fact, Snapshot
from ddt_notebook.model.parity import Disagreement, disagreements, grouped, minority
from ddt_notebook.model.training import (
    NO_GRADIENT,
    ModelTraining,
    OptimizerTraining,
    TrainingState,
    UsedModule,
)

#: Wrappers that divide a model among ranks, so that each rank holds a different part.
_DIVIDED = frozenset({"FSDP", "FSDP2", "DTensor", "DeepSpeed"})


@dataclass(frozen=True)
class Replicas:
    """An optimizer and its parameters on ranks that should hold the same values.

    Attributes
    ----------
    ranks
        The record of the optimizer on each rank.
    """

    ranks: dict[int, OptimizerTraining]

    @property
    def first(self) -> OptimizerTraining:
        """The record of the lowest rank."""
        return next(iter(self.ranks.values()))

    @property
    def gone(self) -> bool:
        """Whether its parameters were not compared at the end of the run."""
        return any(optimizer.gone for optimizer in self.ranks.values())

    @cached_property
    def states(self) -> dict[int, dict[int, TrainingState]]:
        """By step, then rank: the states of steps with fingerprints from every rank."""
        found: dict[int, dict[int, TrainingState]] = defaultdict(dict)
        for rank, optimizer in self.ranks.items():
            for state in optimizer.states:
                if state.values:
                    found[state.step][rank] = state
        return {step: at for step, at in sorted(found.items()) if len(at) == len(self.ranks)}

    def apart(self, step: int) -> list[int]:
        """Return the positions of watched parameters that differ between ranks before a step."""
        return _unequal(state.values for state in self.states[step].values())

    @cached_property
    def first_apart(self) -> int | None:
        """The first sampled step before which ranks differed, None if they agree at the end."""
        return self._apart_until_last(list(self.states))

    @cached_property
    def apart_in_training(self) -> int | None:
        """The same for the last sampled step instead of the end: what followed may equalise."""
        return self._apart_until_last(list(self.states)[:-1])

    def _apart_until_last(self, steps: list[int]) -> int | None:
        if not steps or not self.apart(steps[-1]):
            return None
        last_equal = max((step for step in steps if not self.apart(step)), default=-1)
        return min(step for step in steps if step > last_equal)

    @cached_property
    def out_of_line(self) -> tuple[int, dict[int, int]] | None:
        """The first sampled step that came after unequal numbers of backward passes, and these."""
        for step, at in self.states.items():
            passes = {rank: state.backwards for rank, state in at.items()}
            known = {rank: number for rank, number in passes.items() if number is not None}
            if len(known) == len(passes) and len({*known.values()}) > 1:
                return step, known
        return None

    def before(self, step: int) -> int | None:
        """Return the sampled step before a step."""
        return max((known for known in self.states if known < step), default=None)

    def gradients_apart(self, step: int) -> list[int]:
        """Return the positions of watched gradients that differ between ranks at a step."""
        return _unequal(state.gradients for state in self.states[step].values())

    @cached_property
    def stepped(self) -> list[int]:
        """Sampled steps in which gradients were seen."""
        return [
            step
            for step, at in self.states.items()
            if all(
                state.gradients and set(state.gradients) != {NO_GRADIENT} for state in at.values()
            )
        ]

    def deviating(self, value: Callable[[int], Any]) -> list[int]:
        """Return the ranks outside the largest group of equal values; all if none is largest."""
        return minority(grouped({rank: value(rank) for rank in self.ranks}).values())


def _unequal(rows: Iterator[tuple[int, ...]] | Any) -> list[int]:
    # ranks of a file that was changed may have watched different numbers of parameters
    return [at for at, column in enumerate(zip(*rows, strict=False)) if len(set(column)) > 1]


def replicas(snapshot: Snapshot) -> list[Replicas]:
    """Return the optimizers that several ranks stepped on parameters of the same names.

    In DDP they also took equally many steps: inside ``join()`` ranks end at different steps.
    """
    together: dict[tuple[Any, ...], dict[int, OptimizerTraining]] = defaultdict(dict)
    for training in snapshot.training:
        seen: dict[tuple[Any, ...], int] = defaultdict(int)
        for optimizer in training.optimizers:
            key: tuple[Any, ...] = (
                optimizer.kind,
                optimizer.wrapper,
                optimizer.members,
                optimizer.watched,
                tuple(sorted(optimizer.shapes.items())),
            )
            seen[key] += 1
            together[*key, seen[key]][training.rank] = optimizer
    return [
        Replicas(ranks)
        for ranks in together.values()
        if len(ranks) > 1
        and next(iter(ranks.values())).wrapper not in _DIVIDED
        and (len({o.steps for o in ranks.values()}) == 1 or not next(iter(ranks.values())).wrapper)
    ]


def models(snapshot: Snapshot) -> list[dict[int, ModelTraining]]:
    """Return the DDP models that ran a forward pass, each with the records of all its ranks."""
    together: dict[tuple[Any, ...], dict[int, ModelTraining]] = defaultdict(dict)
    for training in snapshot.training:
        seen: dict[tuple[Any, ...], int] = defaultdict(int)
        for model in training.models:
            key = (model.members, model.shapes_digest)
            seen[key] += 1
            together[*key, seen[key]][training.rank] = model
    return [ranks for ranks in together.values() if len(ranks) > 1]


def model_of(snapshot: Snapshot, rank: int, optimizer: OptimizerTraining) -> ModelTraining | None:
    """Return the DDP model that holds the optimizer's parameters.

    Several may have the same name, such as that of a function's parameter.
    """
    training = next(one for one in snapshot.training if one.rank == rank)
    watched = {name.removeprefix(f"{optimizer.model}.") for name in optimizer.watched}
    return next(
        (
            model
            for model in training.models
            if model.name == optimizer.model
            and (not model.parameters or not watched or not watched.isdisjoint(model.parameters))
        ),
        None,
    )


def differing(snapshot: Snapshot, model: str, role: str) -> list[Disagreement]:
    """Return what differs between the ranks' copies of a model at the end."""
    return [
        found
        for found in disagreements(snapshot.parity)
        if found.role == role and found.name.startswith(f"{model}.")
    ]


def how_far(snapshot: Snapshot, name: str) -> list[Fact]:
    """Return how far the ranks' values of a parameter differ at the end, if compared."""
    for parity in snapshot.parity:
        for one in parity.differences:
            if one.name == name and one.count and one.largest is not None:
                values = {"name": name, "differ": one.count, "elements": one.elements}
                return [
                    Fact(
                        kind="elements-differ",
                        ranks=(one.reference, parity.rank),
                        values=values | {"largest": one.largest},
                    )
                ]
    return []


def used_on_every_rank(snapshot: Snapshot, *, trained: bool) -> Iterator[dict[int, UsedModule]]:
    """The modules outside DDP that every rank called between its first two steps.

    Parameters
    ----------
    trained
        Whether those with parameters in an optimizer, or the others.
    """
    together: dict[tuple[object, ...], dict[int, UsedModule]] = defaultdict(dict)
    for training in snapshot.training:
        counted: Counter[tuple[object, ...]] = Counter()
        for one in training.used:
            # not by name: a variable of an earlier cell may hold the module on some ranks only
            key = (one.where, one.watched, tuple(sorted(one.shapes.items())))
            counted[key] += 1
            if one.trained is trained:
                together[*key, counted[key]][training.rank] = one
    return (found for found in together.values() if len(found) == len(snapshot.ranks))
