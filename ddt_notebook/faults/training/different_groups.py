"""Ranks pass different groups to the same collective."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="different-groups",
    title="ranks pass different groups to one collective",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        All ranks are at the same line, in the same operation with the same tensor, and wait for
        each other forever.
    """,
    why="""
        Calls meet only within a group. Two groups with the same ranks are still two groups: a call
        on one of them never meets a call on the other. This happens if one rank made another group,
        or fell back to the world group.
    """,
    broken="""
        replicas = dist.new_group(list(range(world_size)))

        class Averager:
            def __init__(self, group=None):
                self.group = group

            def average(self, tensor):
                dist.all_reduce(tensor, group=self.group)
                return tensor / world_size

        averager = Averager(replicas) if rank < 2 else Averager()
        grads = averager.average(torch.full((4,), float(rank)))
        print(grads)
    """,
    fixed="""
        replicas = dist.new_group(list(range(world_size)))

        class Averager:
            def __init__(self, group=None):
                self.group = group

            def average(self, tensor):
                dist.all_reduce(tensor, group=self.group)
                return tensor / world_size

        averager = Averager(replicas)
        grads = averager.average(torch.full((4,), float(rank)))
        print(grads)
    """,
    proof="assert grads[0].item() == 1.0",
    expected=Expected(ranks=(0, 1, 2), lines={0: 8, 1: 8, 2: 8}),
    fixes=(
        Advice(
            "fix behavior logic", "pass the same group to {op} on every rank that is to take part"
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The timeouts of the ranks name the same operation and size, but another PG ID or group name.
        Libraries that make a group for each module are a common cause.
    """,
    apart={
        "groups-in-opposite-order": "every rank would use both groups, in another order",
        "caller-not-in-group": "the caller does not belong to the group at all",
    },
    references=(
        Reference(
            "Communication hangs in a hierarchy of groups",
            "https://github.com/pytorch/pytorch/issues/130102",
        ),
    ),
)
