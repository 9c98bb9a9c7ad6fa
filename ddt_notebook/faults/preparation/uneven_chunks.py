"""Data that cannot be split evenly is scattered."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="uneven-chunks",
    title="chunks of unequal size are scattered",
    symptoms=("C.7",),
    views=("stacks",),
    n=2,
    sees="""
        The distribution of the data raises on rank 0: a tensor size is invalid. It depends on the
        number of samples whether it happens.
    """,
    why="""
        scatter sends every rank a tensor of the same size. `chunk` and `split` make the last piece
        shorter when the number of samples is not a multiple of the number of ranks, and fewer
        pieces than asked for when there are very few.
    """,
    broken="""
        samples = torch.arange(14.0).reshape(7, 2)
        mine = torch.empty(4, 2)
        if rank == 0:
            dist.scatter(mine, scatter_list=list(samples.chunk(world_size)), src=0)
        else:
            dist.scatter(mine, src=0)
        print(mine.shape)
    """,
    fixed="""
        samples = torch.arange(14.0).reshape(7, 2)
        mine = torch.empty(4, 2)
        if rank == 0:
            padded = torch.cat([samples, samples[: -len(samples) % world_size]])
            dist.scatter(mine, scatter_list=list(padded.chunk(world_size)), src=0)
        else:
            dist.scatter(mine, src=0)
        print(mine.shape)
    """,
    proof="assert mine[0, 0].item() == 8.0 * rank",
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 4, 1: 6}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "split into chunks of equal size, one for each rank",
        ),
    ),
    gloo=("ProcessGroupGloo::scatter: invalid tensor size at index",),
    nccl=("ProcessGroupNCCL::scatter: invalid tensor size at index",),
    cluster="""
        A job that ran with eight processes fails with six. Rank 0 raises; the others report a
        closed connection or wait.
    """,
    apart={"shape-differs": "the ranks' own tensors differ, and nothing is checked"},
    references=(
        Reference(
            "Request for gather operations with unequal contributions",
            "https://github.com/pytorch/pytorch/issues/23299",
        ),
    ),
    in_source=False,
)
