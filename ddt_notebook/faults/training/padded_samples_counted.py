"""An evaluation counts the samples twice that the sampler repeats to fill up parts."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="padded-samples-counted",
    title="an evaluation counts repeated samples twice",
    symptoms=("D.2.4",),
    sees="""
        The accuracy of the same model on the same data changes a little with the number of ranks,
        and the number of samples that were evaluated is not that of the data set: 42 of 41.
    """,
    why="""
        DistributedSampler gives every rank the same number of samples. If the data cannot be
        divided evenly, it repeats the first ones, at most one for each rank. Training does not
        suffer; a sum over all ranks counts these samples twice.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        torch.manual_seed(0)
        data = TensorDataset(torch.randn(41, 6), torch.randint(0, 3, (41,)))
        model = torch.nn.Linear(6, 3)
        loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
        hits = torch.zeros(2)
        with torch.no_grad():
            for x, y in loader:
                hits[0] += (model(x).argmax(1) == y).sum()
                hits[1] += len(y)
        dist.all_reduce(hits)
        if rank == 0:
            print(f"accuracy {hits[0] / hits[1]:.4f} of {int(hits[1])} samples")
    """,
    fixed="""
        from torch.utils.data import DataLoader, Subset, TensorDataset

        torch.manual_seed(0)
        data = TensorDataset(torch.randn(41, 6), torch.randint(0, 3, (41,)))
        model = torch.nn.Linear(6, 3)
        loader = DataLoader(Subset(data, range(rank, len(data), world_size)), batch_size=8)
        hits = torch.zeros(2)
        with torch.no_grad():
            for x, y in loader:
                hits[0] += (model(x).argmax(1) == y).sum()
                hits[1] += len(y)
        dist.all_reduce(hits)
        if rank == 0:
            print(f"accuracy {hits[0] / hits[1]:.4f} of {int(hits[1])} samples")
    """,
    proof="assert int(hits[1]) == len(data)",
    expected=Expected(ranks=(0, 1), lines={0: 9, 1: 9}, confidence="possible"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "evaluate on `Subset(data, range(rank, len(data), world_size))`, whose parts differ by "
            "at most one sample; call the model without DDP, so that the ranks need not make "
            "equally many batches",
        ),
        Advice(
            "fix behavior logic",
            "or gather the predictions of all ranks, put them into the order of the data, and cut "
            "them to `len(dataset)` before you count",
        ),
    ),
    cluster="""
        Up to world_size - 1 samples are repeated. With 64 ranks and a test set of 1,000, that is
        24 samples: enough to change the second digit that a paper reports.
    """,
    apart={
        "shard-overlap": "more samples are on several ranks than equal parts need",
        "metric-not-reduced": "no sum over the ranks is made at all",
    },
    references=(
        Reference(
            "torch.utils.data.distributed.DistributedSampler: drop_last and padding",
            "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        ),
    ),
)
