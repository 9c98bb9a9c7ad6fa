"""Observes a job that was started without ddt_notebook, and merges what its sources show."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psutil

from ..dumps import columns, stacks
from ..dumps.columns import Columns
from ..dumps.evidence import Evidence
from ..formatting import ranks_text
from ..model.codec import FormatError
from ..model.frameworks import framework_of, waits_in
from ..model.user_code import is_user_code
from . import sources
from .processes import CannotAttach, RankProcess, ranks_of

#: Seconds between two observations. A rank that goes on makes more than one step in this time, or
#: it is in a long computation, which is not a wait.
BETWEEN_S = 2.0
_AT_ONCE = 8
#: A main thread that gave up its processor this often between two observations did not stay in one
#: call. In hangs of gloo the count was 0 in 2 s, in a healthy job with steps of 0.2 s it was 16.
_WOKE = 2
_INSTALL = "pip install 'ddt-notebook[attach]'"
_NEXT_TIME = (
    "next time, `torch.distributed.debug.start_debug_server()` after init_process_group shows each "
    "rank's collectives as well (it listens on all interfaces without a password: for trusted "
    "networks only)"
)


@dataclass(slots=True)
class _Look:
    """What was seen at one moment, by rank.

    Attributes
    ----------
    stacks, variables
        Each rank's stack; the lines and the local variables of the user's frames.
    recorders
        The content of each rank's Flight Recorder as JSON.
    """

    stacks: dict[int, stacks.Stack] = field(default_factory=dict)
    variables: dict[int, Any] = field(default_factory=dict)
    recorders: dict[int, bytes] = field(default_factory=dict)


def look_at(targets: Sequence[int | str], between_s: float = BETWEEN_S) -> Evidence:
    """What can be seen of a running job, without a change to it.

    Parameters
    ----------
    targets
        Process ids of a launcher or of ranks, or one address ``"HOST:PORT"`` of the job's store.
    between_s
        Seconds between two observations, which show whether ranks go on.

    Raises
    ------
    CannotAttach
        If there is no such job, or nothing of it can be seen.
    """
    pids, address = _targets(targets)
    ranks = ranks_of(pids) if pids else []
    address = address or next((rank.address for rank in ranks if rank.address), None)
    store = sources.read_store(*address) if address is not None else sources.Store()
    tool = sources.py_spy() if ranks else None
    notes: list[str] = []
    first, _ = _look(ranks, tool, store.servers)
    before, began = _counters(ranks), time.monotonic()
    time.sleep(between_s)
    after, passed = _counters(ranks), time.monotonic() - began
    second, problems = _look(ranks, tool, store.servers)
    world = max([rank.world_size for rank in ranks] + [1 + rank for rank in store.servers] + [0])
    dumps = _dumps(second.recorders, notes)
    if not dumps and not second.stacks:
        joined = [f"{ranks_text(store.joined)} joined its store"] if store.joined else []
        why = "; ".join(joined + _missing(ranks, tool, store, address, problems, world, second))
        raise CannotAttach(f"nothing of this job can be seen: {why}")
    moved = _moved(
        first, second, {r: n - before[r][1] for r, (_, n) in after.items() if r in before}
    )
    if moved:
        notes.append(f"the job goes on: {ranks_text(moved)} made progress within {between_s:g} s")
    elif not dumps and not any(map(waits_in, second.stacks.values())):
        notes.append("as far as the stacks show, no rank is inside a collective: no hang is seen")
    notes.append(_seen(second, store))
    notes += _missing(ranks, tool, store, address, problems, world, second)
    return Evidence(
        dumps=dumps,
        stacks=second.stacks,
        pids={rank.rank: rank.pid for rank in ranks},
        cpu_shares={r: (s - before[r][0]) / passed for r, (s, _) in after.items() if r in before},
        blocked_s=_blocked_s(second.recorders),
        world_size=world,
        moves=bool(moved),
        local=bool(ranks),
        notes=notes,
    )


def _targets(targets: Sequence[int | str]) -> tuple[list[int], tuple[str, int] | None]:
    pids: list[int] = []
    address = None
    for target in targets:
        host, _, port = str(target).rpartition(":")
        if host and port.isdecimal() and 0 < int(port) < 1 << 16:
            address = host.strip("[]"), int(port)
        elif str(target).isdecimal():
            pids.append(int(target))
        else:
            raise CannotAttach(
                f"there is no folder {target!r}; expected the folder of a recorded job, a process "
                "id or HOST:PORT"
            )
    if not pids and address is None:
        raise CannotAttach("name the process id of a launcher or a rank, or HOST:PORT of its store")
    return pids, address


def _look(
    ranks: Sequence[RankProcess], tool: str | None, servers: Mapping[int, str]
) -> tuple[_Look, list[str]]:
    """Look at every rank once; also return why py-spy failed."""
    look, problems = _Look(), []
    with ThreadPoolExecutor(_AT_ONCE, "ddt-attach") as pool:
        printed = pool.map(lambda one: sources.stack_of(tool, one.pid) if tool else ("", ""), ranks)
        traces = pool.map(lambda url: sources.ask_server(url, "fr_trace_json"), servers.values())
        served = pool.map(lambda url: sources.ask_server(url, "dump_traceback"), servers.values())
        for rank, data, trace in zip(servers, traces, served, strict=True):
            if data:
                look.recorders[rank] = data
            look.stacks[rank] = stacks.read(trace.decode(errors="replace"))
        for process, (text, problem) in zip(ranks, printed, strict=True):
            if text:
                look.stacks[process.rank] = stacks.read(text)
                look.variables[process.rank] = _variables(text)
            elif problem:
                problems.append(f"py-spy could not read rank {process.rank}: {problem}")
    look.stacks = {rank: stack for rank, stack in look.stacks.items() if stack}
    return look, problems


def _counters(ranks: Sequence[RankProcess]) -> dict[int, tuple[float, int]]:
    """Processor time of each rank in seconds, and how often its main thread began to wait."""
    found = {}
    for one in ranks:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(one.pid)
            times = process.cpu_times()
            found[one.rank] = times.user + times.system, process.num_ctx_switches().voluntary
    return found


def _variables(text: str) -> Any:
    """The local variables of the user's frames of the main thread, as py-spy prints them."""
    try:
        main = next(t for t in json.loads(text) if t.get("thread_name") == "MainThread")
        return [frame.get("locals") for frame in main["frames"] if is_user_code(frame["filename"])]
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError):
        return None


