"""A rank waits for a file that no rank makes."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="file-never-appears",
    title="a rank waits for a file that no rank makes",
    symptoms=("D.2.1", "C.4"),
    views=("stacks",),
    n=2,
    options={"timeout": 2.0},
    setup=SCRATCH,
    sees="""
        Rank 0 has prepared the data and waits in a barrier. The others sleep in a loop that asks
        whether a file exists. Nothing is printed, and no rank uses its processor.
    """,
    why="""
        The file stands for a message: the others may go on once it is there. They ask for another
        name or another folder than the rank that writes it, or that rank left out the writing, for
        example because an old result was there already.
    """,
    broken="""
        import os
        import time

        def wait_for(path):
            while not os.path.exists(path):
                time.sleep(0.05)

        if rank == 0:
            with open("vocabulary.txt", "w") as file:
                file.write("the a of")
            open("vocabulary.done", "w").close()
        else:
            wait_for(".vocabulary.done")
        dist.barrier()
        words = open("vocabulary.txt").read().split()
        print(len(words), "words")
    """,
    fixed="""
        if rank == 0:
            with open("vocabulary.txt", "w") as file:
                file.write("the a of")
        dist.barrier()
        words = open("vocabulary.txt").read().split()
        print(len(words), "words")
    """,
    proof="assert len(words) == 3",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 14, 1: 6}),
    fixes=(
        Advice(
            "fix behavior logic",
            "let ranks wait for each other in `dist.barrier()` and not in a loop that asks for a "
            "file; its time limit ends a wait that nobody answers",
        ),
        Advice(
            "fix behavior logic",
            "or compare the path with that which the other rank writes, and give the loop an end",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The path is on a disk of each host, and the rank that writes the file runs on another host.
        So a job on one host runs, and the same job on several hosts hangs.
    """,
    apart={
        "file-lock-held-at-collective": "the file is there, and another rank holds its lock",
        "rank-too-slow": "the missing rank works, and its work ends",
        "path-missing": "the rank does not wait for the file and fails at once",
    },
    references=(
        Reference(
            "torch.distributed.barrier and its time limit",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.barrier",
        ),
    ),
    in_source=False,
)
