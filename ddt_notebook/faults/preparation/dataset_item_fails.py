"""One item of the data cannot be read, and only one rank meets it."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="dataset-item-fails",
    title="an item of the dataset raises on the one rank that reads it",
    symptoms=("C.2",),
    views=("stacks",),
    n=3,
    sees="""
        One rank raises in the middle of an epoch, from within the dataset or from joining its items
        into a batch. The others wait in the backward pass and later report that the connection was
        closed.
    """,
    why="""
        The sampler gives every rank its own part of the data, so only one rank reads a broken
        record. The exception ends the loop there; the others have a good batch and wait for
        gradients that will never come.
    """,
    broken="""
        from torch.utils.data import DataLoader, Dataset, DistributedSampler

        records = [f"{i},{i % 3}" for i in range(24)]
        records[13] = "13,"

        class Records(Dataset):
            def __len__(self):
                return len(records)
            def __getitem__(self, index):
                number, label = records[index].split(",")
                return torch.tensor([float(number)]), int(label)

        data = Records()
        sampler = DistributedSampler(data, shuffle=False)
        model = DDP(torch.nn.Linear(1, 3))
        for x, y in DataLoader(data, batch_size=2, sampler=sampler):
            torch.nn.functional.cross_entropy(model(x), y).backward()
    """,
    fixed="""
        from torch.utils.data import DataLoader, Dataset, DistributedSampler

        records = [f"{i},{i % 3}" for i in range(24)]
        records[13] = "13,"
        usable = [record for record in records if not record.endswith(",")]

        class Records(Dataset):
            def __len__(self):
                return len(usable)
            def __getitem__(self, index):
                number, label = usable[index].split(",")
                return torch.tensor([float(number)]), int(label)

        data = Records()
        sampler = DistributedSampler(data, shuffle=False)
        model = DDP(torch.nn.Linear(1, 3))
        for x, y in DataLoader(data, batch_size=2, sampler=sampler):
            torch.nn.functional.cross_entropy(model(x), y).backward()
    """,
    proof="assert len(data) == 23 and torch.isfinite(model.module.weight.grad).all()",
    expected=Expected(ranks=(1,), waiting=(0, 2), lines={0: 17, 1: 11, 2: 17}),
    fixes=(
        Advice(
            "fix behavior logic",
            "never skip an item on one rank only: the ranks would make different numbers of steps; "
            "return a substitute from the dataset, or pass a collate_fn that pads",
        ),
        Advice(
            "fix behavior logic",
            "look at all items once before training, on one process, and leave broken ones out "
            "for all ranks alike",
        ),
        Advice(
            "fix dependency installation/version",
            "if the item is not damaged, install another version of the library that decodes it",
        ),
    ),
    gloo=("Connection closed by peer",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The job stops each epoch at another step (the order is shuffled) and on another rank; the
        traceback that matters is in the log of that rank alone, above the messages about a lost
        connection of all others.
    """,
    apart={"dataloader-worker": "a separate process makes the item and died"},
    references=(
        Reference(
            "torch.utils.data: how batches are loaded",
            "https://docs.pytorch.org/docs/stable/data.html",
        ),
    ),
    in_source=False,
)
