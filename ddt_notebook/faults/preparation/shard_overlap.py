"""Shards cut by hand that overlap."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="shard-overlap",
    title="shards that overlap, so that some samples count twice",
    symptoms=("C.7", "D.2.2"),
    views=("partition",),
    sees="""
        Nothing fails, and the ranks have different data. Yet the ranks together process more
        samples in an epoch than the data set has: some are seen by two ranks.
    """,
    why="""
        Each rank works out its own limits, and the end of one shard lies behind the beginning of
        the next: rounding up, an offset of one too many, or a random selection with another seed
        on each rank. The samples in common weigh twice in the averaged gradient.
    """,
    broken="""
        from torch.utils.data import DataLoader, Subset, TensorDataset

        data = TensorDataset(torch.arange(60.0).reshape(60, 1))
        share = 36
        begin = rank * (len(data) - share)
        shard = Subset(data, range(begin, begin + share))
        loader = DataLoader(shard, batch_size=6)

        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        seen = torch.zeros(60)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            seen[x.long().flatten()] += 1
    """,
    fixed="""
        from torch.utils.data import DataLoader, Subset, TensorDataset

        data = TensorDataset(torch.arange(60.0).reshape(60, 1))
        share = len(data) // world_size
        begin = rank * share
        shard = Subset(data, range(begin, begin + share))
        loader = DataLoader(shard, batch_size=6)

        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        seen = torch.zeros(60)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            seen[x.long().flatten()] += 1
    """,
    proof="""
        total = seen.clone()
        dist.all_reduce(total)
        assert total.tolist() == [1.0] * 60
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "cut disjoint shards: use DistributedSampler, or data[rank::world_size]; draw a random "
            "order with one seed on all ranks before cutting",
        ),
    ),
    cluster="""
        The sum of the sample counts that the ranks log for an epoch exceeds the size of the data
        set. In an evaluation that is gathered from all ranks, the metric is computed over some
        samples twice and differs from the one of a single process.
    """,
    apart={
        "no-distributed-sampler": "every rank gets the whole data",
        "shard-gaps": "samples are lost",
        "sampler-for-wrong-rank": "a sampler cuts the parts, with a wrong rank",
    },
    references=(
        Reference(
            "DistributedSampler: disjoint parts of a data set",
            "https://docs.pytorch.org/docs/stable/data.html"
            "#torch.utils.data.distributed.DistributedSampler",
        ),
    ),
    in_source=False,
)
