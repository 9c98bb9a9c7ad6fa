"""An asynchronous collective that nobody waits for and not everybody joins."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="handle-not-waited",
    title="an asynchronous collective is issued on some ranks and never waited for",
    symptoms=("D.2.4",),
    n=2,
    sees="""
        At first nothing shows, and the cell ends. The tensor keeps its old value, and one of the
        next collectives fails or gives numbers that belong elsewhere.
    """,
    why="""
        With `async_op=True` the call returns a handle and goes on in the background. Only `wait()`
        shows whether it completed, and blocks if a member never joins. Without it the call stays
        open and takes the place of the next one on the group.
    """,
    broken="""
        loss = torch.tensor([float(rank + 1)])
        if rank == 0:
            handle = dist.all_reduce(loss, async_op=True)
        for step in range(3):
            weight = torch.zeros(4) + step
        print("weight", weight.sum().item())
    """,
    fixed="""
        loss = torch.tensor([float(rank + 1)])
        handle = dist.all_reduce(loss, async_op=True)
        for step in range(3):
            weight = torch.zeros(4) + step
        handle.wait()
        print("weight", weight.sum().item())
    """,
    proof="assert loss.item() == 3.0",
    expected=Expected(ranks=(1,), lines={0: 3}, confidence="possible"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "wait for the handle, and let every member of the group issue the call",
        ),
    ),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        NCCL's watchdog reports the open operation minutes later, when the code has long been
        somewhere else; its stack names the line only if the flight recorder is on.
    """,
    apart={
        "result-read-before-wait": "all ranks take part, and the value is used too early",
        "collective-under-rank-condition": "the call blocks, so the cell does not end",
    },
    references=(
        Reference(
            "torch.distributed: synchronous and asynchronous collective operations",
            "https://docs.pytorch.org/docs/stable/distributed.html#synchronous-and-asynchronous-collective-operations",
        ),
    ),
)
