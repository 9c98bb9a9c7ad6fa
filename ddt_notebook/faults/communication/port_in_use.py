"""Another program uses the port of the store."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="port-in-use",
    title="the port on which the ranks are to meet is in use",
    symptoms=("B.1",),
    views=("stacks",),
    options={"group": False},
    setup="""
        import socket

        dist.init_process_group("gloo")
        dashboard = socket.create_server(("127.0.0.1", 0)) if rank == 0 else None
        port = [dashboard.getsockname()[1] if rank == 0 else None]
        dist.broadcast_object_list(port, src=0)
        dist.destroy_process_group()
    """,
    sees="""
        Rank 0 fails at once: "the server socket has failed to listen … EADDRINUSE". The other ranks
        connect to whatever listens there, and wait or fail with misleading messages.
    """,
    why="""
        Rank 0 opens MASTER_PORT for the store in which the ranks meet. Only one process of a
        machine can listen on a port. A run that did not end, a second job with the same default
        (29500), or a service such as a dashboard may use it already.
    """,
    broken="""
        import os

        os.environ["MASTER_PORT"] = str(port[0])
        dist.init_process_group("gloo")

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        dist.init_process_group("gloo")

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size",
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 4, 1: 4}),
    fixes=(
        Advice(
            "fix network setting",
            "let the launcher choose: `torchrun --standalone` on one machine, `--rdzv-endpoint "
            "HOST:0` or another port for each job on several machines",
        ),
        Advice(
            "fix communication configuration",
            "make sure that only one rank 0 opens the port: no process of the last run is left "
            "(`ss -ltnp`), and two jobs on a machine use two ports",
        ),
    ),
    gloo=("The server socket has failed to listen on any local network address", "EADDRINUSE"),
    nccl=("EADDRINUSE", "Address already in use"),
    cluster="""
        The second of two jobs that share a machine dies at its start, or a job that was restarted
        dies until the processes of the first attempt are gone.
    """,
    apart={
        "rank-number-repeated": "it is a second rank 0 of the same job that has the port",
        "master-unreachable": "nothing listens at the address",
    },
    references=(
        Reference(
            "The error for a port in use, and the port that it names",
            "https://github.com/pytorch/pytorch/issues/72816",
        ),
        Reference("torchrun", "https://docs.pytorch.org/docs/stable/elastic/run.html"),
    ),
    in_source=False,
)
