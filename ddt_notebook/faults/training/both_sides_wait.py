"""Both ranks of an exchange receive first, or send first."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="both-sides-wait",
    title="all ranks of an exchange receive before they send",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        A ring or a swap of tensors between neighbours hangs at its first message, on all ranks in
        the same line.
    """,
    why="""
        `recv` blocks until the message arrives. If every rank begins with it, no rank reaches
        `send`. If every rank begins with `send`, each may wait for its receiver; whether it does
        depends on the backend and on the size of the tensor.
    """,
    broken="""
        def shift(block):
            received = torch.empty_like(block)
            dist.recv(received, src=(rank - 1) % world_size)
            dist.send(block, dst=(rank + 1) % world_size)
            return received

        keys = torch.full((4,), float(rank))
        for step in range(world_size - 1):
            keys = shift(keys)
        print(keys[0].item())
    """,
    fixed="""
        def shift(block):
            received = torch.empty_like(block)
            sending = dist.isend(block, dst=(rank + 1) % world_size)
            dist.recv(received, src=(rank - 1) % world_size)
            sending.wait()
            return received

        keys = torch.full((4,), float(rank))
        for step in range(world_size - 1):
            keys = shift(keys)
        print(keys[0].item())
    """,
    proof="assert keys[0].item() == (rank + 1) % world_size",
    expected=Expected(ranks=(0, 1, 2), lines={0: 3, 1: 3, 2: 3}),
    fixes=(
        Advice(
            "fix behavior logic",
            "let one side send while the other receives, or use isend/irecv or batch_isend_irecv "
            "and wait afterwards",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        On NCCL a pair that sends first hangs as well, although the same code with small tensors ran
        on gloo. It occurs in ring attention and in pipeline stages.
    """,
    apart={
        "message-without-partner": "one side never sends or never receives",
        "wait-cycle": "a collective is part of the cycle",
    },
    references=(
        Reference(
            "The order of send and recv can deadlock; group them",
            "https://github.com/NVIDIA/nccl/issues/479",
        ),
        Reference(
            "Why every send must be matched by a recv before the next step",
            "https://github.com/pytorch/pytorch/pull/11275",
        ),
    ),
)
