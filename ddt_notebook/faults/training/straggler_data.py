"""One rank's batches come late: the others wait for it in every step."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="straggler-data",
    title="one rank's data comes late, and all ranks wait for it",
    symptoms=("D.2.3",),
    views=("timeline", "partition"),
    sees="""
        The result is right, but a step takes much longer than on one device. Most ranks spend the
        time inside the gradient exchange; processors or GPUs are hardly used.
    """,
    why="""
        A step ends when the gradients of all ranks have been averaged, so it takes as long as it
        takes the slowest rank. If the samples of one rank are longer, lie on a slower disk or are
        prepared by fewer workers, its batches arrive late, and everyone waits.
    """,
    broken="""
        import time
        from torch.utils.data import DataLoader, Dataset, DistributedSampler

        class Clips(Dataset):
            def __len__(self):
                return 96
            def __getitem__(self, index):
                time.sleep(0.008 if index % 2 else 0.0005)
                return torch.full((4,), index / 96)

        data = Clips()
        sampler = DistributedSampler(data, shuffle=False)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        started = time.monotonic()
        for batch in DataLoader(data, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
        took = time.monotonic() - started
    """,
    fixed="""
        import time
        from torch.utils.data import DataLoader, Dataset, DistributedSampler

        class Clips(Dataset):
            def __init__(self):
                self.ready = [torch.full((4,), index / 96) for index in range(96)]
            def __len__(self):
                return 96
            def __getitem__(self, index):
                return self.ready[index]

        data = Clips()
        sampler = DistributedSampler(data, shuffle=False)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        started = time.monotonic()
        for batch in DataLoader(data, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
        took = time.monotonic() - started
    """,
    proof="assert took < 0.3",
    expected=Expected(ranks=(1,), waiting=(0,), lines={1: 16}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "spread the slow samples over all ranks (shuffle before dividing, sort by length and "
            "deal out), so that no rank {rank} gets all of them",
        ),
        Advice(
            "change hardware",
            "put the data of rank {rank} on storage as fast as that of the others, or copy it to "
            "a local disk before training",
        ),
        Advice(
            "fix behavior logic",
            "prepare batches ahead: num_workers > 0, prefetch_factor, persistent_workers=True",
        ),
    ),
    cluster="""
        GPU use is low and even on all ranks, as those that wait for NCCL count as busy or idle
        depending on the tool. In a trace, one rank has long gaps before its forward pass, and the
        others have an all_reduce of the same length.
    """,
    apart={
        "straggler-compute": "the loader is quick, and the work on the batch takes longer",
        "dataloader-starves": "every rank waits for its data, not for another rank",
    },
    references=(
        Reference(
            "Straggler detection across processes",
            "https://github.com/pytorch/pytorch/issues/71303",
        ),
        Reference(
            "DataLoader: loading in several processes",
            "https://docs.pytorch.org/docs/stable/data.html#single-and-multi-process-data-loading",
        ),
    ),
    in_source=False,
)
