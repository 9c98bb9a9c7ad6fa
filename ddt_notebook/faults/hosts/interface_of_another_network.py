"""A host announces the address of an interface that the others cannot reach."""

from ddt_notebook.faults.card import Advice, Reference
from ddt_notebook.faults.host_card import HostCard

CARD = HostCard(
    id="interface-of-another-network",
    title="a host uses an interface that the others cannot reach",
    symptoms=("B.1", "B.2"),
    sees="""
        The set-up fails on the other hosts with "connect: Network is unreachable", or with "Connect
        timeout" and an address that is not in their network, such as 172.17.0.1 of docker0.
    """,
    why="""
        A host has several interfaces: of containers, of virtual machines, of a VPN, of management.
        GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names one of them that leads nowhere else, or
        nothing is set and the backend takes the first one. Of two ranks, gloo lets one connect to
        the other, depending on their addresses, so that one wrong host may pass unnoticed.
    """,
    commands=(
        "ip link add docker9 type bridge",
        "ip address add 172.31.255.1/24 dev docker9",
        "ip link set docker9 up",
    ),
    undo=("ip link del docker9",),
    cell="""
        import os
        from datetime import timedelta

        chosen = os.environ["GLOO_SOCKET_IFNAME"]
        if os.uname().nodename == "node2":
            os.environ["GLOO_SOCKET_IFNAME"] = "docker9"
        try:
            group = dist.new_group(timeout=timedelta(seconds=4))
        finally:
            os.environ["GLOO_SOCKET_IFNAME"] = chosen
        total = torch.ones(1)
        dist.all_reduce(total, group=group)
    """,
    cause="interface-of-another-network",
    fixes=(
        Advice(
            "fix network setting",
            "set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on each host to its interface in the "
            "common network (`ip route get ADDRESS` of another host names it)",
        ),
    ),
    cluster="""
        It works on nodes without containers and fails where docker0 is there. With NCCL, the lines
        "NET/Socket : Using" of NCCL_DEBUG=INFO name the interface that each rank took.
    """,
    apart={
        "network-interface": "the host has no interface of that name",
        "loopback-address": "the address in the message begins with 127",
        "hosts-not-connected": "the address is right, and a firewall is in the way",
    },
    references=(
        Reference(
            "torch.distributed: choosing the network interface",
            "https://docs.pytorch.org/docs/stable/distributed.html#choosing-the-network-interface-to-use",
        ),
    ),
)
