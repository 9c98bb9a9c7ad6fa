"""``new_group`` is called by the members of the new group only."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="new-group-on-some-ranks",
    title="new_group is not called on all ranks",
    symptoms=("B.1", "B.2"),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        A group of some ranks works. Later another `new_group`, which all ranks call, does not
        return, or raises, although its line is correct.
    """,
    why="""
        Each rank derives the name of a group from the number of its calls, so all ranks of the job
        have to make the same calls in the same order, whether they are members or not. A rank that
        left one call out counts differently from then on, so it looks for the next group under
        another name.
    """,
    broken="""
        students = [0, 1]
        if rank in students:
            group = dist.new_group(students)
            logits = torch.full((4,), float(rank))
            dist.all_reduce(logits, group=group)
            print(logits[0].item())
    """,
    fixed="""
        students = [0, 1]
        group = dist.new_group(students)
        if rank in students:
            logits = torch.full((4,), float(rank))
            dist.all_reduce(logits, group=group)
            print(logits[0].item())
    """,
    proof="""
        everyone = dist.new_group([0, 1, 2])
        total = torch.ones(1)
        dist.all_reduce(total, group=everyone)
        assert total.item() == 3
    """,
    expected=Expected(ranks=(2,), lines={0: 3, 1: 3}, confidence="possible"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "call {op} on every rank, also on those that will not be members, or pass "
            "use_local_synchronization=True",
        ),
    ),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        Initialisation of hybrid parallelism hangs on some nodes. The waiting ranks print that they
        wait in a store-based barrier for a key that the others never write.
    """,
    apart={"caller-not-in-group": "the group is correct, but a rank outside it uses it"},
    references=(
        Reference(
            "Why new_group has to be called by all ranks, and the confusion about it",
            "https://github.com/pytorch/pytorch/issues/81291",
        ),
        Reference(
            "torch.distributed: new_group",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.new_group",
        ),
    ),
)
