"""The memory that a rank would need if training were sharded over the ranks in another way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Literal

from .memory import RankMemory

Sharding = Literal["DDP", "ZeRO-1", "ZeRO-2", "FSDP"]
Change = Literal["", "float32", "mixed precision", "checkpointing"]

SHARDINGS: tuple[Sharding, ...] = ("DDP", "ZeRO-1", "ZeRO-2", "FSDP")

#: Bytes of an element of the optimizer's state, and of the copy of a parameter that it updates, in
#: training with mixed precision (ZeRO, Rajbhandari et al. 2020, section 3.1: 16 bytes in all for
#: each parameter with Adam).
FULL_PRECISION = 4

#: The number of states (moments) that an optimizer keeps for each trained element, for optimizers
#: whose states have the element's type.
STATES = {
    "adam": 2,
    "adamw": 2,
    "nadam": 2,
    "radam": 2,
    "adamax": 2,
    "rmsprop": 1,
    "adagrad": 1,
    "sgd": 0,
    "sgd with momentum": 1,
}

#: Letters that stand for powers of ten in the name of a model, such as 350M or 7B.
_THOUSANDS = {"K": 3, "M": 6, "B": 9, "T": 12}
#: More parameters than any model has.
_MOST = 10**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The memory of one rank in bytes, by purpose.

    Attributes
    ----------
    parameters, gradients, optimizer_state, buffers, buckets
        Memory of the model and its training. The optimizer's state includes the float32 copies
        of parameters of a smaller type.
    activations
        Memory kept for backward; it grows with the batch. 0 if it is not known.
    base
        Memory of the process without a model, such as the interpreter and libraries.
    """

    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    buffers: int = 0
    buckets: int = 0
    activations: int = 0
    base: int = 0

    @property
    def total(self) -> int:
        """The sum of all fields."""
        return (
            self.parameters
            + self.gradients
            + self.optimizer_state
            + self.buffers
            + self.buckets
            + self.activations
            + self.base
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to train, and the memory that it needs.

    Attributes
    ----------
    sharding
        What is sharded over the ranks: nothing, optimizer state, also gradients, or everything.
    batch
        Size of the batch of one rank, as a multiple of the current size.
    needs
        The memory of each rank, at most.
    change
        What else is done in another way than now.
    least_activations
        The activations that are kept at least, if their number is not known exactly; else None.
    """

    sharding: Sharding
    batch: float
    needs: Needs
    change: Change = ""
    least_activations: int | None = None

    @property
    def least(self) -> int:
        """The memory of each rank, at least."""
        if self.least_activations is None:
            return self.needs.total
        return self.needs.total - self.needs.activations + self.least_activations


def parameter_count(given: float | str) -> int:
    """The number of parameters that a number, or a text such as ``"7B"`` or ``"7e9"``, means.

    Raises
    ------
    ValueError
        If it is not a whole number of at least 1.
    """
    number: Decimal | float = -1
    if isinstance(given, str):
        text = given.strip().replace(",", "").replace("_", "").upper()
        exponent = _THOUSANDS.get(text[-1:], 0)
        with suppress(InvalidOperation):
            # exact, so that 1.1B is a whole number
            number = Decimal(text[:-1] if exponent else text).scaleb(exponent)
    else:
        number = given
    if not math.isfinite(number) or not 1 <= number <= _MOST or number != int(number):
        raise ValueError(f"expected a number of parameters such as 7e9 or '7B', but got {given!r}")
    return int(number)


def measured_needs(memory: RankMemory) -> Needs:
    """The measured memory of a rank; ``base`` is what belongs to none of the other parts.

    Raises
    ------
    ValueError
        If no model was observed, or only a shard, whose whole size is not known.
    """
    parts = memory.parts
    if not parts.get("parameters"):
        raise ValueError("no model was seen on the ranks: build it in a cell, or give its size")
    if memory.wrapper in ("FSDP", "FSDP2", "DTensor"):
        raise ValueError(
            f"this model is sharded already ({memory.wrapper}): give its number of parameters"
        )
    trained = memory.trained_count / max(1, memory.parameter_count)
    gradients = parts.get("gradients") or round(parts["parameters"] * trained)
    known = sum(parts.get(kind, 0) for kind in parts if kind != "activations")
    return Needs(
        parameters=parts["parameters"],
        gradients=gradients,
        optimizer_state=parts.get("optimizer state", 0),
        buffers=parts.get("buffers", 0),
        buckets=parts.get("DDP buckets", 0) or gradients,
        activations=parts.get("activations", 0),
        base=max(0, _whole(memory) - known) + parts.get("tensors", 0),
    )


def _whole(memory: RankMemory) -> int:
    """The total memory of a rank, counted in the same way as its limit."""
    if memory.device.startswith("cuda"):
        return memory.gpu_allocated or 0
    if "rank" in memory.limits:
        return memory.data_bytes or 0
    return memory.pss_bytes or memory.rss_bytes


def needs_of(
    parameters: int, item_bytes: int, optimizer: str, activations: int, mixed: bool = False
) -> Needs:
    """The computed memory of a model with DDP.

    Parameters
    ----------
    parameters, item_bytes
        How many, and the bytes of each of them and of its gradient.
    optimizer
        Name of its class.
    activations
        Bytes kept for backward, 0 if that is not known.
    mixed
        Whether the optimizer updates float32 copies of the parameters and has a float32 state.

    Raises
    ------
    ValueError
        If the number of the optimizer's states is not known.
    """
    states = STATES.get(optimizer.lower())
    if states is None:
        raise ValueError(f"{optimizer!r} is not known here; there is: {', '.join(STATES)}")
    size = parameters * item_bytes
    state = (states + 1) * parameters * FULL_PRECISION if mixed else states * size
    return Needs(
        parameters=size,
        gradients=size,
        optimizer_state=state,
        buckets=size,
        activations=activations,
    )


def computed_precision(
    parameters: int, item_bytes: int, optimizer: str, activations: int, mixed: bool = False
) -> list[Plan]:
    """DDP with the other precision: see `needs_of`.

    The activations of a smaller type have half the size, but some operations keep float32.
    """
    if item_bytes == FULL_PRECISION and not mixed:
        kept, least = activations, activations // 2
        change: Change = "mixed precision"
    elif item_bytes * 2 == FULL_PRECISION and mixed:
        kept, least, change = 2 * activations, activations, "float32"
    else:
        return []
    other = needs_of(
        parameters,
        item_bytes=FULL_PRECISION if mixed else FULL_PRECISION // 2,
        optimizer=optimizer,
        activations=kept,
        mixed=not mixed,
    )
    return [Plan("DDP", 1.0, other, change, least if activations else None)]


def measured_precision(memory: RankMemory, needs: Needs) -> list[Plan]:
    """DDP with ``torch.autocast``, for a measured model in float32.

    Parameters, gradients and the optimizer's state keep their size. Backward keeps activations of
    half the size, at best, and copies of the parameters of that size, at worst.
    """
    parameters, kept = needs.parameters, needs.activations
    if parameters != memory.parameter_count * FULL_PRECISION or not kept:
        return []
    cast = replace(needs, activations=kept + parameters // 2)
    return [Plan("DDP", 1.0, cast, "mixed precision", kept // 2)]


def plans(needs: Needs, ranks: int, others: Iterable[Plan] = ()) -> Iterator[Plan]:
    """Ways to train: with the current batch and, if that matters, with half of it.

    Parameters
    ----------
    needs
        Of a rank with DDP.
    ranks
        How many ranks there are.
    others
        Plans with another precision.
    """
    for batch in (1.0, 0.5) if needs.activations else (1.0,):
        activations = round(needs.activations * batch)
        for sharding in SHARDINGS:
            yield Plan(sharding, batch, _spread(needs, sharding, ranks, activations))
    yield from others
    if needs.activations:
        for sharding in ("DDP", "FSDP"):
            spread = _spread(needs, sharding, ranks, needs.activations)
            yield Plan(sharding, 1.0, spread, "checkpointing", 0)


def _spread(needs: Needs, sharding: Sharding, ranks: int, activations: int) -> Needs:
    spread = replace(needs, activations=activations)
    if sharding != "DDP":
        spread = replace(spread, optimizer_state=_part(needs.optimizer_state, ranks))
    if sharding in ("ZeRO-2", "FSDP"):
        spread = replace(spread, gradients=_part(needs.gradients, ranks), buckets=0)
    if sharding == "FSDP":
        spread = replace(spread, parameters=_part(needs.parameters, ranks))
    return spread


def _part(size: int, ranks: int) -> int:
    return -(-size // ranks)
