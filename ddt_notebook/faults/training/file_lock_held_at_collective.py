"""A rank enters a collective while it holds a file's lock that another rank waits for."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="file-lock-held-at-collective",
    title="a rank enters a collective while it holds a file's lock that another rank waits for",
    symptoms=("D.2.1", "C.4"),
    views=("stacks",),
    n=2,
    setup=SCRATCH,
    sees="""
        One rank waits in a barrier. The others wait to lock a file, such as that of a cache or of
        a download. No rank computes, and nothing is printed.
    """,
    why="""
        The rank in the collective locked the file first and holds the lock until its `with` block
        ends. The others cannot enter the collective before they have had the lock, and the
        collective does not end before they enter it.
    """,
    broken="""
        import fcntl
        import os
        import time

        time.sleep(0.5 * rank)
        with open("vocabulary.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists("vocabulary.txt"):
                with open("vocabulary.txt", "w") as file:
                    file.write("the a of")
            dist.barrier()
        words = open("vocabulary.txt").read().split()
        print(len(words), "words")
    """,
    fixed="""
        import fcntl
        import os
        import time

        time.sleep(0.5 * rank)
        with open("vocabulary.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists("vocabulary.txt"):
                with open("vocabulary.txt", "w") as file:
                    file.write("the a of")
        dist.barrier()
        words = open("vocabulary.txt").read().split()
        print(len(words), "words")
    """,
    proof="assert len(words) == 3",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 11, 1: 7}),
    fixes=(
        Advice(
            "fix behavior logic",
            "end the block that holds the lock before the collective; or take no lock: let one "
            "rank do the work while the others wait in a barrier",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        Only the ranks of one host share a lock, unless the file system passes locks on to other
        hosts. So a job on one GPU of each host runs, and the same job on several GPUs hangs.
    """,
    apart={
        "rank-too-slow": "there, the missing rank works, and its work ends",
        "wait-cycle": "there, both ranks wait in calls of torch.distributed",
    },
    references=(
        Reference(
            "A loader of data sets that no longer lets ranks wait for each other's file locks",
            "https://github.com/modelscope/ms-swift/pull/5763",
        ),
    ),
)
