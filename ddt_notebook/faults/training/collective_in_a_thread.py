"""A thread enters collectives of the group that the main threads use."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="collective-in-a-thread",
    title="a thread enters collectives of the group that the main threads use",
    symptoms=("D.2.1", "D.1.1"),
    views=("stacks", "collectives"),
    n=2,
    sees="""
        All goes well until the first checkpoint or evaluation in the background. Then ranks stand
        in collectives that do not belong together, or gloo ends one with "Received data size
        doesn't match expected size". With luck, the sizes fit, and sums are wrong.
    """,
    why="""
        Collectives of one group meet in the order in which each rank enters them, whichever
        thread does it. A thread enters its collective at a moment of its own, and often on one
        rank only; it takes the place of a collective of the main thread there.
    """,
    broken="""
        import threading

        def save(step):
            time.sleep(0.05)
            dist.barrier()

        weights = torch.zeros(4)
        for step in range(6):
            gradient = torch.full((4,), float(rank))
            dist.all_reduce(gradient)
            weights -= gradient
            if rank == 0 and step == 2:
                saving = threading.Thread(target=save, args=(step,), daemon=True)
                saving.start()
            time.sleep(0.2)
    """,
    fixed="""
        import threading

        def save(step):
            time.sleep(0.05)
            dist.barrier(group=savers)

        savers = dist.new_group()
        weights = torch.zeros(4)
        for step in range(6):
            gradient = torch.full((4,), float(rank))
            dist.all_reduce(gradient)
            weights -= gradient
            if step == 2:
                saving = threading.Thread(target=save, args=(step,), daemon=True)
                saving.start()
            time.sleep(0.2)
        saving.join()
    """,
    proof="assert weights.tolist() == [-6.0] * 4 and not saving.is_alive()",
    setup="import time",
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 5, 1: 10}),
    fixes=(
        Advice(
            "fix behavior logic",
            "take {op} out of the thread: let the main thread of every rank enter it when the "
            "thread has ended",
        ),
        Advice(
            "fix distributed API usage",
            "or start the thread on every rank, and give it a group of its own, made by "
            "`dist.new_group()` on every rank",
        ),
    ),
    gloo=("Received data size doesn't match expected size",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The job stands still some steps after a checkpoint, at another step each time. The Flight
        Recorder shows two threads in the entries of one rank.
    """,
    apart={
        "collective-under-rank-condition": "the main thread enters the collective",
        "thread-ended": "an exception has ended the thread",
        "different-collectives": "only main threads enter collectives",
    },
    references=(
        Reference(
            "PyTorch: torch.distributed.new_group, on the order of collectives",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.new_group",
        ),
    ),
    in_source=False,
)
