"""A rank number is not below the world size."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="rank-outside-world",
    title="a rank number is not below the world size",
    symptoms=("B.1", "B.2"),
    options={"group": False, "timeout": 4.0},
    sees="""
        One rank, the last, fails with "rank < size. 2 vs 2" and a line of Gloo's source; the others
        wait in `init_process_group` for a rank that does not exist.
    """,
    why="""
        Ranks count from 0 to world size - 1. Schedulers and shell loops often count from 1, and a
        world size may be that of one machine while ranks are counted over all.
    """,
    broken="""
        import os

        os.environ["TASK_ID"] = str(int(os.environ["RANK"]) + 1)

        dist.init_process_group(
            "gloo", rank=int(os.environ["TASK_ID"]), world_size=int(os.environ["WORLD_SIZE"])
        )
        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        import os

        os.environ["TASK_ID"] = str(int(os.environ["RANK"]) + 1)

        dist.init_process_group(
            "gloo", rank=int(os.environ["TASK_ID"]) - 1, world_size=int(os.environ["WORLD_SIZE"])
        )
        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size and dist.get_rank() == rank",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 5, 1: 5}),
    fixes=(
        Advice(
            "fix communication configuration",
            "count ranks from 0, and let world_size be the number of all processes on all machines "
            "(RANK and WORLD_SIZE of torchrun, not the LOCAL_ ones)",
        ),
        Advice(
            "fix consistency between devices",
            "compute the rank as machine × processes per machine + local rank, with one number of "
            "processes for all machines",
        ),
    ),
    gloo=("rank < size. 2 vs 2",),
    nccl=("Invalid rank requested : 2/2",),
    cluster="""
        Started from an array job, the task with the highest number fails, and all others wait for
        rank 0 until their timeout expires.
    """,
    apart={
        "world-size-differs": "the ranks disagree about the size",
        "rank-number-repeated": "two ranks have one number",
    },
    references=(
        Reference(
            "torch.distributed: initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#initialization",
        ),
    ),
    in_source=False,
)
