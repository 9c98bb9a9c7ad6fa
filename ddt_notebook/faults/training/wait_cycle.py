"""Ranks wait for each other in calls of different kinds."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="wait-cycle",
    title="a message and a collective wait for each other",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=2,
    sees="""
        One rank waits for a message, the other for a barrier or an all_reduce. Both calls have
        their counterpart in the code, just not where the other rank is.
    """,
    why="""
        The sender would send after the collective, but the collective needs the receiver, and the
        receiver does not come before it has its message. Each call is right by itself; their
        order closes a circle.
    """,
    broken="""
        activations = torch.zeros(4)
        if rank == 0:
            activations += 1.0
            dist.barrier()
            dist.send(activations, dst=1)
        else:
            dist.recv(activations, src=0)
            dist.barrier()
        print(activations.sum().item())
    """,
    fixed="""
        activations = torch.zeros(4)
        if rank == 0:
            activations += 1.0
            dist.send(activations, dst=1)
        else:
            dist.recv(activations, src=0)
        dist.barrier()
        print(activations.sum().item())
    """,
    proof="assert activations.sum().item() == 4.0",
    expected=Expected(ranks=(0, 1), lines={0: 4, 1: 7}),
    fixes=(
        Advice(
            "fix behavior logic",
            "order the calls so that every rank comes to them in the same sequence",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        Pipeline schedules with a gradient exchange between stages run into it when one stage does
        its all_reduce before it has passed on the last activation.
    """,
    apart={
        "both-sides-wait": "there, all waiting calls are messages",
        "groups-in-opposite-order": "there, all waiting calls are collectives of two groups",
    },
    references=(
        Reference(
            "A pipeline with a skip connection whose batched messages wait for each other",
            "https://github.com/pytorch/PiPPy/issues/969",
        ),
    ),
)
