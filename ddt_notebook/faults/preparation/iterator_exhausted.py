"""next() on an iterator that has no more batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="iterator-exhausted",
    title="a rank asks its iterator for more batches than it has",
    symptoms=("C.6", "D.1.11"),
    views=("stacks",),
    n=3,
    sees="""
        One rank raises StopIteration, with no text at all, in a loop that counts its steps. The
        others wait in the next collective, and later report a lost connection.
    """,
    why="""
        A loop with `next(batches)` must not take more steps than there are batches. The data were
        divided with a remainder, or the ranks got files of different length, so one rank has fewer
        batches than the number of steps.
    """,
    broken="""
        from torch.utils.data import DataLoader

        samples = torch.randn(40, 8)
        mine = samples[rank * 14:(rank + 1) * 14]
        batches = iter(DataLoader(mine, batch_size=2))
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(7):
            optimizer.zero_grad()
            model(next(batches)).square().mean().backward()
            optimizer.step()
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler

        samples = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
        sampler = DistributedSampler(samples, drop_last=True)
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, batch in enumerate(DataLoader(samples, batch_size=2, sampler=sampler)):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    """,
    proof="assert step == 6 and model.module.weight.grad is not None",
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={0: 10, 1: 10, 2: 10}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give every rank the same number of batches (DistributedSampler), and go over the "
            "loader itself instead of counting steps",
        ),
        Advice(
            "fix behavior logic",
            "to go on for a fixed number of steps, start over when the iterator ends, on all ranks "
            "alike; or agree on the smallest number with all_reduce(MIN)",
        ),
        Advice(
            "fix distributed API usage",
            "where uneven data is meant, train inside `with model.join():`, so that ranks without "
            "batches answer the others",
        ),
    ),
    gloo=("StopIteration",),
    nccl=("StopIteration",),
    cluster="""
        The last rank ends with an empty StopIteration, always near the end of the epoch; with
        another number of GPUs the data come out even, and the job runs through.
    """,
    apart={
        "uneven-iterations": "the rank leaves its loop quietly, and the others hang",
        "no-batches-on-a-rank": "a rank has none from the beginning",
    },
    references=(
        Reference(
            "torch.utils.data.distributed.DistributedSampler",
            "https://docs.pytorch.org/docs/stable/data.html",
        ),
        Reference(
            "Distributed training with uneven inputs: the Join context manager",
            "https://docs.pytorch.org/tutorials/advanced/generic_join.html",
        ),
    ),
    in_source=False,
)
