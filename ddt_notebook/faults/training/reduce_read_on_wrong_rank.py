"""The result of ``reduce`` is used on ranks that do not get it."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="reduce-read-on-wrong-rank",
    title="the result of reduce is used on ranks that do not get it",
    symptoms=("D.2.4",),
    n=3,
    sees="""
        The ranks print different mean losses, although the loss was reduced. If the value decides
        something, such as when to stop or which checkpoint is best, they decide differently.
    """,
    why="""
        `reduce` delivers its result to the rank that `dst` names, and to no other. The others keep
        their tensor, or hold a part of the sum that passed through them, depending on the backend.
        It looks like a valid number.
    """,
    broken="""
        def average(loss):
            loss = loss.clone()
            dist.reduce(loss, dst=0)
            return loss / world_size

        losses = [4.0 + rank, 2.0 + rank, 3.0 - rank]
        best = float("inf")
        for epoch, loss in enumerate(losses):
            mean = average(torch.tensor(loss)).item()
            if mean < best:
                best, best_epoch = mean, epoch
        print("best epoch", best_epoch, "with loss", best)
    """,
    fixed="""
        def average(loss):
            loss = loss.clone()
            dist.all_reduce(loss)
            return loss / world_size

        losses = [4.0 + rank, 2.0 + rank, 3.0 - rank]
        best = float("inf")
        for epoch, loss in enumerate(losses):
            mean = average(torch.tensor(loss)).item()
            if mean < best:
                best, best_epoch = mean, epoch
        print("best epoch", best_epoch, "with loss", best)
    """,
    proof="assert (best_epoch, best) == (2, 2.0)",
    expected=Expected(ranks=(1, 2), lines={1: 10, 2: 10}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "use all_reduce where every rank needs the result of {op}",
        ),
        Advice(
            "fix behavior logic",
            "use the result on its destination only, inside `if rank == dst:`",
        ),
    ),
    cluster="""
        Metrics of a job look noisy or too small when they come from another rank than the
        destination. On NCCL the other ranks keep their own value, on gloo they may hold partial
        sums, so a change of the backend changes the numbers.
    """,
    apart={
        "metric-not-reduced": "nothing is reduced at all",
        "root-differs": "the ranks disagree about the destination",
    },
    references=(
        Reference(
            "What gloo leaves in the tensor of a rank that is not the destination",
            "https://github.com/pytorch/pytorch/issues/76527",
        ),
        Reference(
            "The same, with the first reduce of gloo",
            "https://github.com/pytorch/pytorch/issues/21480",
        ),
    ),
)
