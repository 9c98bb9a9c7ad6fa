"""A collective with tensors of another data type on one rank."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="dtype-differs",
    title="tensors of different data type in one collective",
    symptoms=("D.2.4", "D.1.1"),
    n=3,
    sees="""
        A counter or metric that was summed over the ranks is absurd: zero, or a number with many
        digits. No rank raised. With types of unequal size the processes die instead.
    """,
    why="""
        The backend transfers only bytes. A rank that holds integers adds the bit patterns of its
        peers' floats as integers, and they read its integers as floats. The type often differs
        because one rank took the default of a branch: `torch.tensor(0)` is an integer,
        `torch.tensor(0.0)` is not.
    """,
    broken="""
        scores = [torch.tensor([0.9, 0.8]), torch.tensor([0.7]), torch.tensor([])][rank]
        if len(scores) > 0:
            total = scores.sum()
        else:
            total = torch.tensor(0, dtype=torch.int32)
        dist.all_reduce(total)
        print("sum of scores", total.item())
    """,
    fixed="""
        scores = [torch.tensor([0.9, 0.8]), torch.tensor([0.7]), torch.tensor([])][rank]
        total = scores.sum()
        dist.all_reduce(total)
        print("sum of scores", total.item())
    """,
    proof="assert abs(total.item() - 2.4) < 1e-5",
    expected=Expected(ranks=(2,), lines={0: 6, 1: 6, 2: 6}),
    fixes=(Advice("fix distributed API usage", "cast to one dtype on every rank before {op}"),),
    gloo=("op.preamble.length <= op.nbytes",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        With NCCL it does not fail either: the reduced value looks like an overflow. Mixed
        precision on some ranks only, float16 against float32, hangs or returns garbage.
    """,
    apart={
        "shape-differs": "the number or layout of the elements differs",
        "dtype-not-supported": "the type is the same and the backend cannot reduce it",
    },
    references=(
        Reference(
            "Request that all_reduce check for one data type",
            "https://github.com/pytorch/pytorch/issues/150248",
        ),
    ),
)
