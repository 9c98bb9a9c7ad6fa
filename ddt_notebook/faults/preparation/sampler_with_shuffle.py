"""``shuffle=True`` left in a loader that was given a sampler."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="sampler-with-shuffle",
    title="a loader has both shuffle=True and a sampler",
    symptoms=("C.6",),
    views=("stacks",),
    sees="""
        The loader cannot be made: on every rank a ValueError says that sampler and shuffle exclude
        each other. The script ran on one process before the DistributedSampler was added.
    """,
    why="""
        `shuffle=True` asks the loader to make a RandomSampler. With a second sampler there would be
        two orders for one data set, so the loader refuses. A DistributedSampler shuffles by
        default.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(24.0).reshape(24, 1))
        sampler = DistributedSampler(data, seed=7)
        loader = DataLoader(data, batch_size=4, sampler=sampler, shuffle=True)
        seen = torch.zeros(24)
        for (x,) in loader:
            seen[x.long().flatten()] += 1
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(24.0).reshape(24, 1))
        sampler = DistributedSampler(data, seed=7)
        loader = DataLoader(data, batch_size=4, sampler=sampler)
        seen = torch.zeros(24)
        for (x,) in loader:
            seen[x.long().flatten()] += 1
    """,
    proof="""
        total = seen.clone()
        dist.all_reduce(total)
        assert total.tolist() == [1.0] * 24
    """,
    expected=Expected(ranks=(0, 1), lines={0: 5, 1: 5}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "leave `shuffle` out of the loader: the sampler shuffles, "
            "`DistributedSampler(data, shuffle=True)` by default",
        ),
    ),
    gloo=("sampler option is mutually exclusive with shuffle",),
    nccl=("sampler option is mutually exclusive with shuffle",),
    cluster="""
        All ranks end in their first seconds with the same traceback, before any collective. It is
        the first run of a script after it was moved from one GPU to several.
    """,
    apart={
        "sampler-with-iterable": "the data set has no indices that a sampler could give",
        "set-epoch-forgotten": "the sampler shuffles, but alike in every epoch",
    },
    references=(
        Reference(
            "torch.utils.data.DataLoader: sampler and shuffle",
            "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",
        ),
    ),
)
