"""A value is averaged by the collective and divided by the number of ranks again."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="averaged-twice",
    title="a mean over the ranks is divided by the number of ranks again",
    symptoms=("D.2.4",),
    n=4,
    sees="""
        The loss shrinks with the number of processes, or training becomes slow: the gradients are
        right in direction and too small by the factor of the number of ranks.
    """,
    why="""
        `ReduceOp.AVG` divides the sum itself. Code that was written for the default, a sum, still
        divides by the number of ranks, and so the value is divided twice. DDP averages the
        gradients as well, so a loss that is divided by the number of ranks before `backward` gives
        gradients that are too small by that factor.
    """,
    broken="""
        torch.manual_seed(0)
        weight = torch.zeros(4, requires_grad=True)
        for step in range(2):
            loss = (weight - 1.0 - rank).pow(2).sum()
            loss.backward()
            dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
            weight.grad /= world_size
            with torch.no_grad():
                weight -= 0.5 * weight.grad
                weight.grad = None
        print(weight[0].item())
    """,
    fixed="""
        torch.manual_seed(0)
        weight = torch.zeros(4, requires_grad=True)
        for step in range(2):
            loss = (weight - 1.0 - rank).pow(2).sum()
            loss.backward()
            dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
            with torch.no_grad():
                weight -= 0.5 * weight.grad
                weight.grad = None
        print(weight[0].item())
    """,
    proof="assert weight[0].item() == 2.5",
    expected=Expected(ranks=(0, 1, 2, 3), lines={0: 7, 1: 7, 2: 7, 3: 7}, confidence="possible"),
    fixes=(
        Advice(
            "fix behavior logic",
            "remove the division by the number of ranks: DDP and ReduceOp.AVG have divided already",
        ),
    ),
    cluster="""
        A job on more GPUs needs a higher learning rate than the usual rules say. DDP averages as
        well, so a division of its gradients has the same effect.
    """,
    apart={"sum-shown-as-mean": "the division is missing"},
    references=(
        Reference(
            "torch.distributed: reduce operations",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.ReduceOp",
        ),
    ),
)
