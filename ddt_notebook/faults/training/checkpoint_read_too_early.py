"""Ranks that load the last checkpoint while the new one is being written."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="checkpoint-read-too-early",
    title="ranks load a checkpoint before rank 0 has written it, and get the old one",
    symptoms=("D.1.6", "D.2.4"),
    views=("stacks",),
    n=3,
    setup=SCRATCH
    + """
if rank == 0:
    torch.save(torch.zeros(4), "best.pt")
dist.barrier()
""",
    sees="""
        If an older file of that name exists, nothing is raised: after loading, the ranks report
        different results, and all but rank 0 use an older model. If there is none, all ranks but
        rank 0 raise FileNotFoundError.
    """,
    why="""
        Rank 0 needs time to save, and the others do not wait for it. A file of the same name is
        still there from before, so they load that, without an error, and go on with other weights
        than rank 0.
    """,
    broken="""
        import time

        best = torch.full((4,), 1.0)
        if rank == 0:
            time.sleep(0.6)
            torch.save(best, "best.pt")

        weights = torch.load("best.pt")
        print("testing with", weights.tolist())
    """,
    fixed="""
        import time

        best = torch.full((4,), 1.0)
        if rank == 0:
            time.sleep(0.6)
            torch.save(best, "best.pt")
        dist.barrier()

        weights = torch.load("best.pt")
        print("testing with", weights.tolist())
    """,
    proof="assert weights.tolist() == [1.0] * 4",
    expected=Expected(ranks=(1, 2), lines={0: 6, 1: 8, 2: 8}, confidence="likely"),
    fixes=(
        Advice(
            "save single-device model/weights only",
            "save on rank 0, let all ranks meet in a barrier after it, then load",
        ),
        Advice(
            "fix behavior logic",
            "load on rank 0 alone and broadcast the weights, so that all ranks have the same",
        ),
    ),
    gloo=("[Errno 2] No such file or directory: 'best.pt'",),
    nccl=("[Errno 2] No such file or directory: 'best.pt'",),
    cluster="""
        The first run of a job fails, because there is no old file; every later run works, but tests
        old weights on all ranks but rank 0.
    """,
    apart={
        "checkpoint-unreadable": "the file is read half-written, and loading fails",
        "path-missing": "no older file is there",
    },
    references=(
        Reference(
            "DDP tutorial: a barrier between saving and loading",
            "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html",
        ),
        Reference(
            "PyTorch pull request 194614: a race between reloading and removing a checkpoint",
            "https://github.com/pytorch/pytorch/pull/194614",
        ),
    ),
)
