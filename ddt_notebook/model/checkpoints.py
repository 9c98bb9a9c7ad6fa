"""Files that a rank saved and loaded, and what of them reached its models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointUse:
    """One call of ``torch.save`` or ``torch.load`` with a file.

    Attributes
    ----------
    action
        Which of the two it was.
    path
        The file, without symbolic links.
    where
        The user's line.
    began_s, ended_s
        On the machine's monotonic clock, in seconds.
    done
        False if it raised.
    wrapped
        Of what was saved: the first key of a state dict, if all keys have the prefix of a wrapper.
    devices
        Of what was loaded: where its tensors are.
    """

    action: Literal["save", "load"]
    path: str
    where: Position | None = None
    began_s: float = 0.0
    ended_s: float = 0.0
    done: bool = True
    wrapped: str = ""
    devices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLoad:
    """A state dict of which a module knew no key; ``strict=False`` let that pass.

    Attributes
    ----------
    model
        Class of the module.
    where
        The user's line.
    keys
        How many keys the state dict has.
    unexpected, missing
        The first of them, and the first of the module's own.
    """

    model: str
    where: Position | None = None
    keys: int = 0
    unexpected: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCheckpoints:
    """What one rank saved and loaded in a run, in that order; bounded.

    Attributes
    ----------
    rank
        Global rank.
    uses
        The calls, oldest first.
    more
        How many later ones were not kept.
    states
        What its models did not take over, and got no other state later.
    """

    rank: int
    uses: tuple[CheckpointUse, ...] = ()
    more: int = 0
    states: tuple[StateLoad, ...] = ()
