"""Spawned processes should run a function that a notebook cell defines."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="spawn-in-a-cell",
    title="processes are spawned to run a function that was defined in a notebook cell",
    symptoms=("B.1",),
    options={"group": False},
    sees="""
        A script that starts its own ranks with `mp.spawn` is pasted into a notebook, and fails with
        "process 0 terminated with exit code 1". Far above, among the output of the children:
        "Can't get attribute 'train' on <module '__main__' (built-in)>".
    """,
    why="""
        A spawned process is a new interpreter. It receives the name of the function and of the
        module that defines it. No file contains the code of a cell, so the process cannot import
        it. Here the ranks exist already: the cell runs on each of them.
    """,
    broken="""
        import torch.multiprocessing as mp

        def train(rank, world_size):
            dist.init_process_group("gloo", rank=rank, world_size=world_size)
            total = torch.ones(1)
            dist.all_reduce(total)
            return total.item()

        mp.spawn(train, args=(2,), nprocs=2)
    """,
    fixed="""
        def train(rank, world_size):
            dist.init_process_group("gloo", rank=rank, world_size=world_size)
            total = torch.ones(1)
            dist.all_reduce(total)
            return total.item()

        result = train(rank, world_size)
    """,
    proof="assert result == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 9, 1: 9}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "in a session call the function itself: every rank runs the cell, so nothing is left "
            "to spawn",
        ),
        Advice(
            "fix dependency path",
            "outside a session put the function into a .py file and import it, then `mp.spawn` "
            "finds it; or run the file with torchrun from a shell",
        ),
        Advice(
            "fix communication configuration",
            "or start the processes by fork (`start_method='fork'` in `mp.start_processes`), as "
            "long as nothing has touched CUDA yet",
        ),
    ),
    gloo=(
        "process 0 terminated with exit code 1",
        "AttributeError: Can't get attribute 'train' on <module '__main__' (built-in)>",
    ),
    nccl=("ProcessExitedException: process 0 terminated with exit code 1",),
    cluster="""
        The fault occurs in notebooks; on a cluster the same code is in a file and works. There,
        spawned ranks fail only if the module has no `if __name__ == "__main__"` guard.
    """,
    apart={"module-not-found": "a module is missing; here the function is in no module"},
    references=(
        Reference(
            "torch.multiprocessing: spawning subprocesses",
            "https://docs.pytorch.org/docs/stable/multiprocessing.html#spawning-subprocesses",
        ),
        Reference(
            "Python: multiprocessing, programming guidelines for spawn",
            "https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods",
        ),
    ),
    in_source=False,
)
