"""A rank's process is ended by a signal that it did not cause."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="killed-from-outside",
    title="a rank's process is killed from outside",
    symptoms=("D.1.11", "D.1.2"),
    views=("stacks",),
    n=3,
    sees="""
        One process is gone, with exit code -9 and without a line in its log. The others fail with
        a broken connection.
    """,
    why="""
        SIGKILL cannot be caught, so the process cannot say anything. When memory is short the
        kernel sends it to the biggest process; a scheduler sends it when a limit is passed; a
        colleague, a script or a container's stop command may send it as well.
    """,
    broken="""
        import os, signal, threading

        def watchdog(limit_mb, used_mb):
            if used_mb > limit_mb:
                os.kill(os.getpid(), signal.SIGKILL)

        used_mb = 900 if rank == 2 else 300
        guard = threading.Timer(0.3, watchdog, args=(512, used_mb))
        guard.start()
        guard.join()
        grads = torch.ones(1000)
        dist.all_reduce(grads)
    """,
    fixed="""
        import os, signal, threading

        def watchdog(limit_mb, used_mb):
            if used_mb > limit_mb:
                os.kill(os.getpid(), signal.SIGKILL)

        used_mb = 300
        guard = threading.Timer(0.3, watchdog, args=(512, used_mb))
        guard.start()
        guard.join()
        grads = torch.ones(1000)
        dist.all_reduce(grads)
    """,
    proof="assert grads[0].item() == world_size",
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={0: 12, 1: 12}),
    fixes=(
        Advice(
            "fix memory/core setting",
            "find out who sent the signal: the kernel when memory is short (`dmesg`), a job "
            "scheduler, or os.kill in the code",
        ),
        Advice(
            "fix batch size/data partition",
            "if memory was short, make the batch smaller or load the data in parts",
        ),
    ),
    gloo=("Connection closed by peer",),
    nccl=("remote process exited or there was a network error",),
    cluster="""
        torchrun prints `exitcode: -9` and `Signal 9 (SIGKILL) received by PID`. Kubernetes shows
        OOMKilled, Slurm an out-of-memory event of the step.
    """,
    apart={
        "process-exit": "the process ends itself with an exit code",
        "segmentation-fault": "a fault in the code of the process causes the signal",
    },
    references=(
        Reference(
            "torchrun: how errors of workers are reported",
            "https://docs.pytorch.org/docs/stable/elastic/errors.html",
        ),
    ),
    in_source=False,
)
