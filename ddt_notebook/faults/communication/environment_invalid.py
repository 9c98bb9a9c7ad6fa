"""A variable that the set-up reads holds no valid value."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="environment-invalid",
    title="a variable from which the group is formed holds no valid value",
    symptoms=("B.1",),
    options={"group": False},
    sees="""
        `init_process_group` fails at once with a message about a number: "port must have value from
        0 to 65535", or "invalid literal for int() with base 10".
    """,
    why="""
        Rank, world size and port are read from text and have to be whole numbers; a port is below
        65536. They are often put together by a script: a port from the number of the job, which
        grows without end, or a rank from a host name.
    """,
    broken="""
        import os

        job = 481516  # number of the job in the scheduler
        os.environ["MASTER_PORT"] = str(20000 + job)
        dist.init_process_group("gloo")

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        import os

        job = 481516  # number of the job in the scheduler
        wanted = 20000 + job % 10000
        if "TORCHELASTIC_RUN_ID" not in os.environ:  # else the launcher has chosen a free one
            os.environ["MASTER_PORT"] = str(wanted)
        dist.init_process_group("gloo")

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size and wanted < 65536",
    expected=Expected(ranks=(0, 1), lines={0: 5, 1: 5}),
    fixes=(
        Advice(
            "fix communication configuration",
            "print the four variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) before {op}: "
            "three of them must be whole numbers, without other characters",
        ),
        Advice(
            "fix network setting",
            "keep the port between 1024 and 65535 (`20000 + job % 10000`), or let torchrun choose",
        ),
    ),
    gloo=("port must have value from 0 to 65535 but was", "invalid literal for int() with base 10"),
    nccl=("port must have value from 0 to 65535 but was",),
    cluster="""
        The script worked for a year; since the counter of the scheduler passed a certain number,
        every job ends in its first second.
    """,
    apart={
        "environment-not-set": "the variable is missing",
        "port-in-use": "the port is valid, but another program uses it",
    },
    references=(
        Reference(
            "torch.distributed: environment variable initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization",
        ),
    ),
    in_source=False,
)
