"""One rank runs other code than the others, and that code lacks a collective."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="rank-skips-collective",
    title="one rank's code has no such collective",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        Training hangs in the first step that is logged. With logging switched off it runs. The line
        at which the ranks wait is under no condition.
    """,
    why="""
        The ranks were given different objects or functions beforehand: a real logger on rank 0, a
        silent one elsewhere. One of them calls a collective in a method of the same name, the other
        does not. The choice was made far from the line that hangs.
    """,
    broken="""
        class Metrics:
            def log(self, step, loss):
                dist.reduce(loss, dst=0)
                print(step, loss.item() / world_size)

        class Silent:
            def log(self, step, loss):
                pass

        logger = [Metrics, Silent, Silent][rank]()
        weight = torch.zeros(4, requires_grad=True)
        for step in range(3):
            loss = (weight - 1).pow(2).sum()
            logger.log(step, loss.detach().clone())
    """,
    fixed="""
        class Metrics:
            def log(self, step, loss):
                dist.reduce(loss, dst=0)
                if rank == 0:
                    self.last = loss.item() / world_size
                    print(step, self.last)

        logger = Metrics()
        weight = torch.zeros(4, requires_grad=True)
        for step in range(3):
            loss = (weight - 1).pow(2).sum()
            logger.log(step, loss.detach().clone())
    """,
    proof="assert rank != 0 or logger.last == 4.0",
    expected=Expected(ranks=(1, 2), waiting=(0,), lines={0: 3}),
    fixes=(
        Advice(
            "fix behavior logic",
            "make sure that every path through the program reaches {op} on every rank",
        ),
        Advice(
            "fix distributed API usage",
            "if only these ranks are to take part, give {op} a group of these ranks",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        It is typical of callbacks and loggers of training frameworks that are installed on the main
        process only. The stack of the waiting rank ends in the callback; the others wait elsewhere,
        in the next gradient exchange.
    """,
    apart={
        "collective-under-rank-condition": "a condition on the rank encloses the call",
        "early-exit-on-rank-condition": "a rank leaves the common code before the call",
    },
    references=(
        Reference(
            "torch.distributed: every member of the group must make the call",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.reduce",
        ),
    ),
)
