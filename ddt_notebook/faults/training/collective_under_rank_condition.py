"""A collective stands inside ``if rank …``, so the other ranks never call it."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="collective-under-rank-condition",
    title="a collective under a condition on the rank",
    symptoms=("D.2.1", "C.4"),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        The cell never ends and prints nothing. After the timeout of the group, thirty minutes by
        default, the waiting ranks fail with a message about a connection or a time limit that names
        neither the rank nor the line.
    """,
    why="""
        A collective completes only when every member of the group has called it. Here the condition
        keeps some ranks from calling it. They go on to the end of the cell, and the ranks that did
        call it wait for messages that never arrive.
    """,
    broken="""
        loss = torch.tensor([float(rank)])
        if rank == 0:
            dist.all_reduce(loss)
            print("mean loss", (loss / world_size).item())
    """,
    fixed="""
        loss = torch.tensor([float(rank)])
        dist.all_reduce(loss)
        if rank == 0:
            print("mean loss", (loss / world_size).item())
    """,
    proof="assert loss.item() == sum(range(world_size))",
    expected=Expected(ranks=(1, 2), waiting=(0,), lines={0: 3}),
    fixes=(
        Advice(
            "fix behavior logic",
            "call {op} on every rank, outside the condition on the rank; keep only what one rank "
            "alone should do (printing, saving) inside",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        All GPUs but one show 100 % use and no progress; ten minutes later the watchdog of NCCL
        ends the processes, and the log of each waiting rank names a different last operation.
    """,
    apart={"early-exit-on-rank-condition": "a rank leaves a loop or function before it"},
    references=(
        Reference(
            "torch.distributed: collectives must be called by every member of the group",
            "https://docs.pytorch.org/docs/stable/distributed.html",
        ),
    ),
)
