"""Every rank trains on the whole data set, because no sampler divides it."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="no-distributed-sampler",
    title="the same data on every rank, because no sampler divides it",
    symptoms=("D.2.2", "C.7"),
    views=("partition",),
    sees="""
        Training works and the loss falls, but adding ranks makes an epoch no shorter: each rank
        has as many batches as a single process had. Nothing is printed and nothing fails.
    """,
    why="""
        DistributedDataParallel averages gradients and does not divide the data. A plain DataLoader
        goes through the whole data set in each process. So every sample counts once for each rank
        in an epoch, and the ranks repeat each other's work instead of sharing it.
    """,
    broken="""
        from torch.utils.data import DataLoader, TensorDataset

        torch.manual_seed(0)
        inputs = torch.randn(64, 4)
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        loader = DataLoader(data, batch_size=8, shuffle=True)

        seen = 0
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            seen += len(x)
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        torch.manual_seed(0)
        inputs = torch.randn(64, 4)
        data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))

        seen = 0
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            seen += len(x)
    """,
    proof="assert seen == len(data) // world_size",
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "give the loader sampler=DistributedSampler(dataset), without shuffle=True, and call "
            "sampler.set_epoch(epoch) before each epoch; without a loader, add the rank to the "
            "seed with which the program draws its samples",
        ),
        Advice(
            "fix device assignment",
            "check that each process has its own rank and its own part of the data: rank and "
            "world_size from the launcher, one device for each",
        ),
        Advice(
            "fix dependency installation/version",
            "where a library's trainer makes the loader, see that its version divides the data, "
            "and that it sees the process group",
        ),
        Advice(
            "fix framework installation/version",
            "where the trainer adds the sampler itself, update it: older versions do so for some "
            "kinds of loaders only",
        ),
    ),
    cluster="""
        The progress bar of each rank shows the length of the whole data set, and throughput in
        samples per second grows with the number of GPUs while the time for an epoch stays. With
        eight ranks the model passes over the data eight times in each epoch: it overfits early.
    """,
    apart={
        "sampler-for-wrong-rank": "there is a sampler, but it divides for other ranks",
        "iterable-not-sharded": "the data set is iterated and takes no sampler",
        "shard-overlap": "each rank has its own part, but the parts overlap",
    },
    references=(
        Reference(
            "DistributedSampler: a part of the data for each rank",
            "https://docs.pytorch.org/docs/stable/data.html"
            "#torch.utils.data.distributed.DistributedSampler",
        ),
        Reference(
            "DistributedDataParallel: dividing inputs is left to the user",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
)
