"""Keeps objects that were sent to the ranks, so that they can be sent to new ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..wire.messages import Failed, StoreVariable
from .errors import SessionError
from .pool import RankPool

#: At most this many bytes are kept, in addition to the notebook's own objects.
_MOST_KEPT = 64 << 20


@dataclass(frozen=True, slots=True)
class Pushed:
    """An object that was sent.

    Attributes
    ----------
    name, data
        Name of the variable, and the serialized object.
    ranks
        The ranks to which it was sent.
    after
        Number of the last cell before; 0 if no cell had run.
    """

    name: str
    data: bytes
    ranks: tuple[int, ...]
    after: int


class PushedObjects:
    """Sends objects to a session's ranks, and keeps them."""

    def __init__(self) -> None:
        self._kept: dict[str, Pushed] = {}

    @property
    def kept(self) -> tuple[Pushed, ...]:
        """The latest object of each name, oldest first."""
        return tuple(self._kept.values())

    def forget(self) -> None:
        """Forget all objects, since the ranks were restarted."""
        self._kept.clear()

    def send(
        self, pool: RankPool, packed: Mapping[str, bytes], ranks: tuple[int, ...], after: int
    ) -> None:
        """Send objects to ranks.

        Raises
        ------
        SessionError
            If a rank cannot read one.
        """
        for name, data in packed.items():
            answers = pool.command(StoreVariable(name=name), data, ranks=ranks)
            for rank, answer in answers.items():
                if isinstance(answer.message, Failed):
                    why = answer.message.error
                    raise SessionError(f"rank {rank} could not take {name!r}: {why}")
            self._kept.pop(name, None)
            if sum(len(one.data) for one in self.kept) + len(data) <= _MOST_KEPT:
                self._kept[name] = Pushed(name, data, ranks, after)

    def due(self, after: int, known: Collection[int]) -> list[Pushed]:
        """The objects to send after a cell when cells run again.

        Parameters
        ----------
        after
            Number of the cell that has run; 0 before the first.
        known
            Numbers of the cells that run again.
        """
        return [one for one in self.kept if (one.after if one.after in known else 0) == after]
