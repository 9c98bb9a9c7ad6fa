"""A sum over the ranks is shown as a mean."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="sum-shown-as-mean",
    title="a sum over the ranks is shown as a mean",
    symptoms=("D.2.4",),
    n=3,
    sees="""
        The mean loss grows with the number of processes: three times as high on three ranks, with
        the same data and the same seed.
    """,
    why="""
        Without another operation `all_reduce` adds. The division by the number of ranks is left to
        the caller, and nothing reminds of it, since the sum is a valid number, too.
    """,
    broken="""
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        x, y = torch.ones(8, 4), torch.zeros(8, 1)
        loss = torch.nn.functional.mse_loss(model(x), y).detach()
        total = loss.clone()
        dist.all_reduce(total)
        if rank == 0:
            print("mean loss", total.item())
    """,
    fixed="""
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        x, y = torch.ones(8, 4), torch.zeros(8, 1)
        loss = torch.nn.functional.mse_loss(model(x), y).detach()
        total = loss.clone()
        dist.all_reduce(total)
        total /= world_size
        if rank == 0:
            print("mean loss", total.item())
    """,
    proof="assert torch.allclose(total, loss)",
    expected=Expected(ranks=(0,), lines={0: 8}, confidence="possible"),
    fixes=(
        Advice(
            "fix behavior logic",
            "divide the result of {op} by world_size, or reduce with ReduceOp.AVG",
        ),
    ),
    cluster="""
        Curves of jobs of different size lie apart by a constant factor. If the value scales a
        gradient or a learning rate, training diverges with more nodes only.
    """,
    apart={"metric-not-reduced": "the value is of one rank alone"},
    references=(
        Reference(
            "torch.distributed: all_reduce and its operations",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce",
        ),
    ),
)
