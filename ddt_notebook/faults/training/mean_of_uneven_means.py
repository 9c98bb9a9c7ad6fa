"""An evaluation shows the mean of means that stand for different numbers of samples."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="mean-of-uneven-means",
    title="a mean of means that stand for different numbers of samples is taken for that of all",
    symptoms=("D.2.4",),
    sees="""
        The validation loss of the same weights on the same data changes with the batch size and
        the number of ranks, although every sample is counted once.
    """,
    why="""
        The mean of some means is the mean of all samples only if each of them stands for equally
        many samples. The last batch is often shorter, and ranks may have parts of different
        size. Each sample in a small batch or part then counts more than the others.
    """,
    broken="""
        from torch.utils.data import DataLoader, Subset, TensorDataset

        torch.manual_seed(0)
        data = TensorDataset(torch.arange(40.0).reshape(40, 1), torch.zeros(40, 1))
        half = Subset(data, range(30) if rank == 0 else range(30, 40))
        model = torch.nn.Linear(1, 1)

        def evaluate(loader):
            total, seen = 0.0, 0
            with torch.no_grad():
                for x, y in loader:
                    total += (model(x) - y).square().sum().item()
                    seen += len(x)
            mean = torch.tensor(total / seen)
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            return mean.item()

        loss = evaluate(DataLoader(half, batch_size=10))
        if rank == 0:
            print(f"validation loss {loss:.4f}")
    """,
    fixed="""
        from torch.utils.data import DataLoader, Subset, TensorDataset

        torch.manual_seed(0)
        data = TensorDataset(torch.arange(40.0).reshape(40, 1), torch.zeros(40, 1))
        half = Subset(data, range(30) if rank == 0 else range(30, 40))
        model = torch.nn.Linear(1, 1)

        def evaluate(loader):
            total, seen = 0.0, 0
            with torch.no_grad():
                for x, y in loader:
                    total += (model(x) - y).square().sum().item()
                    seen += len(x)
            sums = torch.tensor([total, float(seen)])
            dist.all_reduce(sums)
            return (sums[0] / sums[1]).item()

        loss = evaluate(DataLoader(half, batch_size=10))
        if rank == 0:
            print(f"validation loss {loss:.4f}")
    """,
    proof="""
        with torch.no_grad():
            every = (model(data.tensors[0]) - data.tensors[1]).square().mean().item()
        assert abs(loss - every) < 1e-4 * every
    """,
    expected=Expected(ranks=(0,), lines={0: 20}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "add up sums and numbers of samples, over the batches and with all_reduce over the "
            "ranks, and divide once at the end",
        ),
        Advice(
            "fix batch size/data partition",
            "or give all ranks and all batches equally many samples",
        ),
    ),
    cluster="""
        The more ranks there are, the fewer batches each of them has, and the more a short last
        batch weighs. Numbers of runs on different numbers of GPUs cannot be compared.
    """,
    apart={
        "padded-samples-counted": "samples are repeated so that all parts have equal size",
        "metric-not-reduced": "the ranks do not exchange their results at all",
        "sum-over-own-count": "the sum of all ranks is divided by the count of one",
    },
    in_source=False,
    references=(
        Reference(
            "torch.utils.data.DataLoader: drop_last, and the size of the last batch",
            "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader",
        ),
    ),
)
