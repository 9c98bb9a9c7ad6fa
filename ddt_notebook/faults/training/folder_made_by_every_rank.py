"""All ranks make the same folder."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="folder-made-by-every-rank",
    title="every rank makes the same folder, and only the first succeeds",
    symptoms=("D.1.9",),
    views=("stacks",),
    setup=SCRATCH,
    sees="""
        FileExistsError on all ranks but one; which one gets through changes from run to run. Alone,
        on one process, the script runs once and fails when it is started again.
    """,
    why="""
        Each rank is a separate process and runs every line. The test whether the folder exists and
        its creation are two steps, and another rank can make the folder between them.
    """,
    broken="""
        import os, time

        run = os.path.join("runs", "baseline")
        time.sleep(0.5 * local_rank)
        os.makedirs(run)
        with open(os.path.join(run, f"rank{rank}.log"), "w") as log:
            log.write("started")
        dist.barrier()
    """,
    fixed="""
        import os, time

        run = os.path.join("runs", "baseline")
        time.sleep(0.5 * local_rank)
        os.makedirs(run, exist_ok=True)
        with open(os.path.join(run, f"rank{rank}.log"), "w") as log:
            log.write("started")
        dist.barrier()
    """,
    proof="assert sorted(os.listdir(run)) == ['rank0.log', 'rank1.log']",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 8, 1: 5}),
    fixes=(
        Advice(
            "fix behavior logic",
            "pass exist_ok=True, or make the folder on rank 0 and let all ranks meet in a barrier",
        ),
        Advice(
            "fix distributed API usage",
            "where the name has a date or a random part, choose it on rank 0 and send it to all "
            "with broadcast_object_list",
        ),
    ),
    gloo=("[Errno 17] File exists: 'runs/baseline'",),
    nccl=("[Errno 17] File exists: 'runs/baseline'",),
    cluster="""
        The launcher reports a failure within the first second, of another rank at each start. With
        folders named after the time, the ranks of one job write into two of them.
    """,
    apart={"path-missing": "a rank opens what nobody has made yet"},
    references=(
        Reference(
            "torchrun: each rank is a process that runs the whole script",
            "https://docs.pytorch.org/docs/stable/elastic/run.html",
        ),
    ),
)
