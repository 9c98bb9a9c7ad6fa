"""How a session and its ranks are, as the operating system and the ranks' monitors tell."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

import psutil

from .. import system_memory
from ..model import Position
from ..model.torch_features import MissingFeature
from ..wire.channel import Closed
from ..wire.messages import AskStatus
from .pool import RankPool
from .ranks import RankHandle

_ANSWER_LIMIT_S = 0.5


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank.

    Attributes
    ----------
    state
        ``"ready"`` at the prompt, ``"running"``, ``"blocked"`` in a hang that is being held,
        ``"stopped"``, ``"silent"`` (its monitor does not answer) or ``"died"``.
    position
        Where it stands, while it runs a cell.
    memory_bytes
        Its share of memory: pages that ranks have in common are divided among them (PSS; resident
        set size where the system does not tell).
    generation
        How often the process group has been formed.
    """

    rank: int
    pid: int
    alive: bool
    state: str
    position: Position | None
    memory_bytes: int
    generation: int


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """What `Session.status` found."""

    ranks: tuple[RankStatus, ...]
    world_size: int
    backend: str
    has_group: bool
    frozen: bool
    uptime_s: float
    output_directory: Path
    simulated_gpus: int = 0
    missing_features: tuple[MissingFeature, ...] = ()


def ask_monitors(handles: list[RankHandle]) -> None:
    """Ask every monitor, and wait a moment for the answers."""
    for handle in handles:
        handle.ask(AskStatus())
    deadline = time.monotonic() + _ANSWER_LIMIT_S
    while time.monotonic() < deadline:
        waiting: dict[Any, RankHandle] = {
            h.questions: h for h in handles if h.alive and h.silent_s > 0
        }
        if not waiting:
            return
        for channel in wait_for(list(waiting), timeout=0.1):
            with suppress(Closed):
                handle = waiting[channel]
                handle.take_answer(handle.questions.receive())


def session_status(
    pool: RankPool,
    *,
    running: Collection[int],
    blocked: Collection[int],
    frozen: bool,
    uptime_s: float,
) -> SessionStatus:
    """Ask the operating system and every monitor.

    Parameters
    ----------
    pool
        The ranks.
    running, blocked
        Ranks on which a cell runs, and those of them that wait while it is being held.
    frozen, uptime_s
        See `SessionStatus`.
    """
    pool.reap()
    ask_monitors(pool.handles)
    return SessionStatus(
        ranks=tuple(
            _rank_status(
                handle,
                running=handle.rank in running,
                blocked=handle.rank in blocked,
                generation=pool.generation,
            )
            for handle in pool.handles
        ),
        world_size=pool.options.world_size,
        backend=pool.options.backend,
        has_group=pool.options.group,
        frozen=frozen,
        uptime_s=uptime_s,
        output_directory=pool.directory,
        simulated_gpus=pool.options.simulated_gpus,
        missing_features=pool.missing_features,
    )


def _rank_status(
    handle: RankHandle, *, running: bool, blocked: bool, generation: int
) -> RankStatus:
    if not handle.alive:
        state = "died"
    elif handle.stopped:
        state = "stopped"
    elif handle.silent_s > 0:
        state = "silent"
    elif running:
        state = "blocked" if blocked else "running"
    else:
        state = "ready"
    return RankStatus(
        rank=handle.rank,
        pid=handle.pid,
        alive=handle.alive and psutil.pid_exists(handle.pid),
        state=state,
        position=handle.status.position if running and handle.status else None,
        memory_bytes=_memory_share(handle.pid),
        generation=generation,
    )


def _memory_share(pid: int) -> int:
    with suppress(psutil.NoSuchProcess):
        return system_memory.pss_bytes(pid) or system_memory.resident_bytes(pid)
    return 0
