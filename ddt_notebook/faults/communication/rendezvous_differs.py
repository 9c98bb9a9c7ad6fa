"""The ranks look for each other at different addresses."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="rendezvous-differs",
    title="the ranks meet at different addresses or ports",
    symptoms=("B.2",),
    views=("stacks",),
    options={"group": False, "timeout": 4.0},
    sees="""
        `init_process_group` returns on no rank. Rank 0 counts fewer clients than it expects, the
        others fail to connect, and both messages mention only a timeout.
    """,
    why="""
        All ranks must meet at one address: rank 0 opens the port that MASTER_ADDR and MASTER_PORT
        name, the others connect to it. A port that each process picks for itself, a variable that
        was set on one machine only, or an old configuration on one machine makes a rank use an
        address where no process listens.
    """,
    broken="""
        import os
        import random
        from datetime import timedelta

        random.seed(os.getpid())
        os.environ["MASTER_ADDR"] = "127.0.0.1"
        os.environ["MASTER_PORT"] = str(random.randint(5000, 15000) * 2 + rank)

        dist.init_process_group("gloo", timeout=timedelta(minutes=5))
        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        from datetime import timedelta

        dist.init_process_group("gloo", timeout=timedelta(minutes=5))
        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 9, 1: 9}),
    fixes=(
        Advice(
            "fix network setting",
            "let every rank use one MASTER_ADDR and MASTER_PORT: choose the port once, in the "
            "launcher or on rank 0, and hand it to the others",
        ),
        Advice(
            "fix communication configuration",
            "do not set the two variables in the script: torchrun sets them, from "
            "`--rdzv-endpoint` or `--master-addr` and `--master-port`",
        ),
        Advice(
            "fix consistency between devices",
            "compare what `env | grep MASTER_` prints on each machine",
        ),
    ),
    gloo=("The client socket has timed out after 300000ms while trying to connect to",),
    nccl=("The client socket has timed out after", "waiting for clients. 1/2 clients joined."),
    cluster="""
        Rank 0 reports "Timed out after 601 seconds waiting for clients. 1/2 clients joined", the
        other machines report that they could not connect to another port or host than its own.
    """,
    apart={
        "master-unreachable": "all ranks name one address, and it does not answer",
        "rank-missing-at-setup": "a rank never calls init_process_group",
    },
    references=(
        Reference(
            "A set-up in which each process had picked another port",
            "https://github.com/pytorch/pytorch/issues/53395",
        ),
        Reference(
            "torch.distributed: TCP and environment variable initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#initialization",
        ),
    ),
    in_source=False,
)
