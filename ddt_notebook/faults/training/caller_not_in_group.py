"""A rank calls a collective on a group to which it does not belong."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="caller-not-in-group",
    title="a rank calls a collective on a group it is not in",
    symptoms=("D.2.4", "D.2.1"),
    views=("stacks",),
    n=4,
    sees="""
        Some ranks keep their local value after an all_reduce, and a warning about the process
        group may scroll by. The code is the same on all of them.
    """,
    why="""
        `new_group` returns a group to its members and a placeholder to everyone else. A collective
        on the placeholder returns at once and leaves the tensor as it is: no exception, since
        scripts commonly run the same line everywhere.
    """,
    broken="""
        evens = dist.new_group([0, 2])
        odds = dist.new_group([1, 3])
        loss = torch.tensor([float(rank)])
        dist.all_reduce(loss, group=evens)
        loss /= 2
        print("mean loss of my half", loss.item())
    """,
    fixed="""
        evens = dist.new_group([0, 2])
        odds = dist.new_group([1, 3])
        loss = torch.tensor([float(rank)])
        dist.all_reduce(loss, group=evens if rank % 2 == 0 else odds)
        loss /= 2
        print("mean loss of my half", loss.item())
    """,
    proof="assert loss.item() == (1.0 if rank % 2 == 0 else 2.0)",
    expected=Expected(ranks=(1, 3), lines={1: 4, 3: 4}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "call {op} only on members of the group (`if rank in members:`), or pass the group "
            "that this rank belongs to",
        ),
    ),
    gloo=("which does not belong to the given group",),
    nccl=("which does not belong to the given group",),
    cluster="""
        In hybrid parallelism, data by tensor by pipeline, a wrong group handle is the usual slip:
        replicas drift apart without a message, and only a comparison of weights shows it.
    """,
    apart={"different-groups": "both groups hold the rank, but not the same peers"},
    references=(
        Reference(
            "Lack of a clear story around groups of some ranks",
            "https://github.com/pytorch/pytorch/issues/81291",
        ),
    ),
)
