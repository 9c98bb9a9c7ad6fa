"""A rank returns, breaks or continues before a collective that the others call."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="early-exit-on-rank-condition",
    title="a rank leaves a function or loop before a collective",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        Training hangs at the end of an epoch. The checkpoint was written, so saving itself seems to
        work, and nothing is printed afterwards.
    """,
    why="""
        A `return`, `break` or `continue` that depends on the rank takes that rank past everything
        that follows, also past a collective some lines further down. The collective looks
        unconditional where it stands, which makes the way around it easy to overlook.
    """,
    broken="""
        import os, tempfile

        def save_checkpoint(model, path):
            if dist.get_rank() != 0:
                return
            torch.save(model.state_dict(), path)
            dist.barrier()

        torch.manual_seed(0)
        model = torch.nn.Linear(8, 2)
        path = os.path.join(tempfile.mkdtemp(), "last.pt")
        for epoch in range(2):
            save_checkpoint(model, path)
    """,
    fixed="""
        import os, tempfile

        def save_checkpoint(model, path):
            if dist.get_rank() == 0:
                torch.save(model.state_dict(), path)
            dist.barrier()

        torch.manual_seed(0)
        model = torch.nn.Linear(8, 2)
        path = os.path.join(tempfile.mkdtemp(), "last.pt")
        for epoch in range(2):
            save_checkpoint(model, path)
    """,
    proof="assert os.path.exists(path) == (rank == 0)",
    expected=Expected(ranks=(1, 2), waiting=(0,), lines={0: 7, 1: 4, 2: 4}),
    fixes=(
        Advice(
            "fix behavior logic", "let no rank leave before {op}: skip the work, not the collective"
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The log of rank 0 ends with the message that a checkpoint was saved; the other ranks are
        already in the next epoch and time out in a collective of the forward or backward pass.
    """,
    apart={
        "collective-under-rank-condition": "the collective itself stands inside the `if`",
        "collective-under-local-condition": "data and not the rank decides who leaves",
    },
    references=(
        Reference(
            "NCCL watchdog timeouts: most likely a rank did not make the call at the right time",
            "https://github.com/pytorch/pytorch/issues/118369",
        ),
    ),
)
