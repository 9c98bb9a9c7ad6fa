"""A loader yields no batch on some ranks, because their part is smaller than one batch."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="no-batches-on-a-rank",
    title="a loader without a single batch",
    symptoms=("C.6", "C.7"),
    views=("partition",),
    sees="""
        The epochs end at once. Nothing was trained, and no message appears; a mean over the losses
        fails with a division by zero, or keeps its initial value.
    """,
    why="""
        The data set is divided among the ranks first, and the part of a rank into batches
        afterwards. With drop_last=True an incomplete batch is left out. If the part is smaller
        than one batch, nothing remains: what was enough for one process is not enough for eight.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(10.0).reshape(10, 1))
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        steps = 0
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
                steps += 1
        print(f"trained for {steps} steps")
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(10.0).reshape(10, 1))
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=8 // world_size, sampler=sampler, drop_last=True)
        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        steps = 0
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
                steps += 1
        print(f"trained for {steps} steps")
    """,
    proof="assert steps == 3",
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "make the batch of each rank smaller (the global one divided by the world size), or "
            "leave drop_last out",
        ),
        Advice(
            "fix distributed API usage",
            "check that len(loader) is at least 1 on every rank before the loop, and raise if not",
        ),
        Advice(
            "fix device assignment",
            "run fewer ranks on a data set as small as this one",
        ),
        Advice(
            "fix communication configuration",
            "check that the world size is the intended one: a larger one makes each part smaller",
        ),
    ),
    cluster="""
        The job ends successfully after a few seconds and writes a checkpoint that equals its
        initial weights. If only some ranks have no batch, the others wait in their first gradient
        exchange until the timeout.
    """,
    apart={
        "uneven-iterations": "some ranks have more batches than others, and wait for them",
        "shard-gaps": "samples are lost by wrong limits",
    },
    references=(
        Reference(
            "DataLoader: drop_last",
            "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",
        ),
    ),
    in_source=False,
)
