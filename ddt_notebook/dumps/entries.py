"""The entries of all ranks' dumps as one table, and the members of their groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .columns import Columns, Kind, members_of

_WORLD = ("default_pg", "default")

Groups = dict[str, tuple[int, ...]]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of the last formation of each group, in columns.

    Attributes
    ----------
    kinds
        What entries have in common; a name for each kind.
    dump, index, kind, number, done
        Of each entry, in the order of ranks and of time: position of its dump, its position in
        the dump, its kind, its number in the group, whether it has completed.
    """

    kinds: list[Kind]
    dump: NDArray[np.int32]
    index: NDArray[np.int32]
    kind: NDArray[np.int32]
    number: Ints
    done: Flags

    @classmethod
    def of(cls, dumps: Sequence[Columns]) -> Entries:
        """The entries of dumps, without those of earlier formations of a group."""
        names: dict[Kind, int] = {}
        whole = not any(dump.dropped for dump in dumps)
        most: Counter[str] = Counter()
        for dump in dumps:
            most |= Counter(dump.formations)
        parts: list[tuple[Any, ...]] = []
        for position, dump in enumerate(dumps):
            # a rank without calls in the last group has fewer; not known if entries were lost
            count = most if whole else dump.formations
            last = [kind.formation == count[kind.group] - 1 for kind in dump.kinds]
            ids = [
                names.setdefault(kind, len(names)) if now else -1
                for kind, now in zip(dump.kinds, last, strict=True)
            ]
            kind = np.array(ids or [0], np.int32)[np.frombuffer(dump.kind_of, np.uint32)]
            kept = kind >= 0
            number = np.frombuffer(dump.numbers, np.int64)[kept]
            done = np.frombuffer(dump.done, np.bool_)[kept]
            kind = kind[kept]
            index: Any = np.arange(len(kind), dtype=np.int32)
            parts.append((np.full(len(kind), position, np.int32), index, kind, number, done))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return cls(list(names), *columns)

    def by_kind(self, values: Sequence[int]) -> Ints:
        """A value of each kind as a column."""
        return np.array(values or [0], np.int64)[self.kind]

    def users(self) -> dict[str, set[int]]:
        """For each group, the positions of the dumps that have entries of it."""
        used: dict[str, set[int]] = defaultdict(set)
        pairs = np.unique(self.dump.astype(np.int64) * len(self.kinds) + self.kind)
        for pair in pairs.tolist():
            dump, kind = divmod(pair, len(self.kinds))
            used[self.kinds[kind].group].add(dump)
        return used


def groups_of(dumps: Sequence[Columns], entries: Entries) -> tuple[Groups, list[str]]:
    """Members of each group by name, and the groups whose members no dump contains."""
    texts: dict[str, str] = {}
    for dump in dumps:
        texts |= dump.members
    members = {name: members_of(ranks) for name, ranks in texts.items()}
    whole = {kind.group for kind in entries.kinds if kind.description in _WORLD}
    known = {dump.rank for dump in dumps} | {rank for ranks in members.values() for rank in ranks}
    everyone = tuple(range(1 + max(known)))
    groups, guessed = {}, []
    for name, positions in sorted(entries.users().items()):
        ranks = {dumps[position].rank for position in positions}
        if name in members and ranks <= set(members[name]):
            groups[name] = members[name]
        elif name in whole:
            groups[name] = everyone
        else:
            groups[name] = tuple(sorted(ranks))
            guessed.append(name)
    return groups, guessed
