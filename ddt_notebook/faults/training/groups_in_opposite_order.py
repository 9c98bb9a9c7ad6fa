"""Two groups share ranks that use them in opposite order."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="groups-in-opposite-order",
    title="two groups are used in opposite order",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=4,
    sees="""
        Two ranks wait for each other, each in a collective of another group, and their
        neighbours wait for them. Every single group is used correctly.
    """,
    why="""
        A collective blocks until all members have come. One rank first serves the group of its
        row and then that of its column, another the other way round: each holds back the call
        that the other needs. It is the deadlock of two locks taken in opposite order.
    """,
    broken="""
        rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        row, column = rows[rank // 2], columns[rank % 2]
        activations, grads = torch.ones(8), torch.ones(8)
        if rank in (0, 3):
            dist.all_reduce(activations, group=row)
            dist.all_reduce(grads, group=column)
        else:
            dist.all_reduce(grads, group=column)
            dist.all_reduce(activations, group=row)
    """,
    fixed="""
        rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        row, column = rows[rank // 2], columns[rank % 2]
        activations, grads = torch.ones(8), torch.ones(8)
        dist.all_reduce(activations, group=row)
        dist.all_reduce(grads, group=column)
    """,
    proof="assert activations[0] == 2 and grads[0] == 2",
    expected=Expected(ranks=(0, 1, 2, 3), lines={0: 6, 1: 9, 2: 9, 3: 6}),
    fixes=(
        Advice("fix behavior logic", "use the groups in the same order on every rank"),
        Advice(
            "fix distributed API usage",
            "issue the calls of both groups with async_op=True and wait for them afterwards",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        It occurs when data, tensor and pipeline parallelism are combined. Each timeout names
        another group (PG ID), and only both together show the cycle. With NCCL it may depend on
        timing, since kernels of several communicators compete for the device.
    """,
    apart={
        "different-groups": "the ranks pass two groups to one collective",
        "wait-cycle": "messages are part of the cycle",
    },
    references=(
        Reference(
            "torch.distributed: using several communicators at the same time",
            "https://docs.pytorch.org/docs/stable/distributed.html#groups",
        ),
    ),
)
