"""What a framework needs to be equal on some ranks, and what each of them was given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value that a rank was given, and which ranks should have the same.

    Attributes
    ----------
    what
        What it is, in the framework's words: ``"num_microbatches"``.
    value
        The value, or a fingerprint of a tensor.
    number
        How many values of this name the rank was given before in the run, plus 1. Values are
        compared with those of the same number.
    axis
        The groups in which it has to be equal, in the framework's words: ``"tensor"``.
    among
        The ranks of the rank's group.
    where
        The user's line.
    decides_calls
        Whether it decides which calls the rank makes, so that a difference makes ranks wait for
        each other or exchange tensors that do not fit.
    """

    what: str
    value: str
    number: int = 1
    axis: str = ""
    among: tuple[int, ...] = ()
    where: Position | None = None
    decides_calls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAgreements:
    """What one rank was given in a run.

    Attributes
    ----------
    rank
        Global rank.
    framework
        The framework, by its name on the package index: ``"megatron-core"``.
    given
        The values, in order.
    groups
        The framework's names of process groups, such as ``"tensor"``, by their names in
        torch.
    """

    rank: int
    framework: str
    given: tuple[Given, ...] = ()
    groups: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A value that differs between ranks on which it should be equal.

    Attributes
    ----------
    framework, what, axis, number
        As in `Given`.
    given
        What each rank was given.
    """

    framework: str
    what: str
    axis: str
    number: int
    given: Mapping[int, Given]

    @property
    def values(self) -> dict[str, list[int]]:
        """The ranks that were given each value."""
        found: dict[str, list[int]] = defaultdict(list)
        for rank, one in sorted(self.given.items()):
            found[one.value].append(rank)
        return dict(found)

    @property
    def decides_calls(self) -> bool:
        """As in `Given`, if all ranks were given it at the same line.

        A rank at another line may well be given something else.
        """
        alike = len({one.where for one in self.given.values()}) == 1
        return alike and all(one.decides_calls for one in self.given.values())


def broken(ranks: Iterable[RankAgreements]) -> Iterator[Broken]:
    """Yield the values that differ, in the order in which ranks were given them."""
    together: dict[tuple[object, ...], dict[int, Given]] = defaultdict(dict)
    for one in ranks:
        for given in one.given:
            key = one.framework, given.what, given.axis, given.number, given.among
            together[key][one.rank] = given
    for (framework, what, axis, number, _), given_to in together.items():
        if len({one.value for one in given_to.values()}) > 1:
            yield Broken(
                framework=str(framework),
                what=str(what),
                axis=str(axis),
                number=int(str(number)),
                given=given_to,
            )
