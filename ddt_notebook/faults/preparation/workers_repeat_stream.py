"""Every worker of a loader yields the whole stream."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="workers-repeat-stream",
    title="every worker of a loader yields the whole stream",
    symptoms=("C.6",),
    sees="""
        With num_workers above 1 an epoch becomes longer instead of shorter, by exactly that
        factor. Each sample comes several times, in batches that follow each other.
    """,
    why="""
        Each worker is a process with a copy of the data set, and runs its __iter__ to the end. A
        data set with indices is divided by the loader, which gives each worker its indices; an
        iterable one has to skip what the other workers yield.
    """,
    broken="""
        from torch.utils.data import DataLoader, IterableDataset

        class Stream(IterableDataset):
            def __iter__(self):
                for n in range(rank, 96, world_size):
                    yield torch.tensor([float(n)])

        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
        count = 0
        for x in DataLoader(Stream(), batch_size=8, num_workers=2):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            count += len(x)
    """,
    fixed="""
        from torch.utils.data import DataLoader, IterableDataset, get_worker_info

        class Stream(IterableDataset):
            def __iter__(self):
                worker = get_worker_info()
                first = rank * worker.num_workers + worker.id
                for n in range(first, 96, world_size * worker.num_workers):
                    yield torch.tensor([float(n)])

        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
        count = 0
        for x in DataLoader(Stream(), batch_size=8, num_workers=2):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            count += len(x)
    """,
    proof="assert count == 96 // world_size",
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "in __iter__ let worker w of n yield only what is its own: "
            "itertools.islice(samples, w.id, None, w.num_workers) with w = get_worker_info()",
        ),
        Advice(
            "fix distributed API usage",
            "divide by rank and by worker together: part rank * num_workers + id of world_size * "
            "num_workers",
        ),
    ),
    cluster="""
        It shows when the number of workers is tuned for speed: more workers, and the epoch takes
        the same time or longer. Progress counted in epochs is wrong by that factor, and so is the
        schedule of the learning rate.
    """,
    apart={"iterable-not-sharded": "the ranks, not the workers, get the same samples"},
    references=(
        Reference(
            "Data is duplicated with several workers and streaming",
            "https://github.com/huggingface/datasets/issues/3423",
        ),
        Reference(
            "IterableDataset: dividing work among workers",
            "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",
        ),
    ),
)
