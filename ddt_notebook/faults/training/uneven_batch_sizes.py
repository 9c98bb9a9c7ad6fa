"""One rank has larger batches, so each of its steps takes longer."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="uneven-batch-sizes",
    title="larger batches on one rank, for which all ranks wait",
    symptoms=("D.2.3", "D.2.5"),
    views=("timeline", "partition"),
    sees="""
        A step takes as long as the largest batch needs, on every rank. The ranks with small
        batches spend most of the time waiting in the exchange of gradients.
    """,
    why="""
        Each rank has its own batch size, taken from the memory of the device, from a file, or from
        an argument that differs. Ranks meet after each batch, so the largest one sets the pace.
        Moreover DDP averages over ranks: a sample in a small batch counts for more.
    """,
    broken="""
        import time
        from torch.utils.data import DataLoader, Subset, TensorDataset

        data = TensorDataset(torch.randn(6600, 256))
        mine = range(0, 600) if rank == 0 else range(600, 6600)
        loader = DataLoader(Subset(data, mine), batch_size=50 if rank == 0 else 500)

        net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(),
                                  torch.nn.Linear(1024, 256))
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        sizes = []
        for epoch in range(3):
            for (x,) in loader:
                optimizer.zero_grad()
                (model(x) - x).pow(2).mean().backward()
                optimizer.step()
                sizes.append(len(x))
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.randn(6600, 256))
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=275, sampler=sampler)

        net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(),
                                  torch.nn.Linear(1024, 256))
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        sizes = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for (x,) in loader:
                optimizer.zero_grad()
                (model(x) - x).pow(2).mean().backward()
                optimizer.step()
                sizes.append(len(x))
    """,
    proof="assert set(sizes) == {275}",
    expected=Expected(ranks=(1,), waiting=(0,), lines={1: 14}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "use the same batch size on every rank; with unequal devices choose the sizes by their "
            "measured speed, and weight the loss by the number of samples",
        ),
        Advice(
            "change hardware",
            "train on devices of one kind, so that equal batches take equally long",
        ),
        Advice(
            "fix distributed API usage",
            "where batches must differ, accumulate on the ranks with small ones inside no_sync(), "
            "so that all meet after about equal work",
        ),
    ),
    cluster="""
        Memory use differs clearly between GPUs, and so do the counts of tokens or images that each
        rank logs. With sequences of varying length it comes and goes: the rank that happens to
        hold the longest one in a step makes the others wait.
    """,
    apart={"straggler-compute": "the batches are equal, and the rank does more with them"},
    references=(
        Reference(
            "DDP notes: gradients are averaged when they are ready in all processes",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
        Reference(
            "Straggler detection across processes",
            "https://github.com/pytorch/pytorch/issues/71303",
        ),
    ),
    in_source=False,
)
