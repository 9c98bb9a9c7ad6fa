"""The list of outputs does not have one tensor for each rank."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="output-list-length",
    title="the list of outputs does not have one entry for each rank",
    symptoms=("C.3",),
    views=("stacks",),
    n=3,
    sees="""
        Before the first step, a gather of sizes or statistics raises a ValueError about an output
        list. With as many processes as the author had, it works.
    """,
    why="""
        all_gather writes the tensor of rank i into entry i of a list that the caller provides. The
        list must be as long as the group; a number written into the code, or a count of GPUs on
        one machine, is right for one size of the job only.
    """,
    broken="""
        samples = list(range(rank * 10, rank * 10 + 8 + rank))
        size = torch.tensor([len(samples)])
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
        dist.all_gather(sizes, size)
        longest = max(int(s) for s in sizes)
        print("pad to", longest)
    """,
    fixed="""
        samples = list(range(rank * 10, rank * 10 + 8 + rank))
        size = torch.tensor([len(samples)])
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world_size)]
        dist.all_gather(sizes, size)
        longest = max(int(s) for s in sizes)
        print("pad to", longest)
    """,
    proof="assert longest == 10",
    expected=Expected(ranks=(0, 1, 2), lines={0: 4, 1: 4, 2: 4}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "give {op} a list with one output for each rank of the group",
        ),
    ),
    gloo=("invalid output tensor list at index 0 (expected length",),
    nccl=("Tensor list input to scatter/gather must match number of collective participants",),
    cluster="""
        It fails at once on all ranks, typically when a script moves from one machine to several:
        the list was made with the number of local GPUs.
    """,
    apart={"collective-arguments": "a collective refuses other arguments"},
    references=(
        Reference(
            "torch.distributed: all_gather",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather",
        ),
    ),
)
