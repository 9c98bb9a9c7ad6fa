"""How one rank tried to join its process group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """What a rank passed to ``init_process_group`` in arguments or the environment.

    Attributes
    ----------
    address
        Address of the rendezvous, such as ``"127.0.0.1:29500"`` or ``"file:///tmp/rendezvous"``;
        empty if it is not known (the user's own kind of store, or a variable that is not set).
    rank, world_size
        As given; None if missing or not a number.
    backend
        As given, such as ``"cpu:gloo,cuda:nccl"``; empty if torch chooses it.
    left_over
        True if the file of the rendezvous contained data before the call, or the store that was
        passed an address of this rank.
    served_at
        Where the launcher serves the store, so that no rank serves one at `address`; empty if
        rank 0 serves it, or if `address` has the same port.
    """

    address: str = ""
    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    left_over: bool = False
    served_at: str = ""

    @property
    def known(self) -> bool:
        """Whether all is known that decides which ranks it can meet."""
        return bool(self.address and self.world_size) and self.rank is not None

    @property
    def endpoint(self) -> str:
        """The port of the address, because a host has many names; the same text for all files."""
        return "file" if self.address.startswith("file://") else self.address.rpartition(":")[2]


def complete_groups(ranks: Iterable[Rendezvous]) -> bool:
    """Whether the ranks complete one group, or several groups of different sizes."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for one in ranks:
        numbers[one.world_size or 0].append(-1 if one.rank is None else one.rank)
    numbers[1] = sorted(set(numbers[1]))  # each can be alone in its own group
    return all(sorted(came) == list(range(size)) for size, came in numbers.items() if came)
