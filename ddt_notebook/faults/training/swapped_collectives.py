"""Two collectives of equal form in another order on one rank."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="swapped-collectives",
    title="two collectives of equal form in opposite order",
    symptoms=("D.2.4",),
    n=2,
    sees="""
        Two reduced values are both wrong: each is partly made of the other. Nothing fails, since
        the two tensors have the same shape and type.
    """,
    why="""
        The first call of one rank meets the first call of the other. When two calls of the same
        form come in opposite order, the loss of one rank is added to the accuracy of the other.
        The order of a dictionary or a set, or a branch, decides it.
    """,
    broken="""
        loss, accuracy = torch.tensor([2.0]), torch.tensor([0.5])

        if rank == 0:
            dist.all_reduce(loss)
            dist.all_reduce(accuracy)
        else:
            dist.all_reduce(accuracy)
            dist.all_reduce(loss)
        print("loss", (loss / world_size).item(), "accuracy", (accuracy / world_size).item())
    """,
    fixed="""
        loss, accuracy = torch.tensor([2.0]), torch.tensor([0.5])

        for metric in (loss, accuracy):
            dist.all_reduce(metric)
        print("loss", (loss / world_size).item(), "accuracy", (accuracy / world_size).item())
    """,
    proof="assert (loss / world_size).item() == 2.0 and (accuracy / world_size).item() == 0.5",
    expected=Expected(ranks=(0, 1), lines={0: 4, 1: 7}, confidence="possible"),
    fixes=(
        Advice(
            "fix behavior logic",
            "check that the ranks mean the same tensors: if so, nothing to do; else issue the two "
            "in one order",
        ),
    ),
    cluster="""
        No backend shows it as long as the two tensors are alike. As soon as one of them changes its
        size it becomes a hang or a crash, which then seems to come from that change.
    """,
    apart={"different-collectives": "the two operations differ, and the run breaks"},
    references=(
        Reference(
            "torch.distributed: collectives have to be issued in the same order on every rank",
            "https://docs.pytorch.org/docs/stable/distributed.html",
        ),
    ),
)
