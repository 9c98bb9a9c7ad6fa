"""A variable that the set-up reads is not set."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="environment-not-set",
    title="a variable from which the group is formed is not set",
    symptoms=("B.1",),
    options={"group": False},
    sees="""
        `init_process_group` fails at once: "environment variable MASTER_ADDR expected, but not
        set"; or the same for RANK, WORLD_SIZE or MASTER_PORT.
    """,
    why="""
        Without an init_method, four variables give each rank its number, the world size and the
        address at which the ranks meet. torchrun sets them. A script that is started with plain
        python, by mpirun, or by a scheduler that uses other names (SLURM_PROCID,
        OMPI_COMM_WORLD_RANK) finds none of them.
    """,
    broken="""
        import os

        def leave_launcher():
            for name in ("MASTER_ADDR", "MASTER_PORT"):
                os.environ.pop(name, None)
            os.environ["MASTER_IP"] = "127.0.0.1"

        leave_launcher()
        dist.init_process_group("gloo")

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        import os

        assert {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"} <= os.environ.keys()
        dist.init_process_group("gloo")

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 9, 1: 9}),
    fixes=(
        Advice(
            "fix communication configuration",
            "start the script with torchrun, which sets the variables on every rank; or set RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT from those of your launcher, or pass rank, "
            "world_size and init_method",
        ),
        Advice(
            "fix network setting",
            "MASTER_ADDR is the address of the machine of rank 0 as the others reach it, "
            "MASTER_PORT any free port there",
        ),
        Advice(
            "fix consistency between devices",
            "if only some ranks fail: mpirun and ssh pass on only the variables that you name (`-x "
            "MASTER_ADDR`)",
        ),
    ),
    gloo=("environment variable MASTER_ADDR expected, but not set",),
    nccl=("environment variable RANK expected, but not set",),
    cluster="""
        All ranks end in the first second with a ValueError from rendezvous.py. If the variable is
        missing on one machine only, the others wait until their timeout expires.
    """,
    apart={
        "init-method-incomplete": "an init_method is given, and something in it is missing",
        "rendezvous-differs": "the variables are set and do not agree",
    },
    references=(
        Reference(
            "torch.distributed: environment variable initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization",
        ),
    ),
    in_source=False,
)
