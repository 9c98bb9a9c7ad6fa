"""A message and a collective wait for each other."""

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
        their counterpart in the code, but the other rank has not reached it.
    """,
    why="""
        The sender would send after the collective. The collective needs the receiver, which calls
        it only after it has received the message. Each call is correct, but their order makes a
        cycle.
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
            "order the calls so that every rank reaches them in the same sequence",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        Pipeline schedules with a gradient exchange between stages run into it when one stage does
        its all_reduce before it has passed on the last activation.
    """,
    apart={
        "both-sides-wait": "all waiting calls are messages",
        "groups-in-opposite-order": "all waiting calls are collectives of two groups",
    },
    references=(
        Reference(
            "A pipeline with a skip connection whose batched messages wait for each other",
            "https://github.com/pytorch/PiPPy/issues/969",
        ),
    ),
)
