"""A send that nobody receives, or a receive to which nobody sends."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="message-without-partner",
    title="a send has no receive, or a receive has no send",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        One rank waits in a receive, often in the last round, while the others have ended. Or all
        goes well with small tensors, and with big ones a send does not return.
    """,
    why="""
        Every send needs one receive on the other rank, and every receive one send. When the two
        loops differ by one round, the last message has no partner. A small send may return
        nevertheless, because a buffer holds it, which hides the mistake.
    """,
    broken="""
        batches = 4
        if rank == 0:
            for index in range(batches):
                dist.send(torch.full((2,), float(index)), dst=1 + index % 2)
        else:
            mine = []
            for index in range(batches // 2 + rank % 2):
                piece = torch.empty(2)
                dist.recv(piece, src=0)
                mine.append(piece[0].item())
            print("got", mine)
    """,
    fixed="""
        batches = 4
        if rank == 0:
            for index in range(batches):
                dist.send(torch.full((2,), float(index)), dst=1 + index % 2)
        else:
            mine = []
            for index in range(batches // 2):
                piece = torch.empty(2)
                dist.recv(piece, src=0)
                mine.append(piece[0].item())
            print("got", mine)
    """,
    proof="assert rank == 0 or mine == [rank - 1.0, rank + 1.0]",
    expected=Expected(ranks=(0,), waiting=(1,), lines={1: 9}),
    fixes=(
        Advice(
            "fix behavior logic",
            "pair every send with a receive on the other rank: same peer, same tag, same number "
            "of times",
        ),
        Advice(
            "fix distributed API usage",
            "send an end mark or the number of messages first, and let the receiver obey it",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        A pipeline stands still after the last micro-batch, or the job does not end although the
        training has. Messages that are not awaited can also meet those of the next step.
    """,
    apart={
        "message-tags-differ": "both sides are called, with different tags",
        "both-sides-wait": "both sides wait for each other",
    },
    references=(
        Reference(
            "Interleaved isend and irecv that never meet",
            "https://github.com/pytorch/pytorch/issues/109401",
        ),
    ),
)
