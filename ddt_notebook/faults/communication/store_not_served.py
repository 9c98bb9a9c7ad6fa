"""Ranks of torchrun meet at an address of their own, at which nobody serves a store."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="store-not-served",
    title="under torchrun, the ranks meet at another address than torchrun's",
    symptoms=("B.2",),
    views=("stacks",),
    options={"group": False, "timeout": 4.0},
    sees="""
        Every rank stands in `init_process_group`, rank 0 included, although all of them name the
        same address and different ranks. The script works if it is started without torchrun.
    """,
    why="""
        torchrun serves the store itself, at MASTER_ADDR and MASTER_PORT, and sets
        TORCHELASTIC_USE_AGENT_STORE so that rank 0 does not. With `init_method="tcp://HOST:PORT"`,
        each rank then connects to that address as a client, and no one has opened the port.
    """,
    broken="""
        from datetime import timedelta

        dist.init_process_group(
            "gloo",
            init_method="tcp://127.0.0.1:29517",
            rank=rank,
            world_size=world_size,
            timeout=timedelta(minutes=5),
        )
        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        from datetime import timedelta

        dist.init_process_group("gloo", init_method="env://", timeout=timedelta(minutes=5))
        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}, confidence="likely"),
    fixes=(
        Advice(
            "fix communication configuration",
            'leave init_method out or write "env://": under torchrun, MASTER_ADDR and MASTER_PORT '
            "name the store that it serves",
        ),
        Advice(
            "fix distributed API usage",
            "for an address of your own, start the processes without torchrun, for example with "
            "torch.multiprocessing.spawn; rank 0 then serves the store",
        ),
    ),
    gloo=("The client socket has timed out after 300000ms while trying to connect to",),
    nccl=("The client socket has timed out after",),
    cluster="""
        The job starts, no rank prints anything after its arguments, and half an hour later all logs
        end with "The client socket has timed out … while trying to connect to" the address in the
        script.
    """,
    apart={
        "master-unreachable": "the address is that of the launcher, and another machine's",
        "rendezvous-differs": "the ranks name different addresses",
        "rank-missing-at-setup": "some rank never called init_process_group",
    },
    references=(
        Reference(
            "torch.distributed: TCP initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#tcp-initialization",
        ),
        Reference(
            "torchrun: how it sets up the ranks",
            "https://docs.pytorch.org/docs/stable/elastic/run.html",
        ),
    ),
    in_source=False,
)
