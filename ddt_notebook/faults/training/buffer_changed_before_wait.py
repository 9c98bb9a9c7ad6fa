"""A tensor is changed while it is still being sent."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="buffer-changed-before-wait",
    title="a tensor is changed while it is still being sent",
    symptoms=("D.2.4",),
    n=3,
    sees="""
        Blocks that travel round a ring arrive twice or not at all. With small blocks the result is
        mostly right, with big ones it is wrong, and never in the same way.
    """,
    why="""
        `isend` returns before the tensor has been sent, and the backend may read it until `wait()`
        returns. Values that are written into the same memory in the meantime may be sent instead of
        the old ones.
    """,
    broken="""
        keys = torch.full((1000,), float(rank))
        received = torch.empty_like(keys)
        seen = [keys[0].item()]
        for step in range(world_size - 1):
            sending = dist.isend(keys, dst=(rank + 1) % world_size)
            dist.recv(received, src=(rank - 1) % world_size)
            keys.copy_(received)
            sending.wait()
            seen.append(keys[0].item())
        print("blocks", seen)
    """,
    fixed="""
        keys = torch.full((1000,), float(rank))
        received = torch.empty_like(keys)
        seen = [keys[0].item()]
        for step in range(world_size - 1):
            sending = dist.isend(keys, dst=(rank + 1) % world_size)
            dist.recv(received, src=(rank - 1) % world_size)
            sending.wait()
            keys.copy_(received)
            seen.append(keys[0].item())
        print("blocks", seen)
    """,
    proof="assert sorted(seen) == [0.0, 1.0, 2.0]",
    expected=Expected(ranks=(0, 1, 2), lines={0: 7, 1: 7, 2: 7}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "call wait() on the handle of {op} before the tensor is written again",
        ),
        Advice(
            "fix behavior logic",
            "use two buffers in turn, so that none is written while it is being sent",
        ),
    ),
    cluster="""
        It occurs in pipelines and ring attention with one buffer too few. The loss is noisy, and
        the noise changes with the speed of the network.
    """,
    apart={
        "result-read-before-wait": "a result is read too early",
        "both-sides-wait": "the exchange does not go on at all",
    },
    references=(
        Reference(
            "torch.distributed: isend, and that the tensor must not be changed before it is done",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.isend",
        ),
    ),
)
