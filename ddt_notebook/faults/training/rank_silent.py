"""A call into native code holds a rank's interpreter."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="rank-silent",
    title="a native call holds a rank's interpreter",
    symptoms=("D.2.1",),
    views=("stacks",),
    n=2,
    options={"timeout": 2.5},
    sees="""
        One rank uses a whole processor and never reaches the collective. It does not react to an
        interrupt, and tools that ask its Python threads for a stack get none.
    """,
    why="""
        Python runs one thread at a time, and a call into C that does not release the interpreter
        lock stops all of them: signal handlers, watchdogs, logging. If that call takes very long
        or waits for something, the rank is silent for as long.
    """,
    broken="""
        class Frequencies:
            def __init__(self, limit):
                self.limit = limit

            def most_common(self):
                return max(range(self.limit))

        counts = Frequencies(1000 if rank == 0 else 10**12)
        best = torch.tensor([float(counts.most_common())])
        dist.all_reduce(best, op=dist.ReduceOp.MAX)
        print(best.item())
    """,
    fixed="""
        class Frequencies:
            def __init__(self, limit):
                self.limit = limit

            def most_common(self):
                return self.limit - 1

        counts = Frequencies(1000 if rank == 0 else 10**12)
        best = torch.tensor([float(counts.most_common())])
        dist.all_reduce(best, op=dist.ReduceOp.MAX)
        print(best.item())
    """,
    proof="assert best.item() == torch.tensor(10.0**12).item()",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 10}),
    fixes=(
        Advice(
            "fix behavior logic",
            "find the call that holds the interpreter at the line shown; give it a time limit or "
            "run it in a separate process",
        ),
        Advice(
            "fix dependency installation/version",
            "if the call belongs to a native library, try the version that its maintainers test "
            "with this torch: later releases fix locks that are never released",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        PyTorch warns that a heartbeat of its monitoring thread is missing and ends the process.
        A native profiler such as `py-spy dump --native` shows the C function.
    """,
    apart={
        "rank-suspended": "the process is stopped",
        "rank-too-slow": "the rank answers and shows its line",
    },
    references=(
        Reference(
            "torch.distributed: TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC and what it watches",
            "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html",
        ),
    ),
    in_source=False,
)