def _moved(first: _Look, second: _Look, switches: Mapping[int, int]) -> list[int]:
    """The ranks that issued or completed a collective, or left the one in which they were.

    Parameters
    ----------
    switches
        How often the main thread of each rank gave up its processor in between.
    """
    moved = {
        rank
        for rank, data in second.recorders.items()
        if rank in first.recorders and _counts(data) != _counts(first.recorders[rank])
    }
    for rank in first.stacks.keys() & second.stacks.keys() - second.recorders.keys():
        waits = waits_in(first.stacks[rank])
        if waits and (
            first.stacks[rank] != second.stacks[rank]
            or first.variables.get(rank) != second.variables.get(rank)
            or switches.get(rank, 0) >= _WOKE
        ):
            moved.add(rank)
    return sorted(moved)


def _plain(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _counts(data: bytes) -> Any:
    return _plain(data).get("pg_status")


def _dumps(recorders: Mapping[int, bytes], notes: list[str]) -> list[Columns]:
    found = []
    for rank, data in sorted(recorders.items()):
        try:
            found.append(columns.parse(data, rank, f"debug server of rank {rank}"))
        except FormatError as error:
            notes.append(f"the recorder of rank {rank} was left out: {error}")
    return found


def _blocked_s(recorders: Mapping[int, bytes]) -> dict[int, float]:
    """How long ago each rank issued its oldest call that is not complete, by this host's clock."""
    now, found = time.time(), {}
    for rank, data in recorders.items():
        entries = _plain(data).get("entries")
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict) or entry.get("retired"):
                continue
            created = entry.get("time_created_ns")
            if isinstance(created, int) and 0 <= now - created / 1e9 < 1e6:
                found[rank] = now - created / 1e9
            break
    return found


def _seen(look: _Look, store: sources.Store) -> str:
    """One line about what was used."""
    used = []
    if look.stacks:
        used.append(f"stacks of {ranks_text(look.stacks)}")
    if look.recorders:
        used.append(f"Flight Recorders of {ranks_text(look.recorders)}")
    if store.joined:
        used.append(f"the store ({ranks_text(store.joined)} joined)")
    return "used: " + ", ".join(used)


def _missing(
    ranks: Sequence[RankProcess],
    tool: str | None,
    store: sources.Store,
    address: tuple[str, int] | None,
    problems: Sequence[str],
    world: int,
    look: _Look,
) -> list[str]:
    """What is missing and how to get it, one line each."""
    lines = list(dict.fromkeys(problems))[:1]
    if problems:
        lines.append(
            "py-spy needs the right to trace these processes: the same user and "
            "kernel.yama.ptrace_scope=0, or root; in a container the capability SYS_PTRACE"
        )
    if ranks and tool is None:
        lines.append(f"stacks of ranks without a debug server need py-spy: {_INSTALL}")
    if address is not None and store.problem:
        lines.append(f"the store at {address[0]}:{address[1]} was not read: {store.problem}")
    elsewhere = sorted(set(range(world)) - look.stacks.keys() - look.recorders.keys())
    if elsewhere and ranks:
        lines.append(
            f"nothing was seen of {ranks_text(elsewhere)}: run this on their host, too, or start "
            "debug servers"
        )
    if store.joined and (absent := sorted(set(range(world)) - set(store.joined))):
        lines.append(f"{ranks_text(absent)} did not join the process group")
    if not look.recorders and not any(map(framework_of, look.stacks.values())):
        lines.append(f"no Flight Recorder could be read: {_NEXT_TIME}")
    return lines
