"""An exception that is caught takes a rank past a collective."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="exception-swallowed",
    title="an exception is caught and the rank goes on without the collective",
    symptoms=("D.2.1",),
    views=("stacks",),
    n=2,
    sees="""
        One rank reports a bad record and says that it goes on. Then nothing happens any more. The
        handler was added to make training robust, and on one process it does so.
    """,
    why="""
        What follows the raising line inside `try` is skipped on the rank that raised, and with it
        the collective. The other ranks had no exception and wait there. Later collectives of the
        rank that went on may even meet those of the others one step too early.
    """,
    broken="""
        def load(step):
            if rank == 1 and step == 4:
                raise OSError("record 4 is truncated")
            return torch.full((4,), float(step))

        total = torch.zeros(4)
        for step in range(5):
            try:
                batch = load(step)
                dist.all_reduce(batch)
                total += batch
            except OSError as error:
                print("skipping:", error)
    """,
    fixed="""
        def load(step):
            if rank == 1 and step == 4:
                raise OSError("record 4 is truncated")
            return torch.full((4,), float(step))

        total = torch.zeros(4)
        for step in range(5):
            try:
                batch = load(step)
            except OSError as error:
                print("skipping:", error)
                batch = torch.zeros(4)
            dist.all_reduce(batch)
            total += batch
    """,
    proof="assert torch.equal(total, torch.full((4,), 16.0))",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 10, 1: 12}),
    fixes=(
        Advice(
            "fix behavior logic",
            "let the exception end the cell, or make all ranks agree to go on before {op}",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The warning of the handler stands in one rank's log only, minutes before all the others
        time out. With ten or more ranks it is easily lost among their messages.
    """,
    apart={"collective-under-local-condition": "an `if` and not a handler skips the call"},
    references=(
        Reference(
            "torch.distributed: monitored_barrier finds the rank that did not come",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.monitored_barrier",
        ),
    ),
)
