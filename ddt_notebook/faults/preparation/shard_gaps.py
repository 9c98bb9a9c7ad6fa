"""Shards cut by hand leave out some samples."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="shard-gaps",
    title="samples that no rank ever gets",
    symptoms=("C.7",),
    views=("partition",),
    n=3,
    sees="""
        Nothing fails. A few samples, usually the last of the data set, never take part in the
        training; a count of what was processed in an epoch is smaller than the data set.
    """,
    why="""
        The length of a shard is rounded down: len(data) // world_size times world_size is less than
        len(data) unless it divides evenly. No slice contains the rest. The same happens with a
        wrong offset, or with a constant number of ranks from another job.
    """,
    broken="""
        from torch.utils.data import DataLoader, Subset, TensorDataset

        data = TensorDataset(torch.arange(50.0).reshape(50, 1))
        share = len(data) // world_size
        mine = list(range(len(data)))[rank * share:(rank + 1) * share]
        loader = DataLoader(Subset(data, mine), batch_size=4, shuffle=True)

        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        count = 0
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            count += len(x)
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(50.0).reshape(50, 1))
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))

        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        count = 0
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            count += len(x)
    """,
    proof="assert count == 17",
    expected=Expected(ranks=(0, 1, 2), lines={0: 11, 2: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "let DistributedSampler cut the shards (it repeats a few samples so that all ranks get "
            "equally many), or take every world_size-th sample: data[rank::world_size]",
        ),
    ),
    cluster="""
        With many ranks the remainder grows up to world_size - 1 samples, and it depends on the
        number of ranks: two jobs of different size train on different data. In a sorted data set
        the missing end may be a whole class.
    """,
    apart={"shard-overlap": "samples go to several ranks instead of none"},
    references=(
        Reference(
            "DistributedSampler: drop_last or padding to make parts even",
            "https://docs.pytorch.org/docs/stable/data.html"
            "#torch.utils.data.distributed.DistributedSampler",
        ),
    ),
    in_source=False,
)
