"""A rank's process has been stopped by a signal."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="rank-suspended",
    title="a rank's process is suspended",
    symptoms=("D.2.1",),
    views=("stacks",),
    n=3,
    sees="""
        All ranks but one wait in a collective. The last one is alive, but uses no processor time
        and writes nothing, whatever it was doing.
    """,
    why="""
        A process that receives SIGSTOP, or SIGTSTP from a terminal, does not run until it gets
        SIGCONT. A debugger, a job scheduler that preempts, a frozen container or a program that
        reads from the terminal in the background does this. The cell below sends the signal itself,
        as a scheduler would.
    """,
    broken="""
        import os, signal

        grads = torch.ones(16)
        for step in range(3):
            dist.all_reduce(grads)
            if rank == 1 and step == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
        print("done")
    """,
    fixed="""
        grads = torch.ones(16)
        for step in range(3):
            dist.all_reduce(grads)
        print("done")
    """,
    proof="assert grads[0].item() == world_size**3",
    expected=Expected(ranks=(1,), waiting=(0, 2), lines={0: 5, 2: 5}),
    fixes=(
        Advice(
            "fix communication configuration",
            "resume the process (`kill -CONT PID`) and find out what stopped it",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        `ps` shows the state T for one process. In a job it follows a preemption, a snapshot of a
        virtual machine or a debugger that was left attached.
    """,
    apart={
        "rank-silent": "the process runs but its interpreter does not answer",
        "rank-too-slow": "the rank works and would reach the collective later",
    },
    references=(
        Reference(
            "NCCL cannot tell which rank has not joined; look at the processes",
            "https://github.com/NVIDIA/nccl/issues/1260",
        ),
    ),
    in_source=False,
)
