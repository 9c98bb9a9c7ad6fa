"""A sampler for a data set that has no indices."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="sampler-with-iterable",
    title="a sampler for a data set that is iterated",
    symptoms=("C.6",),
    views=("stacks",),
    sees="""
        The loader cannot be made: a ValueError on every rank says that an IterableDataset takes
        no sampler option.
    """,
    why="""
        A sampler hands out indices, and an IterableDataset has none: it yields samples in its own
        order. So a loader refuses the combination. The samples have to be divided where they are
        made, in the data set's own __iter__.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

        class Lines(IterableDataset):
            def __init__(self, n):
                self.n = n
            def __len__(self):
                return self.n
            def __iter__(self):
                return iter(torch.arange(float(self.n)))

        lines = Lines(40)
        loader = DataLoader(lines, batch_size=4, sampler=DistributedSampler(lines))
        total = sum(batch.sum().item() for batch in loader)
    """,
    fixed="""
        from torch.utils.data import DataLoader, IterableDataset

        class Lines(IterableDataset):
            def __init__(self, n):
                self.n = n
            def __iter__(self):
                return iter(torch.arange(float(self.n))[rank::world_size])

        lines = Lines(40)
        loader = DataLoader(lines, batch_size=4)
        total = sum(batch.sum().item() for batch in loader)
    """,
    proof="""
        everything = torch.tensor(total)
        dist.all_reduce(everything)
        assert everything.item() == sum(range(40))
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "shard an IterableDataset by rank inside `__iter__`, without a sampler",
        ),
        Advice(
            "fix distributed API usage",
            "where the samples can be reached by number, make it a Dataset with __getitem__ and "
            "__len__, which takes a DistributedSampler",
        ),
        Advice(
            "fix device assignment",
            "in the data set's own division use the rank in the whole job, and take the workers of "
            "each rank into account",
        ),
        Advice(
            "fix communication configuration",
            "let the data set ask for rank and world size after the process group has been formed",
        ),
    ),
    gloo=("DataLoader with IterableDataset: expected unspecified sampler option",),
    nccl=("DataLoader with IterableDataset: expected unspecified sampler option",),
    cluster="""
        The job ends in its first seconds on all ranks with the same traceback, before any
        collective. It is typical of the day on which a data set in memory is replaced by a stream.
    """,
    apart={"iterable-not-sharded": "no sampler is given, and every rank gets all samples"},
    references=(
        Reference(
            "Distributed training with an iterable data set",
            "https://github.com/pytorch/pytorch/issues/48702",
        ),
        Reference(
            "IterableDataset: dividing work among workers",
            "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",
        ),
    ),
)
