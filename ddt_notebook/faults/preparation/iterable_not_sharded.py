"""An IterableDataset that gives every rank the same stream."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="iterable-not-sharded",
    title="an iterable data set that gives every rank the same samples",
    symptoms=("C.6", "D.2.2"),
    views=("partition",),
    sees="""
        Every rank works through the complete stream. No message appears, the loss falls, and more
        ranks do not make an epoch any shorter.
    """,
    why="""
        An IterableDataset has no indices, so no sampler can divide it, and DataLoader passes on
        what its __iter__ yields. Each process runs that __iter__ for itself: unless it skips what
        belongs to the other ranks, all of them get every sample.
    """,
    broken="""
        from torch.utils.data import DataLoader, IterableDataset

        class Stream(IterableDataset):
            def __iter__(self):
                for n in range(48):
                    yield torch.tensor([n / 48, 1.0])

        model = DDP(torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        count = 0
        for batch in DataLoader(Stream(), batch_size=8):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            count += len(batch)
    """,
    fixed="""
        from torch.utils.data import DataLoader, IterableDataset

        class Stream(IterableDataset):
            def __iter__(self):
                for n in range(rank, 48, world_size):
                    yield torch.tensor([n / 48, 1.0])

        model = DDP(torch.nn.Linear(2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        count = 0
        for batch in DataLoader(Stream(), batch_size=8):
            optimizer.zero_grad()
            model(batch).pow(2).mean().backward()
            optimizer.step()
            count += len(batch)
    """,
    proof="assert count == 48 // world_size",
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "let __iter__ yield only what belongs to this rank: "
            "itertools.islice(samples, rank, None, world_size)",
        ),
        Advice(
            "fix distributed API usage",
            "with num_workers > 0 divide by rank and by worker: "
            "rank * num_workers + get_worker_info().id of world_size * num_workers; with Hugging "
            "Face data sets use split_dataset_by_node",
        ),
        Advice(
            "fix communication configuration",
            "form the process group before the data set asks for its rank and world size, "
            "otherwise it assumes that this process is the only one",
        ),
        Advice(
            "fix device assignment",
            "divide by the rank in the whole job; the number of the device within a node repeats "
            "on every node",
        ),
    ),
    cluster="""
        Streaming data sets (web archives, tar shards, message queues) show it most: each node
        downloads and decodes every file. Throughput in samples looks fine, while the number of
        distinct samples per hour does not grow with the number of nodes.
    """,
    apart={
        "no-distributed-sampler": "the data set has indices, and a sampler can divide it",
        "sampler-with-iterable": "the loader refuses the sampler with an error",
    },
    references=(
        Reference(
            "Distributed training with an iterable data set",
            "https://github.com/pytorch/pytorch/issues/48702",
        ),
        Reference(
            "IterableDataset returns duplicated data using PyTorch DDP",
            "https://github.com/huggingface/datasets/issues/5360",
        ),
    ),
)
