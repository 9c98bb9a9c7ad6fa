"""Each rank decides by its own data whether it takes part in a collective."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="collective-under-local-condition",
    title="each rank decides by its own data whether it takes part",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        Training runs for hours and then hangs, at another step in every attempt. On one process the
        same script works. Often a rank has printed that it skips a batch or stops early.
    """,
    why="""
        The condition reads a value that every rank computes from its own share of the data: a
        loss that is not finite, a validation score, an empty batch. As soon as it comes out
        differently on one rank, that rank skips the gradient all_reduce of `backward()`, and the
        others wait in it.
    """,
    broken="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batches = [torch.randn(8, 4) for _ in range(5)]
        if rank == 1:
            batches[3][0, 0] = float("nan")
        for batch in batches:
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            if not torch.isfinite(loss):
                print("loss is not finite, skipping the batch")
                continue
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batches = [torch.randn(8, 4) for _ in range(5)]
        if rank == 1:
            batches[3][0, 0] = float("nan")
        for batch in batches:
            optimizer.zero_grad()
            loss = model(batch).pow(2).mean()
            usable = torch.isfinite(loss).float()
            dist.all_reduce(usable, op=dist.ReduceOp.MIN)
            if not usable:
                print("loss is not finite, skipping the batch")
                continue
            loss.backward()
            optimizer.step()
    """,
    proof="""
        assert all(p.isfinite().all() for p in model.parameters())
        weights = [torch.empty(1, 4) for _ in range(world_size)]
        dist.all_gather(weights, model.module.weight.detach())
        assert all(torch.equal(weight, weights[0]) for weight in weights)
    """,
    expected=Expected(ranks=(1,), waiting=(0, 2), lines={0: 13, 2: 13}),
    fixes=(
        Advice(
            "fix behavior logic",
            "let all ranks make the same decision: all_reduce the condition first, then branch on "
            "the result",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        NCCL reports a timeout after hours of healthy training, in an ALLREDUCE with the size of a
        gradient bucket. One rank is a single collective ahead of or behind the others.
    """,
    apart={
        "collective-under-rank-condition": "the rank's number decides, in every attempt",
        "uneven-iterations": "a rank runs out of batches",
    },
    references=(
        Reference(
            "Early stopping that some processes decide on alone stalls DDP",
            "https://github.com/Lightning-AI/pytorch-lightning/issues/379",
        ),
    ),
)
