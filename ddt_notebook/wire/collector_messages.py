"""The messages between the hosts of a recorded job that share no folder.

The ranks' logs travel as in `agent_messages`; the key of a `FileBytes` is the rank's process id.
"""

from __future__ import annotations

from dataclasses import dataclass

from .messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHello(Message):
    """The first message of a host; `HostWelcome` or `Failed` answers."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWelcome(Message):
    """The records of the host are collected by the host of this name."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile(Message):
    """The payload is the whole content of a small file of the job's folder."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob(Message):
    """Stop the job on this host, too."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionEnds(Message):
    """The job has ended on the host that sends this; nothing answers."""
