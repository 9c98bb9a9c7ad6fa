"""Finds the ranks of a job among the processes of this machine, by their environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil

from ..model import DdtError
from ..wire.job_files import NUMBERS

#: Variables that are the same for all ranks of a job.
_SAME = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")


#: Those of a rank that torchrun started.
_NUMBERS = NUMBERS[0][:2]


class CannotAttach(DdtError):
    """There is no job that can be observed."""


@dataclass(frozen=True, slots=True)
class RankProcess:
    """The process of one rank.

    Attributes
    ----------
    rank, world_size
        As its launcher passed them.
    pid
        Its process id.
    address
        Host and port of the job's store; None if the environment does not hold them.
    generation
        How often torchrun restarted the ranks before.
    """

    rank: int
    world_size: int
    pid: int
    address: tuple[str, int] | None
    generation: int


def ranks_of(pids: Iterable[int]) -> list[RankProcess]:
    """The ranks of the job to which processes belong, in ascending order.

    Parameters
    ----------
    pids
        Process ids of a launcher, whose descendants are searched, or of ranks of one job.

    Raises
    ------
    CannotAttach
        If a process does not exist or belongs to another user, or none of them is a rank.
    """
    pids = list(pids)
    found: dict[int, RankProcess] = {}
    for pid in pids:
        for process in _family(pid):
            rank = _rank_of(process)
            if rank is not None and not _is_helper(process, rank):
                found[process.pid] = rank
    if not found:
        numbers = ", ".join(map(str, pids))
        raise CannotAttach(
            f"process {numbers} and its children have no RANK and WORLD_SIZE in their environment: "
            "name the launcher (torchrun, mpirun) or a rank; below srun, those are children of "
            "slurmstepd"
        )
    last = max(rank.generation for rank in found.values())
    result = sorted(
        (rank for rank in found.values() if rank.generation == last), key=lambda one: one.rank
    )
    twice = {one.rank for one in result if sum(1 for two in result if two.rank == one.rank) > 1}
    if twice:
        raise CannotAttach(f"several processes are rank {min(twice)}: name the pid of one job only")
    return result


def _family(pid: int) -> list[psutil.Process]:
    """A process and its descendants; of a rank, its siblings of the same job as well."""
    try:
        process = psutil.Process(pid)
        if os.geteuid() not in (0, process.uids().effective):
            raise CannotAttach(f"process {pid} belongs to another user")
        if _rank_of(process) is None:
            return [process, *process.children(recursive=True)]
        parent = process.parent()
        siblings = parent.children() if parent is not None else []
        own = _job(_environment(process))
        same = [one for one in siblings if _job(_environment(one)) == own]
    except psutil.NoSuchProcess:
        raise CannotAttach(f"process {pid} does not exist on this machine") from None
    except psutil.AccessDenied:
        raise CannotAttach(f"process {pid} cannot be read") from None
    return [process, *(one for one in same if one.pid != pid)]


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        found: Mapping[str, str] = process.environ()
    except (psutil.Error, OSError):
        return {}
    return found


def _job(variables: Mapping[str, str]) -> tuple[str | None, ...]:
    return tuple(variables.get(name) for name in _SAME)


def _rank_of(process: psutil.Process) -> RankProcess | None:
    """The rank of a process; None for a launcher that another one numbered, as srun does."""
    variables = _environment(process)
    found = _rank(process.pid, variables)
    if found is None or _NUMBERS[0] in variables:
        return found
    try:
        below = [_environment(child) for child in process.children(recursive=True)]
    except psutil.Error:
        return found
    return None if any(_starts(found, variables, child) for child in below) else found


def _starts(rank: RankProcess, variables: Mapping[str, str], child: Mapping[str, str]) -> bool:
    """Whether a child with these variables is a rank that the process launched, not a helper."""
    if not set(_NUMBERS) <= set(child):
        return False
    numbers = tuple(child[name] for name in _NUMBERS)
    return numbers != (str(rank.rank), str(rank.world_size)) or (
        "TORCHELASTIC_RUN_ID" in child and "TORCHELASTIC_RUN_ID" not in variables
    )


def _rank(pid: int, variables: Mapping[str, str]) -> RankProcess | None:
    for rank, size, _ in NUMBERS:
        number, count = variables.get(rank, ""), variables.get(size, "")
        if number.isdecimal() and count.isdecimal() and int(number) < int(count) <= 10**6:
            port = variables.get("MASTER_PORT", "")
            host = variables.get("MASTER_ADDR", "")
            restarts = variables.get("TORCHELASTIC_RESTART_COUNT", "")
            return RankProcess(
                rank=int(number),
                world_size=int(count),
                pid=pid,
                address=(host, int(port)) if host and port.isdecimal() else None,
                generation=int(restarts) if restarts.isdecimal() else 0,
            )
    return None


def _is_helper(process: psutil.Process, rank: RankProcess) -> bool:
    """Whether a rank started the process, such as a worker of a DataLoader."""
    try:
        parent = process.parent()
    except psutil.Error:
        return False
    if parent is None:
        return False
    theirs = _rank_of(parent)
    return theirs is not None and rank.rank == theirs.rank
