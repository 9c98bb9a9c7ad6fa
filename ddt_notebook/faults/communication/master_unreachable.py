"""All ranks name one address, and it does not answer."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="master-unreachable",
    title="the address of rank 0 does not answer",
    symptoms=("B.2", "B.1"),
    views=("stacks",),
    options={"group": False, "timeout": 4.0},
    sees="""
        Every rank stands in `init_process_group` and then reports that it could not connect to the
        host and port in MASTER_ADDR and MASTER_PORT, or that the name is not known.
    """,
    why="""
        Rank 0 opens a port on the machine on which it runs, and all ranks, rank 0 included, connect
        to MASTER_ADDR. If that is the address of another machine, an old one, one behind a firewall
        or a name that cannot be resolved, no rank can connect.
    """,
    broken="""
        import os
        from datetime import timedelta

        os.environ["MASTER_ADDR"] = "192.0.2.17"
        os.environ["MASTER_PORT"] = "29511"
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
    expected=Expected(ranks=(0, 1), lines={0: 6, 1: 6}, confidence="likely"),
    fixes=(
        Advice(
            "fix network setting",
            "set MASTER_ADDR to an address of the machine of rank 0 that the others reach (try "
            "`nc -vz HOST PORT` from each), and open the port in the firewall; on one machine use "
            "127.0.0.1",
        ),
        Advice(
            "fix communication configuration",
            "leave MASTER_ADDR to the launcher, or take it from the scheduler's list of hosts "
            "instead of writing it into the script",
        ),
        Advice(
            "fix dependency installation/version",
            "if the address is right and the port open, compare the versions of torch on the "
            "machines: a store of another version may not answer",
        ),
    ),
    gloo=("The client socket has timed out after 300000ms while trying to connect to",),
    nccl=("The client socket has timed out after", "failed to connect to any network address of"),
    cluster="""
        All logs end with "The client socket has timed out … while trying to connect to" one and the
        same host and port. The host is not the machine on which rank 0 was placed.
    """,
    apart={
        "rendezvous-differs": "the ranks name different addresses",
        "port-in-use": "rank 0 itself says that it cannot open the port",
    },
    references=(
        Reference(
            "A set-up that hangs on both machines",
            "https://github.com/pytorch/pytorch/issues/52848",
        ),
        Reference(
            "torch.distributed: common environment variables",
            "https://docs.pytorch.org/docs/stable/distributed.html#common-environment-variables",
        ),
    ),
    in_source=False,
)
