"""What one rank of a job received from collectives, and how a replay of that rank compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .collective import Shape
from .position import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCall:
    """A call of ``torch.distributed`` whose result was kept.

    Attributes
    ----------
    op
        The function; for what DDP issues in C++ the name of PyTorch's method, such as
        ``allreduce``.
    members
        The ranks of its group.
    shapes, dtypes
        Of the tensors that this rank passed in.
    output_shapes
        Of the tensors that receive the result.
    details
        Reduce operation, root, peer and tag, by name.
    ddp
        Whether DDP issued it in C++.
    where
        The user's line.
    sent
        A checksum of what this rank sends; None if it sends no tensors.
    random
        Checksums of the random states at this call, by the library that has them.
    """

    op: str
    members: tuple[int, ...] = ()
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    output_shapes: tuple[Shape, ...] = ()
    details: dict[str, str] | None = None
    ddp: bool = False
    where: Position | None = None
    sent: int | None = None
    random: dict[str, int] | None = None


Difference = Literal[
    "operation", "group", "shapes", "dtypes", "details", "values", "random states", "end"
]
#: What ended the replay: the script itself, a departure, the call in which the recorded rank stood
#: when it was ended, the record's limit, or a call whose result could not be kept.
ReplayEnd = Literal["script", "departure", "stood", "limit", "not kept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A call of the replay that differs from the record.

    Attributes
    ----------
    number
        Which call it is, from 1.
    what
        In what it differs.
    recorded, replayed
        The two calls; None if the record, or the replay, has no further call.
    libraries
        Whose random states differ.
    """

    number: int
    what: Difference
    recorded: InputCall | None
    replayed: InputCall | None
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """How far a replay got.

    Attributes
    ----------
    rank, world_size
        The rank in its job.
    served
        How many calls got their result from the record.
    recorded
        How many calls the record holds.
    end
        What ended the replay.
    at
        The call at which it ended; None if the script ended.
    departure
        The call that could not be served, since it differs from the record.
    unequal
        The first call at which the rank sends other values than in the record, and the first one
        at which random states differ.
    reason
        Why the record ends there, or why a result was not kept.
    names
        The variables that are alive.
    """

    rank: int
    world_size: int
    served: int
    recorded: int
    end: ReplayEnd = "script"
    at: InputCall | None = None
    departure: Departure | None = None
    unequal: tuple[Departure, ...] = ()
    reason: str = ""
    names: tuple[str, ...] = ()
