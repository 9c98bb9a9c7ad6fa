"""What a framework needs to be equal, or different, on some ranks, and what each was given."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .frameworks import known_frameworks
from .position import Position
from .rank import RankReport


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
    differs
        Whether the ranks should rather have different values.
    """

    what: str
    value: str
    number: int = 1
    axis: str = ""
    among: tuple[int, ...] = ()
    where: Position | None = None
    decides_calls: bool = False
    differs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAgreements:
    """What one rank was given in a run.

    Attributes
    ----------
    rank
        Global rank.
    framework
        The framework, by its name in `model.frameworks`: ``"megatron-core"``.
    given
        The values, in order.
    groups
        The framework's names of process groups, such as ``"tensor"``, by their names in
        torch.
    axes
        The rank's place on each axis of the framework's mesh, and how many places it has:
        ``{"data": (0, 2)}``. Axes with one place are left out.
    """

    rank: int
    framework: str
    given: tuple[Given, ...] = ()
    groups: dict[str, str] = field(default_factory=dict)
    axes: dict[str, tuple[int, int]] = field(default_factory=dict)


#: Tensors of a batch, or computed from one, of which a fingerprint is kept.
BATCH = (
    *("tokens", "labels", "input of layers", "inputs of the model"),
    "batches before they are cut",
)


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
    def is_parameter(self) -> bool:
        """Whether it is the value of a parameter."""
        return self.what.startswith("parameter ")

    @property
    def is_fingerprint(self) -> bool:
        """Whether the values are fingerprints of tensors, which would say nothing to a user."""
        return self.is_parameter or self.what in BATCH

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


def of_calls(reports: Iterable[RankReport], size: int) -> Iterator[RankAgreements]:
    """What ranks were given that may have kept them from answering: the log of calls has it."""
    known = known_frameworks().values()
    settings = {call: one for one in known for call in one.settings_calls}
    for report in reports:
        numbers: Counter[str] = Counter()
        given: dict[str, list[Given]] = defaultdict(list)
        for call in report.calls:
            if call.op not in settings or not call.detail:
                continue
            numbers[call.op] += 1
            given[settings[call.op].name] += [
                Given(
                    what=what,
                    value=str(value),
                    number=numbers[call.op],
                    axis=settings[call.op].settings_of,
                    among=tuple(range(size)),
                    where=call.where,
                    decides_calls=True,
                )
                for what, value in json.loads(call.detail).items()
            ]
        for name, values in given.items():
            yield RankAgreements(rank=report.rank, framework=name, given=tuple(values))


def readers(ranks: Iterable[RankAgreements]) -> dict[int, int]:
    """The lowest rank at the same place of the data axis, for each rank of a framework's mesh.

    These ranks compute with parts of one model, and so they have to read the same samples.
    """
    lowest: dict[int, int] = {}
    found = {}
    for one in sorted(ranks, key=lambda one: one.rank):
        if one.axes:
            place = one.axes.get("data", (0, 1))[0]
            found[one.rank] = lowest.setdefault(place, one.rank)
    return found


def broken(ranks: Iterable[RankAgreements]) -> Iterator[Broken]:
    """Yield the values that differ, in the order in which ranks were given them."""
    for one in _compared(ranks):
        if len(one.values) > 1 and not any(given.differs for given in one.given.values()):
            yield one


def alike(ranks: Iterable[RankAgreements]) -> Iterator[Broken]:
    """Yield the first of the values that all ranks of a group have alike, and should not.

    Every later one has to be alike, too, and at least two of a rank have to differ, unless it is a
    parameter: a program that tries something out may repeat one batch.
    """
    together: dict[tuple[object, ...], list[Broken]] = defaultdict(list)
    for one in _compared(ranks):
        among = next(iter(one.given.values())).among
        if all(given.differs for given in one.given.values()) and len(one.given) == len(among):
            together[one.framework, one.what, one.axis, among].append(one)
    for found in together.values():
        values = {value for one in found for value in one.values}
        varies = len(values) > 1 or found[0].is_parameter
        if varies and all(len(one.values) == 1 for one in found):
            yield found[0]


def _compared(ranks: Iterable[RankAgreements]) -> Iterator[Broken]:
    """What ranks of one group were given at the same time."""
    together: dict[tuple[object, ...], dict[int, Given]] = defaultdict(dict)
    for one in ranks:
        for given in one.given:
            key = one.framework, given.what, given.axis, given.number, given.among
            together[key][one.rank] = given
    for (framework, what, axis, number, _), given_to in together.items():
        yield Broken(
            framework=str(framework),
            what=str(what),
            axis=str(axis),
            number=int(str(number)),
            given=given_to,
        )
