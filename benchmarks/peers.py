"""The same jobs with torchrun, multiprocessing's spawn, and ipyparallel."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import Any

from .common import RANKS, ROOT, check, median_of, pss_megabytes

#: Forms the group, after which a rank counts as ready, and takes three DDP steps.
FORM_GROUP = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", rank={rank}, world_size={world_size}, init_method={address!r})
dist.barrier()
"""
DDP_STEPS = """
from torch.nn.parallel import DistributedDataParallel as DDP
model = DDP(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).sum().backward()
    optimizer.step()
"""


def torchrun_ready_s() -> float:
    """From the command to the moment at which all ranks have left their first barrier."""
    program = ROOT / "benchmarks" / "peers_torchrun.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={RANKS}", str(program)]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    moments = [float(word) for word in done.stdout.split()]
    check(len(moments) == RANKS, "torchrun did not start every rank")
    return max(moments) - start


@contextmanager
def spawned_ranks() -> Iterator[tuple[list[int], float]]:
    """Yield pids of ranks in their own interpreters after three DDP steps, and when ready."""
    context = multiprocessing.get_context("spawn")
    moments, end = context.Queue(), context.Event()
    address = f"tcp://127.0.0.1:{free_port()}"
    processes = [
        context.Process(target=_spawned_rank, args=(rank, address, moments, end), daemon=True)
        for rank in range(RANKS)
    ]
    start = time.monotonic()
    for process in processes:
        process.start()
    try:
        ready = [moments.get(timeout=120) for _ in processes]
        for _ in processes:
            moments.get(timeout=120)
        yield [process.pid or 0 for process in processes], max(ready) - start
    finally:
        end.set()
        for process in processes:
            process.join(20)


def _spawned_rank(rank: int, address: str, moments: Any, end: Event) -> None:
    namespace: dict[str, Any] = {}
    exec(FORM_GROUP.format(rank=rank, world_size=RANKS, address=address), namespace)
    moments.put(time.monotonic())
    exec(DDP_STEPS, namespace)
    moments.put(time.monotonic())
    end.wait(120)


def spawn_ready_s() -> float:
    """From ``Process.start`` to the moment at which all ranks have left their first barrier."""
    with spawned_ranks() as (_, ready_s):
        return ready_s


def spawn_memory_mb() -> float:
    """Proportional memory of the spawned ranks."""
    with spawned_ranks() as (pids, _):
        return pss_megabytes(pids)


@contextmanager
def engines() -> Iterator[Any]:
    """A view on ipyparallel's engines."""
    import ipyparallel

    cluster = ipyparallel.Cluster(n=RANKS, log_level=40)
    try:
        client = cluster.start_and_connect_sync()
        yield client[:]
    finally:
        cluster.stop_cluster_sync()


def ipyparallel_ready_s() -> float:
    """From ``Cluster`` to a process group over all engines."""
    start = time.monotonic()
    with engines() as view:
        address = f"tcp://127.0.0.1:{free_port()}"
        view.scatter("rank", range(RANKS), flatten=True, block=True)
        cell = FORM_GROUP.format(rank="RANK", world_size=RANKS, address=address)
        view.execute(cell.replace("RANK", "rank"), block=True)
        return time.monotonic() - start


def ipyparallel_round_trip_s(repeats: int) -> float:
    """Median time of an empty cell on all engines."""
    with engines() as view:
        view.execute("pass", block=True)

        def once() -> float:
            start = time.perf_counter()
            view.execute("pass", block=True)
            return time.perf_counter() - start

        return median_of(once, repeats)[0]


def free_port() -> int:
    """A port on which no process listens at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
