"""Ranks call different collectives at the same time."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="different-collectives",
    title="ranks meet with different collectives",
    symptoms=("D.1.1", "D.2.4"),
    views=("stacks", "collectives"),
    n=4,
    sees="""
        The cell hangs, or fails with a lost connection, although every rank does call a
        collective. Sometimes it even ends, and numbers that should be a sum are something else.
    """,
    why="""
        Ranks are matched by the order of their calls on a group, not by the name of the operation.
        When one rank issues another operation first, the bytes that it sends are read by peers
        that expect something else, and all later calls of the group are out of step.
    """,
    broken="""
        weights = torch.full((4,), float(rank))
        if rank == 0:
            weights = torch.arange(4.0)
            dist.broadcast(weights, src=0)
        else:
            dist.barrier()
            dist.broadcast(weights, src=0)
        print(weights)
    """,
    fixed="""
        weights = torch.full((4,), float(rank))
        if rank == 0:
            weights = torch.arange(4.0)
        dist.barrier()
        dist.broadcast(weights, src=0)
        print(weights)
    """,
    proof="assert torch.equal(weights, torch.arange(4.0))",
    expected=Expected(ranks=(0,), waiting=(1, 2, 3), lines={0: 4, 1: 6, 2: 6, 3: 6}),
    fixes=(
        Advice(
            "fix behavior logic",
            "let every rank of the group issue the same collectives in the same order",
        ),
        Advice(
            "fix distributed API usage",
            "to reach some ranks only, use send and recv, or a group of these ranks, instead of "
            "{op}",
        ),
    ),
    gloo=("op.preamble.length <= op.nbytes", "Connection closed by peer"),
    nccl=(
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",
        "Detected mismatch between collectives on ranks",
    ),
    cluster="""
        With NCCL the kernels wait for each other until the watchdog ends them; the timeout messages
        of two ranks show the same SeqNum with another OpType. TORCH_DISTRIBUTED_DEBUG set to DETAIL
        compares the calls beforehand.
    """,
    apart={
        "collective-under-rank-condition": "one side calls nothing at all",
        "shape-differs": "the operation is the same and the tensors differ",
    },
    references=(
        Reference(
            "A run in which an ALLREDUCE met a BROADCAST",
            "https://github.com/speechbrain/speechbrain/issues/2401",
        ),
    ),
)
