"""A rank waits for a thread that an exception has ended."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="thread-ended",
    title="a rank waits for a thread that an exception has ended",
    symptoms=("D.2.1", "C.2"),
    views=("stacks",),
    n=2,
    sees="""
        One rank stands in `queue.get()` or `Event.wait()`, the others in a collective, and no rank
        uses its processor. Long before, a traceback "Exception in thread" went by in the output of
        that rank.
    """,
    why="""
        An exception in a thread ends this thread alone. The main thread does not hear of it: it
        waits for the next batch, which nobody puts into the queue any more.
    """,
    broken="""
        import queue
        import threading

        def read(rows):
            for row in rows:
                batches.put(torch.tensor([float(row)]))
            batches.put(None)

        batches = queue.Queue()
        rows = ["0.5", "1.5", "n/a" if rank == 1 else "2.5", "3.5"]
        threading.Thread(target=read, args=(rows,), daemon=True).start()
        total = torch.zeros(1)
        while (batch := batches.get()) is not None:
            dist.all_reduce(batch)
            total += batch
        print(total.item())
    """,
    fixed="""
        import queue
        import threading

        def read(rows):
            for row in rows:
                value = float("nan") if row == "n/a" else float(row)
                batches.put(torch.tensor([value]).nan_to_num())
            batches.put(None)

        batches = queue.Queue()
        rows = ["0.5", "1.5", "n/a" if rank == 1 else "2.5", "3.5"]
        threading.Thread(target=read, args=(rows,), daemon=True).start()
        total = torch.zeros(1)
        while (batch := batches.get()) is not None:
            dist.all_reduce(batch)
            total += batch
        print(total.item())
    """,
    proof="assert total.item() == 13.5",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 14, 1: 13}),
    fixes=(
        Advice(
            "fix behavior logic",
            "mend what the thread raised; in the thread, catch every exception, put it into the "
            "queue, and raise it in the main thread, so that the rank fails at once",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The thread that died read from a store of its own host, so one rank of hundreds stands
        still, and its traceback is far up in the log of that rank.
    """,
    apart={
        "rank-too-slow": "the missing rank works, and its work ends",
        "dataloader-worker": "a process reads the data, and its error reaches the main process",
        "file-never-appears": "the rank waits for another rank's file",
    },
    references=(
        Reference(
            "threading.excepthook: exceptions of threads",
            "https://docs.python.org/3/library/threading.html#threading.excepthook",
        ),
    ),
    in_source=False,
)
