"""The files that a rank saved and loaded, and the state dicts that its models did not use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointUse:
    """One call of ``torch.save`` or ``torch.load`` with a file.

    Attributes
    ----------
    action
        Whether the call saved or loaded.
    path
        The path of the file, with symbolic links resolved.
    where
        The user's line that made the call.
    began_s, ended_s
        When the call began and ended, on the machine's monotonic clock in seconds.
    done
        False if the call raised.
    wrapped
        The first key of a saved state dict, if all its keys have the prefix of a wrapper.
    devices
        The devices of the tensors that were loaded.
    renamed
        The path that the saved file got afterwards, as in a save in two steps; empty if it kept
        its own.
    holds
        What else a loaded file holds the state of: ``"optimizer"``, ``"scheduler"``, ``"scaler"``.
    epoch
        The number of the epoch in a loaded file; None if it has none.
    """

    action: Literal["save", "load"]
    path: str
    where: Position | None = None
    began_s: float = 0.0
    ended_s: float = 0.0
    done: bool = True
    wrapped: str = ""
    devices: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    renamed: str = ""
    epoch: int | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLoad:
    """A state dict that has no key in common with the module; ``strict=False`` allowed that.

    Attributes
    ----------
    model
        Class of the module.
    where
        The user's line that loaded the state.
    keys
        The number of keys in the state dict.
    unexpected, missing
        The first key of the state dict, and the first key of the module.
    """

    model: str
    where: Position | None = None
    keys: int = 0
    unexpected: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftState:
    """A state in a loaded file that nothing had taken over when training began.

    The program took other states of the file over.

    Attributes
    ----------
    path
        The path of the file.
    where
        The user's line that loaded it.
    key
        The key of the state in the file.
    kind
        What it is the state of; ``"tensors"`` if it may be that of a model, ``"random"`` if it is
        torch's random state.
    saved
        Whether this rank later saved a state with the same key.
    counts_on
        Whether this rank counts on from a number in the file.
    """

    path: str
    where: Position | None = None
    key: str = ""
    kind: Literal["optimizer", "scheduler", "tensors", "random"] = "tensors"
    saved: bool = False
    counts_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCheckpoints:
    """What one rank saved and loaded in a run; only the first calls are kept.

    Attributes
    ----------
    rank
        Global rank.
    uses
        The calls, oldest first.
    more
        How many later calls were not kept.
    restored
        How often ``load_state_dict`` was called, by kind of object: ``"model"``, ``"optimizer"``,
        ``"scheduler"``, ``"scaler"``. A scheduler that holds others counts several times.
    states
        State dicts that its models did not use, if no later one replaced them.
    left
        States that it left in a file of which it took others over.
    """

    rank: int
    uses: tuple[CheckpointUse, ...] = ()
    more: int = 0
    restored: dict[str, int] = field(default_factory=dict)
    states: tuple[StateLoad, ...] = ()
    left: tuple[LeftState, ...] = ()
