"""How one rank tried to join its process group."""

from __future__ import annotations

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
        True if the file of the rendezvous contained data before the call.
    """

    address: str = ""
    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    left_over: bool = False
