"""What was seen of the hosts of a session, and of the connections between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: Which host tried to reach which one.
Pair = tuple[str, str]
#: What is measured of a connection.
LinkQuantity = Literal["round trip", "bandwidth"]
#: How the trial of a connection ended: ``"stalled"`` if small messages passed and a larger one did
#: not, ``"other"`` if another program or host answered.
TrialEnd = Literal["passed", "refused", "no answer", "unreachable", "stalled", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a job on several hosts needs of one of them.

    Attributes
    ----------
    versions
        Version by name, of what is installed: ``"python"``, ``"torch"``, ``"nccl"``.
    variables
        The environment variables that were asked for and are set.
    name
        What the host calls itself.
    name_addresses
        The addresses of that name on this host; empty if it has none.
    gloo_interface
        ``GLOO_SOCKET_IFNAME`` when the agent was started; empty if it was not set.
    address, interface, mtu
        What the ranks use, and the size of a packet there in bytes; 0 if it is not known.
    wall_s
        The wall clock of the host minus its monotonic clock.
    shared_bytes, shared_free
        Size of the shared memory, and how much of it is free; None without shared memory.
    """

    versions: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    name: str
    name_addresses: tuple[str, ...] = ()
    gloo_interface: str = ""
    address: str
    interface: str
    mtu: int = 0
    wall_s: float
    shared_bytes: int | None = None
    shared_free: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One host tried to reach another one at a port of its own.

    Attributes
    ----------
    end
        How it ended.
    error
        What the operating system said; empty if nothing.
    round_trip_s
        Time of a short message and its answer, the median of several; None without an answer.
    bytes_per_s
        How fast long messages arrived; None if it was not asked for.
    at_most
        How fast they would have arrived if both hosts had always had a processor free for them.
    """

    end: TrialEnd
    error: str = ""
    round_trip_s: float | None = None
    bytes_per_s: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLink:
    """The connection from one host to another one.

    Attributes
    ----------
    source, target
        Names of the hosts.
    trial
        How it was tried.
    slow
        What is clearly slower than on other connections.
    """

    source: str
    target: str
    trial: Trial
    slow: tuple[LinkQuantity, ...] = ()
