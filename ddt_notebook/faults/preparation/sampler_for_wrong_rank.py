"""A sampler gets the wrong rank, or the wrong number of ranks."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="sampler-for-wrong-rank",
    title="a sampler that divides for other ranks than there are",
    symptoms=("C.7", "D.2.2"),
    views=("partition",),
    sees="""
        Each rank gets a part of the data, as planned, and the number of batches is right. But the
        ranks see the same samples, a part of the data is never used, and the model is worse than
        the same number of epochs would make it on one device.
    """,
    why="""
        DistributedSampler gives out the part that belongs to its own rank argument. If that is a
        constant (often 0, from a version for one device) or taken from a variable that is equal on
        all ranks, every rank gets the same part. With num_replicas larger than the group, no rank
        gets the parts of the ranks that do not exist.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(32.0).reshape(32, 1))
        node = 0
        sampler = DistributedSampler(data, num_replicas=2, rank=node, shuffle=False)
        loader = DataLoader(data, batch_size=4, sampler=sampler)

        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        seen = torch.zeros(32)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            seen[x.long().flatten()] += 1
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(32.0).reshape(32, 1))
        sampler = DistributedSampler(data, shuffle=False)
        loader = DataLoader(data, batch_size=4, sampler=sampler)

        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        seen = torch.zeros(32)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            seen[x.long().flatten()] += 1
    """,
    proof="""
        total = seen.clone()
        dist.all_reduce(total)
        assert total.tolist() == [1.0] * 32
    """,
    expected=Expected(ranks=(1,), lines={1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "leave num_replicas and rank out, so that the sampler asks the process group, or pass "
            "dist.get_world_size() and dist.get_rank()",
        ),
        Advice(
            "fix device assignment",
            "pass the rank in the whole job, not the number of the node or of the device in it",
        ),
    ),
    cluster="""
        With several nodes the local rank is often given instead of the global one: the nodes then
        repeat each other, and each node covers the data only if num_replicas is its own number of
        GPUs. Logs look healthy; a count of the distinct sample ids of an epoch shows it.
    """,
    apart={
        "no-distributed-sampler": "nothing divides the data at all",
        "shard-overlap": "the parts are cut by hand",
    },
    references=(
        Reference(
            "DistributedSampler: num_replicas and rank",
            "https://docs.pytorch.org/docs/stable/data.html"
            "#torch.utils.data.distributed.DistributedSampler",
        ),
    ),
)
