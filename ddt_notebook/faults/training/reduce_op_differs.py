"""Ranks reduce with different operations."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="reduce-op-differs",
    title="ranks reduce with different operations",
    symptoms=("D.2.4",),
    n=3,
    sees="""
        The reduced value is neither the sum nor the maximum, and it differs from rank to rank
        although an all_reduce should leave the same everywhere.
    """,
    why="""
        Every rank applies its own operation to the pieces that pass through it. Nothing in the
        protocol says which operation was asked for, so a rank that passes another one mixes both
        into the result.
    """,
    broken="""
        def synchronise(value, how):
            tensor = torch.tensor([value])
            dist.all_reduce(tensor, op=how)
            return tensor.item()

        longest = float(10 + rank)
        how = dist.ReduceOp.SUM if rank == 0 else dist.ReduceOp.MAX
        longest = synchronise(longest, how)
        print("longest sequence", longest)
    """,
    fixed="""
        def synchronise(value, how):
            tensor = torch.tensor([value])
            dist.all_reduce(tensor, op=how)
            return tensor.item()

        longest = float(10 + rank)
        longest = synchronise(longest, dist.ReduceOp.MAX)
        print("longest sequence", longest)
    """,
    proof="assert longest == 10 + world_size - 1",
    expected=Expected(ranks=(0,), lines={0: 3, 1: 3, 2: 3}),
    fixes=(
        Advice("fix distributed API usage", "pass the same reduce operation to {op} on every rank"),
    ),
    cluster="""
        No backend reports a message or a timeout. It shows as a metric that differs between ranks,
        or as a gradient norm that drops when the operation was meant to be a mean.
    """,
    apart={"different-collectives": "the ranks call two different functions"},
    references=(
        Reference(
            "torch.distributed: reduce operations",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.ReduceOp",
        ),
    ),
)
