"""The backend should use a network interface that does not exist."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="network-interface",
    title="the network interface that the backend should use does not exist",
    symptoms=("B.1",),
    options={"group": False},
    sees="""
        `init_process_group` fails with "Unable to find address for: eth7" and the place of a check
        in Gloo's source. NCCL says that it found no socket interface.
    """,
    why="""
        GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME choose the interface over which the ranks
        communicate. Names of interfaces differ between machines (eth0, ens5, bond0, ib0) and
        between a machine and a container on it. A value that was right elsewhere ends the set-up
        here.
    """,
    broken="""
        import os

        os.environ["GLOO_SOCKET_IFNAME"] = "ib7"
        os.environ["NCCL_SOCKET_IFNAME"] = "ib7"
        dist.init_process_group("gloo")

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        import os
        import socket

        names = [name for _, name in socket.if_nameindex()]
        os.environ["GLOO_SOCKET_IFNAME"] = next(name for name in names if name.startswith("lo"))
        dist.init_process_group("gloo")

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 5, 1: 5}),
    fixes=(
        Advice(
            "fix network setting",
            "set the variable to an interface that exists here (`ip -br address` lists them; `lo` "
            "on one machine), or leave it out and let the backend choose",
        ),
        Advice(
            "fix consistency between devices",
            "where names differ between machines, set the variable on each; NCCL also takes an "
            "exclusion (`NCCL_SOCKET_IFNAME=^lo,docker`), Gloo takes whole names only",
        ),
    ),
    gloo=("Unable to find address for:",),
    nccl=("no socket interface found", "Bootstrap : no socket interface found"),
    cluster="""
        One kind of node fails in the set-up while the others wait for it; or the job runs over a
        slow management network, because the fast interface was not the one named.
    """,
    apart={"master-unreachable": "the interface exists and the address does not answer"},
    references=(
        Reference(
            "An interface name that the machine does not have",
            "https://github.com/Megvii-BaseDetection/YOLOX/issues/139",
        ),
        Reference(
            "torch.distributed: choosing the network interface",
            "https://docs.pytorch.org/docs/stable/distributed.html#choosing-the-network-interface-to-use",
        ),
        Reference(
            "NCCL: environment variables",
            "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
        ),
    ),
    in_source=False,
)
