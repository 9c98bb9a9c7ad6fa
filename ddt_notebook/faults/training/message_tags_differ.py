"""A message is sent with another tag than it is received with."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="message-tags-differ",
    title="a message is sent with one tag and received with another",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=2,
    sees="""
        The receiver waits although the sender has sent, to the right rank and with the right
        tensor. The sender may have finished long ago.
    """,
    why="""
        Tags separate several streams of messages between two ranks, and a receive accepts only
        messages with its tag. If both sides count the tag, for instance by step, and the counters
        start at different values, no message ever has the expected tag.
    """,
    broken="""
        gradient = torch.ones(8)
        if rank == 0:
            for step in range(3):
                dist.send(gradient * step, dst=1, tag=step)
        else:
            for step in range(1, 4):
                dist.recv(gradient, src=0, tag=step)
            print(gradient.sum().item())
    """,
    fixed="""
        gradient = torch.ones(8)
        if rank == 0:
            for step in range(3):
                dist.send(gradient * step, dst=1, tag=step)
        else:
            for step in range(3):
                dist.recv(gradient, src=0, tag=step)
            print(gradient.sum().item())
    """,
    proof="assert rank == 0 or gradient.sum().item() == 16.0",
    expected=Expected(ranks=(0, 1), lines={0: 4, 1: 7}),
    fixes=(Advice("fix distributed API usage", "use the same tag in the send and in its receive"),),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    cluster="""
        It occurs with gloo and MPI. NCCL has no tags, so a script that relies on them does not wait
        there, but mixes its messages up.
    """,
    apart={"message-without-partner": "the other side is not called at all"},
    references=(
        Reference(
            "torch.distributed: point-to-point communication and its tag argument",
            "https://docs.pytorch.org/docs/stable/distributed.html#point-to-point-communication",
        ),
    ),
)
