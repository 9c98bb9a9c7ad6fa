"""Compares the ranks by a fingerprint of each tensor and setting."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

ParityRole = Literal["parameter", "buffer", "gradient", "state", "setting", "random"]
_Value = TypeVar("_Value", bound=Hashable)


def grouped(values: Mapping[int, _Value]) -> dict[_Value, list[int]]:
    """The ranks that have each value, in the order of the ranks; the largest group first."""
    groups: dict[_Value, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        groups[value].append(rank)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def minority(groups: Iterable[Sequence[int]]) -> list[int]:
    """The ranks outside the largest group; all ranks if no group is larger than the others."""
    first, *others = sorted(groups, key=len, reverse=True)
    if others and len(others[0]) == len(first):
        others.append(first)
    return sorted(rank for group in others for rank in group)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityItem:
    """One thing that ranks can agree on.

    Attributes
    ----------
    name
        ``"model.fc1.weight"``, ``"optimizer.lr[0]"``, ``"torch random state"``.
    role
        ``"setting"``: learning rate, step count, mode and the like.
        ``"random"``: the state of a random generator, which is allowed to differ.
    value
        For a tensor, the fingerprint of its content, 16 hexadecimal digits; for a setting, its
        text.
    kind
        Data type and shape of a tensor, such as ``"float32 10×20"``.
    part
        Which part of a sharded tensor this rank holds; only equal parts are compared.
    not_finite
        ``"nan"`` or ``"inf"`` if a tensor has such an element; ``"nan"`` if it has both.
    """

    name: str
    role: ParityRole
    value: str
    kind: str = ""
    part: str = ""
    not_finite: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDifference:
    """How the values of a tensor differ from those on the rank it is compared with.

    Attributes
    ----------
    name
        Name of the `ParityItem`.
    reference
        The rank it is compared with.
    first
        Position of the first element that differs.
    here, there
        The values of that element on this rank and on the reference.
    largest
        The largest difference; None if it is not a number.
    count, elements
        How many elements differ, and how many there are.
    """

    name: str
    reference: int
    first: tuple[int, ...]
    here: str
    there: str
    largest: float | None
    count: int
    elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParity:
    """One rank's fingerprints.

    Attributes
    ----------
    rank
        Global rank.
    items
        The fingerprints, in the order of the namespace.
    differences
        Differences of the tensors that are not the same as on most other ranks.
    divided
        Names of optimizers that keep a part of their state on each rank (ZeRO). State that is
        missing on a rank does not count as a difference.
    synchronized_buffers
        Names of DDP models that copy rank 0's buffers to all ranks at the next forward pass.
    wrapped
        Names of the models that DDP or FSDP keeps equal.
    joined
        Names of the DDP models whose last pass was inside ``join()``: ranks that had less data
        keep gradients and optimizer state of an earlier step.
    sampled
        Whether tensors of more than 64 KiB were read at up to 1,024 elements, and gradients and
        random states not at all, as in a rank that runs.
    unread
        How many tensors have no fingerprint because they are on a GPU, whose content a running rank
        could read only by waiting for the GPU, or because there are too many.
    """

    rank: int
    items: tuple[ParityItem, ...] = ()
    differences: tuple[ValueDifference, ...] = ()
    divided: tuple[str, ...] = ()
    synchronized_buffers: tuple[str, ...] = ()
    wrapped: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    sampled: bool = False
    unread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A tensor or setting in which ranks differ.

    Attributes
    ----------
    name, role
        Name and role of the `ParityItem`.
    groups
        Ranks that agree with each other, the largest group first; ``""`` stands for ranks that do
        not have it.
    kinds
        Data type and shape in each group.
    """

    name: str
    role: ParityRole
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()

    @property
    def agreeing(self) -> tuple[int, ...]:
        """The largest group that has it; of groups of equal size, the one with the lowest rank."""
        return next(ranks for value, ranks in self.groups.items() if value)

    @property
    def reference(self) -> int:
        """The rank with which the others are compared."""
        return self.agreeing[0]

    @property
    def deviating(self) -> tuple[int, ...]:
        """Ranks that do not agree with that group."""
        ranks = {rank for group in self.groups.values() for rank in group}
        return tuple(sorted(ranks - set(self.agreeing)))


def disagreements(ranks: Iterable[RankParity]) -> list[Disagreement]:
    """The disagreements, in the order of the first rank's namespace."""
    parities = list(ranks)
    known: dict[tuple[str, str], dict[int, ParityItem]] = {}
    for parity in parities:
        for item in parity.items:
            known.setdefault((item.name, item.part), {})[parity.rank] = item
    parts = Counter(name for name, _ in known)
    #: The ranks that hold each parameter: another rank may hold another part of the model.
    held: dict[str, set[int]] = defaultdict(set)
    for parity in parities:
        for item in parity.items:
            if item.role == "parameter":
                held[item.name].add(parity.rank)
    divided = tuple(f"{name}." for parity in parities for name in parity.divided)
    found = []
    for (name, part), items in known.items():
        first = next(iter(items.values()))
        absent = [p.rank for p in parities if p.rank not in items]
        if part or parts[name] > 1 or name.startswith(divided):
            absent = []  # other ranks have other parts
        if absent and (holders := held[_parameter_of(name, first.role)]):
            absent = [rank for rank in absent if rank in holders]
        if first.role not in ("state", "gradient"):
            absent = []  # a variable may exist on some ranks only
        values = {(item.value, item.kind) for item in items.values()}
        if len(values) > 1 or absent:
            found.append(_disagreement(name, first.role, items, absent))
    return found


def _parameter_of(name: str, role: str) -> str:
    """The parameter of a gradient or of an entry of an optimizer's state."""
    if role == "state":
        return name.partition(".state.")[2].rpartition(".")[0]
    return name.removesuffix(".grad")


def _disagreement(
    name: str, role: ParityRole, items: dict[int, ParityItem], absent: list[int]
) -> Disagreement:
    groups: dict[tuple[str, str], list[int]] = {}
    for rank, item in items.items():
        groups.setdefault((item.value, item.kind), []).append(rank)
    if absent:
        groups["", ""] = absent
    ordered = sorted(groups.items(), key=lambda entry: (-len(entry[1]), entry[1][0]))
    by_value: dict[str, tuple[int, ...]] = {}
    for (value, kind), members in ordered:
        label = f"{value} {kind}".strip() if value in by_value else value
        by_value[label] = tuple(members)
    kinds = tuple(kind for (_, kind), _ in ordered)
    return Disagreement(name=name, role=role, groups=by_value, kinds=kinds)
