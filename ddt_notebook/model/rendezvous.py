"""How one rank meant to join its process group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """What a rank told ``init_process_group``, by arguments or by the environment.

    Attributes
    ----------
    address
        Where the ranks were to meet: ``"127.0.0.1:29500"``, ``"file:///tmp/rendezvous"``; empty
        if it could not be told (a store of the user's own kind, a variable that is not set).
    rank, world_size
        As given; None if missing or no number.
    backend
        As given, ``"cpu:gloo,cuda:nccl"``; empty for torch's choice.
    left_over
        True if the file to meet in held data before the call.
    """

    address: str = ""
    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    left_over: bool = False
