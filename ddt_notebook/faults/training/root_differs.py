"""Ranks name different roots for one collective."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="root-differs",
    title="ranks name different roots for one collective",
    symptoms=("D.1.1", "D.2.4"),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        A broadcast of the first weights does not end, on any rank. With two ranks, or where it
        happens to end, the ranks do not hold the same tensor afterwards.
    """,
    why="""
        `src` and `dst` say which rank of the whole job sends or receives, and every rank has to
        give the same number. A rank that names itself, for instance with `src=rank`, sends its own
        tensor and waits for no other rank.
    """,
    broken="""
        torch.manual_seed(rank)
        model = torch.nn.Linear(4, 2)
        owner = 0 if rank != 2 else rank
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=owner)
        print(model.weight.sum().item())
    """,
    fixed="""
        torch.manual_seed(rank)
        model = torch.nn.Linear(4, 2)
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
        print(model.weight.sum().item())
    """,
    proof="""
        torch.manual_seed(0)
        assert torch.equal(model.weight, torch.nn.Linear(4, 2).weight)
    """,
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={0: 5, 1: 5, 2: 5}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "pass the same src or dst to {op} on every rank, as a global rank",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The call itself returns; a later collective hangs, so the stack shows a line without a
        fault. In subgroups the usual mistake is the rank within the group instead of the global
        one.
    """,
    apart={"reduce-read-on-wrong-rank": "the root is right and another rank reads"},
    references=(
        Reference(
            "NCCL reduce with an inconsistent dst: later kernels hang",
            "https://github.com/pytorch/pytorch/issues/39706",
        ),
    ),
)
