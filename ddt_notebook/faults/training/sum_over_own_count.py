"""A metric is the sum of all ranks divided by the count of one rank."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="sum-over-own-count",
    title="the sum of all ranks is divided by the number of samples or batches of one rank",
    symptoms=("D.2.4",),
    sees="""
        The validation loss, or the accuracy, is as many times too high as there are ranks. An
        accuracy may be above 100 %.
    """,
    why="""
        A mean has two parts: a sum and a count. The program adds up the sum over the ranks with
        all_reduce, and divides by a count that is still that of its own part of the data.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        torch.manual_seed(0)
        data = TensorDataset(torch.randn(32, 4), torch.zeros(32, 1))
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
        model = torch.nn.Linear(4, 1)

        class Meter:
            def __init__(self):
                self.sum, self.count = torch.zeros(1), 0
            def update(self, value, n):
                self.sum += value * n
                self.count += n
            def mean(self):
                dist.all_reduce(self.sum)
                return self.sum.item() / self.count

        meter = Meter()
        with torch.no_grad():
            for x, y in loader:
                meter.update(torch.nn.functional.mse_loss(model(x), y), len(x))
        loss = meter.mean()
        if rank == 0:
            print(f"validation loss {loss:.4f}")
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        torch.manual_seed(0)
        data = TensorDataset(torch.randn(32, 4), torch.zeros(32, 1))
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
        model = torch.nn.Linear(4, 1)

        class Meter:
            def __init__(self):
                self.both = torch.zeros(2)
            def update(self, value, n):
                self.both += torch.tensor([value * n, n])
            def mean(self):
                dist.all_reduce(self.both)
                return (self.both[0] / self.both[1]).item()

        meter = Meter()
        with torch.no_grad():
            for x, y in loader:
                meter.update(torch.nn.functional.mse_loss(model(x), y), len(x))
        loss = meter.mean()
        if rank == 0:
            print(f"validation loss {loss:.4f}")
    """,
    proof="""
        with torch.no_grad():
            every = torch.nn.functional.mse_loss(model(data.tensors[0]), data.tensors[1]).item()
        assert abs(loss - every) < 1e-5
    """,
    expected=Expected(ranks=(0,), lines={0: 24}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "add up the count over the ranks, too: keep sum and count in one tensor, and call "
            "all_reduce once for both before the division",
        ),
        Advice(
            "fix distributed API usage",
            "if all ranks count equally much, `ReduceOp.AVG` of the sum gives the same mean",
        ),
    ),
    cluster="""
        With 64 ranks the loss is 64 times too high. Where only the curve's form is looked at, and
        the best checkpoint is kept, nobody notices.
    """,
    apart={
        "sum-shown-as-mean": "means of the ranks are added up and not divided",
        "mean-of-uneven-means": "the count is that of all ranks, and parts weigh differently",
    },
    in_source=False,
    references=(
        Reference(
            "torch.distributed.all_reduce: it adds up by default",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce",
        ),
    ),
)
