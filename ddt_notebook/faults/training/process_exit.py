"""A rank's process ends itself in the middle of the work."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="process-exit",
    title="a rank's process ends itself",
    symptoms=("D.1.11",),
    views=("stacks",),
    n=3,
    sees="""
        One process is gone without a traceback; the others report that a connection was closed.
        Their messages come first in the log and look like the cause.
    """,
    why="""
        `os._exit`, or a library that ends the process because of an error, skips exceptions,
        `finally` and the closing of the group. `sys.exit` on one rank runs them, but leaves the
        others waiting as well. The peers only see that their connection breaks.
    """,
    broken="""
        import os

        def check(loss):
            if loss > 100:
                print("loss has exploded, giving up", flush=True)
                os._exit(3)

        losses = torch.tensor([1.0, 5.0, 250.0 if rank == 1 else 2.0])
        for loss in losses:
            check(loss)
            dist.all_reduce(loss)
    """,
    fixed="""
        def check(loss):
            exploded = (loss > 100).float()
            dist.all_reduce(exploded, op=dist.ReduceOp.MAX)
            return bool(exploded)

        losses = torch.tensor([1.0, 5.0, 250.0 if rank == 1 else 2.0])
        reached = 0
        for loss in losses:
            if check(loss):
                print("loss has exploded on a rank, all stop")
                break
            dist.all_reduce(loss)
            reached += 1
    """,
    proof="assert reached == 2 and losses[1].item() == 5.0 * world_size",
    expected=Expected(ranks=(1,), waiting=(0, 2), lines={0: 11, 2: 11}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "let all ranks end together: reduce the condition over all ranks (all_reduce with "
            "MAX) and leave the loop on each of them; a rank that cannot go on raises an exception "
            "that says why, instead of ending its process (sys.exit, os._exit)",
        ),
        Advice(
            "fix dependency installation/version",
            "if a library ends the process, see whether its version raises an exception instead",
        ),
    ),
    gloo=("Connection closed by peer",),
    nccl=("NCCL communicator was aborted", "remote process exited or there was a network error"),
    cluster="""
        torchrun reports the exit code of the first process that failed under "Root Cause" and
        sends SIGTERM to the others. Search the log of that rank, not those of the others.
    """,
    apart={"killed-from-outside": "a signal ends the process"},
    references=(
        Reference(
            "torchrun: how errors of workers are reported",
            "https://docs.pytorch.org/docs/stable/elastic/errors.html",
        ),
    ),
)
