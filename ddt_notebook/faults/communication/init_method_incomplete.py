"""The address given to the set-up lacks a part."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="init-method-incomplete",
    title="the init_method lacks a part, or the rank that goes with it",
    symptoms=("B.1",),
    options={"group": False},
    sees="""
        "Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing", or
        "port number missing", or "No rendezvous handler for …".
    """,
    why="""
        With a tcp:// or file:// address, the set-up does not read RANK and WORLD_SIZE from the
        environment, so both have to be passed. A TCP address is a URL that begins with tcp:// and
        contains a port.
    """,
    broken="""
        import os

        host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}")

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        import os

        host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        dist.init_process_group(
            "gloo", init_method=f"tcp://{host}:{port}", rank=rank, world_size=world_size
        )
        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 4, 1: 4}),
    fixes=(
        Advice(
            "fix communication configuration",
            "pass rank and world_size together with a tcp:// or file:// address; or leave "
            "init_method out, and the launcher's variables are used",
        ),
        Advice(
            "fix network setting",
            "write the whole address: `tcp://HOST:PORT`, a free port on the machine of rank 0",
        ),
    ),
    gloo=("rendezvous: rank parameter missing", "rendezvous: port number missing"),
    nccl=("rendezvous: rank parameter missing", "No rendezvous handler for"),
    cluster="""
        All ranks end at once. It appears when a script that was started by hand, with --rank and
        --world-size, is put under torchrun and half of that is taken out.
    """,
    apart={"environment-not-set": "no init_method is given and a variable is missing"},
    references=(
        Reference(
            "torch.distributed: TCP initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#tcp-initialization",
        ),
    ),
)
