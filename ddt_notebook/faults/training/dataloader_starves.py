"""Every rank waits for its loader longer than it trains."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="dataloader-starves",
    title="ranks that wait for data most of the time",
    symptoms=("D.2.3",),
    views=("timeline",),
    sees="""
        Training is slow on every rank alike, and a faster device or more ranks on the same machine
        change little. The devices are busy in short bursts with long pauses in between.
    """,
    why="""
        With num_workers=0 a batch is read and prepared only when the loop asks for it, in the same
        process: while it is prepared nothing is computed, and the other way round. If preparing
        takes longer than the step, the loader sets the pace of the training.
    """,
    broken="""
        import time
        from torch.utils.data import DataLoader, Dataset, DistributedSampler

        class Images(Dataset):
            def __len__(self):
                return 256
            def __getitem__(self, index):
                time.sleep(0.004)
                return torch.full((8,), index / 256)

        data = Images()
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        steps, started = 0, time.monotonic()
        for batch in loader:
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            steps += 1
        took = time.monotonic() - started
    """,
    fixed="""
        import time
        from torch.utils.data import DataLoader, Dataset, DistributedSampler

        class Images(Dataset):
            def __init__(self):
                self.kept = [torch.full((8,), index / 256) for index in range(256)]
            def __len__(self):
                return 256
            def __getitem__(self, index):
                return self.kept[index]

        data = Images()
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        steps, started = 0, time.monotonic()
        for batch in loader:
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            steps += 1
        took = time.monotonic() - started
    """,
    proof="assert steps == 32 and took < 32 * 4 * 0.004",
    expected=Expected(ranks=(0, 1), lines={0: 16, 1: 16}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "load ahead in separate processes: num_workers > 0, persistent_workers=True, and "
            "pin_memory=True with a GPU",
        ),
        Advice(
            "fix batch size/data partition",
            "prepare what is costly once (decode, resize, tokenise) and keep the result, instead "
            "of in each epoch",
        ),
        Advice(
            "fix dependency installation/version",
            "where decoding takes the time, see that the library for it is a fast build (jpeg by "
            "libjpeg-turbo, video by a decoder with hardware support)",
        ),
        Advice(
            "change hardware",
            "put the data on faster storage, or give the ranks more processors for their loaders",
        ),
    ),
    cluster="""
        GPU use swings between 0 and 100 % in the rhythm of the steps on all GPUs at once. The time
        until the first batch of an epoch is especially long. On shared storage it gets worse with
        each node that joins.
    """,
    apart={"straggler-data": "the loader of one rank is late, and the others wait for it"},
    references=(
        Reference(
            "DataLoader: loading in several processes",
            "https://docs.pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading",
        ),
        Reference(
            "Performance tuning guide: asynchronous data loading",
            "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
        ),
    ),
    in_source=False,
)
