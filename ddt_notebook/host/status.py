"""The state of a session and of its ranks' processes, and their memory use."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from ..model import Position
from ..model.torch_features import MissingFeature
from ..wire.channel import Closed
from ..wire.messages import AskStatus
from .pool import HostVersions, RankPool
from .rank_handle import RankHandle

_ANSWER_LIMIT_S = 0.5


@dataclass(frozen=True, slots=True)
class RankStatus:
    """The status of one rank.

    Attributes
    ----------
    rank, pid
        Global rank and process id.
    alive
        Whether its process exists.
    state
        ``"ready"`` at the prompt, ``"running"``, ``"blocked"`` in a hang that is being held,
        ``"stopped"``, ``"silent"`` (its monitor does not answer) or ``"died"``.
    position
        The line that it runs, while it runs a cell.
    memory_bytes
        Resident set size (RSS), as in the panels; pages that ranks share count in each of them.
    share_bytes
        Its share of memory: pages that ranks share are divided among them (PSS; resident set size
        if the system does not report PSS). The shares of all ranks add up to what they use.
    generation
        How often the process group has been formed.
    host
        Name of its host; empty for the machine of the notebook.
    device
        The value of the variable ``device`` in the rank.
    """

    rank: int
    pid: int
    alive: bool
    state: str
    position: Position | None
    memory_bytes: int
    share_bytes: int
    generation: int
    host: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """The result of `Session.status`; ``seed`` as in `Session`, ``versions`` of each host.

    ``framework`` is that for which the ranks are prepared; empty for none.
    """

    ranks: tuple[RankStatus, ...]
    world_size: int
    backend: str
    has_group: bool
    frozen: bool
    uptime_s: float
    output_directory: Path
    simulated_gpus: int = 0
    seed: int | None = None
    missing_features: tuple[MissingFeature, ...] = ()
    versions: tuple[HostVersions, ...] = ()
    framework: str = ""


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
                if handle.questions is not None:
                    handle.take_answer(handle.receive(handle.questions))


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
        seed=pool.options.seed,
        frozen=frozen,
        uptime_s=uptime_s,
        output_directory=pool.directory,
        simulated_gpus=pool.options.simulated_gpus,
        missing_features=pool.missing_features,
        versions=pool.versions,
        framework=pool.options.framework,
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
        alive=handle.alive and handle.process.exists,
        state=state,
        position=handle.status.position if running and handle.status else None,
        memory_bytes=handle.process.resident_bytes() or 0,
        share_bytes=handle.process.memory_share(),
        generation=generation,
        host=handle.host,
        device=handle.device,
    )


@dataclass(frozen=True, slots=True)
class RankResources:
    """Where one rank computes, and how much of its memory limit it has allocated.

    Attributes
    ----------
    device
        The value of the variable ``device`` in the rank, ``"cuda:0 (simulated)"`` if the CPU
        computes; empty until the rank is ready.
    resident_bytes
        Resident set size; None if it was not requested.
    allocated_bytes
        What it has allocated since its start; None without a cap, and if the system does not
        report it.
    cap_bytes
        What it may allocate after its start; None without a cap.
    """

    device: str
    resident_bytes: int | None = None
    allocated_bytes: int | None = None
    cap_bytes: int | None = None


def rank_resources(pool: RankPool, *, resident: bool) -> dict[int, RankResources]:
    """The resources of every rank, without asking the ranks, which may be busy or stuck.

    Parameters
    ----------
    pool
        The ranks.
    resident
        Whether to look up the resident set size, which reports contain while a cell runs.
    """
    cap = pool.options.memory
    simulated = " (simulated)" if pool.options.simulated_gpus else ""
    return {
        handle.rank: RankResources(
            device=f"{handle.device}{simulated}" if handle.device else "",
            resident_bytes=handle.process.resident_bytes() if resident and handle.alive else None,
            allocated_bytes=handle.process.allocated_bytes(cap)
            if cap is not None and handle.alive
            else None,
            cap_bytes=cap,
        )
        for handle in tuple(pool.handles)
    }
