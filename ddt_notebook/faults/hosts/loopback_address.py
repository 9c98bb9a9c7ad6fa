"""A host gives the other hosts an address that leads to themselves."""

from ddt_notebook.faults.card import Advice, Reference
from ddt_notebook.faults.host_card import HostCard

CARD = HostCard(
    id="loopback-address",
    title="a host offers the others its loopback address",
    symptoms=("B.2", "B.1"),
    sees="""
        All ranks reach the store. Then the ranks of one host raise "connectFullMesh failed" with
        "Connection refused, remote=[127.0.1.1]", or the ranks wait until a time limit passes.
    """,
    why="""
        Each rank publishes the address at which the others shall connect. Without an interface,
        gloo takes what the host's own name resolves to. Debian and Ubuntu write 127.0.1.1 for it
        into /etc/hosts, an address at which every host reaches itself. GLOO_SOCKET_IFNAME=lo has
        the same effect.
    """,
    commands=("""echo "$(sed 's/^.* node2$/127.0.1.1 node2/' {names})" > {names}""",),
    undo=("""echo "$(sed 's/^.* node2$/{node2} node2/' {names})" > {names}""",),
    cell="""
        import os
        from datetime import timedelta

        chosen = os.environ.pop("GLOO_SOCKET_IFNAME")
        try:
            group = dist.new_group(timeout=timedelta(seconds=20))
        finally:
            os.environ["GLOO_SOCKET_IFNAME"] = chosen
        total = torch.ones(1)
        dist.all_reduce(total, group=group)
    """,
    cause="loopback-address",
    check="name of node2",
    fixes=(
        Advice(
            "fix network setting",
            "set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) on every host to the interface that "
            "the hosts share, as `ip -br address` shows it, and never to `lo`",
        ),
        Advice(
            "fix network setting",
            "or let the name resolve to the address in the network: replace the 127.0.1.1 line of "
            "/etc/hosts; `getent hosts $(hostname)` shows what it is now",
        ),
    ),
    cluster="""
        The job runs on one node and fails on two. Only hosts that were installed by hand show it,
        since images for clouds mostly leave the line out.
    """,
    apart={
        "hosts-not-connected": "the address in the message belongs to the other host",
        "interface-of-another-network": "the address belongs to a network that others do not reach",
    },
    references=(
        Reference(
            "torch.distributed: choosing the network interface",
            "https://docs.pytorch.org/docs/stable/distributed.html#choosing-the-network-interface-to-use",
        ),
        Reference(
            "Debian Reference: the host name resolution",
            "https://www.debian.org/doc/manuals/debian-reference/ch05.en.html",
        ),
    ),
)
