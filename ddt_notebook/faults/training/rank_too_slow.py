"""One rank works for longer than the others are allowed to wait."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="rank-too-slow",
    title="one rank works for longer than the others may wait",
    symptoms=("D.2.1", "C.4"),
    views=("timeline", "stacks"),
    n=3,
    options={"timeout": 2.0},
    sees="""
        Rank 0 prepares the data while the others wait in a barrier. With a small data set all is
        well; with the whole one the others fail in the barrier although nothing is wrong with
        them, and rank 0 fails soon after.
    """,
    why="""
        A collective waits for its slowest member, but not for longer than the group's time limit.
        Work that one rank does alone - download, tokenise, build an index, evaluate - counts
        against that limit for everybody else.
    """,
    broken="""
        import time

        def tokenize(documents):
            for document in documents:
                time.sleep(0.1)
            return [len(document) for document in documents]

        documents = ["some text"] * 120
        if rank == 0:
            cache = tokenize(documents)
        dist.barrier()
        print("data is ready")
    """,
    fixed="""
        import time

        def tokenize(documents):
            for document in documents:
                time.sleep(0.01)
            return [len(document) for document in documents]

        documents = ["some text"] * 120
        share = tokenize(documents[rank::world_size])
        shares = [None] * world_size
        dist.all_gather_object(shares, share)
        print("data is ready")
    """,
    proof="assert sum(map(len, shares)) == len(documents)",
    expected=Expected(ranks=(0,), waiting=(1, 2), lines={0: 5, 1: 11, 2: 11}),
    fixes=(
        Advice(
            "fix communication configuration",
            "allow more time if the work is meant to take that long: `timeout=` of "
            "init_process_group in a job; in a notebook a larger `-t SECONDS`, or none",
        ),
        Advice(
            "fix behavior logic",
            "share the work among the ranks, or do it in a separate step before the job",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The job ends after exactly thirty (gloo) or ten (NCCL) minutes, in the first barrier or
        broadcast. The log of rank 0 still shows a progress bar at that moment.
    """,
    apart={
        "collective-under-rank-condition": "the missing rank never reaches the collective",
        "rank-silent": "the missing rank reacts to nothing while it works",
    },
    references=(
        Reference(
            "A barrier that ends while rank 0 still tokenises",
            "https://github.com/hiyouga/LlamaFactory/issues/360",
        ),
        Reference(
            "Why the time limit is an argument of init_process_group",
            "https://github.com/pytorch/pytorch/issues/14376",
        ),
    ),
    in_source=False,
)
