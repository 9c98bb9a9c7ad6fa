"""A firewall lets the store through, and not the data."""

from ddt_notebook.faults.card import Advice, Reference
from ddt_notebook.faults.host_card import HostCard

CARD = HostCard(
    id="hosts-not-connected",
    title="ranks of different hosts reach the store and not each other",
    symptoms=("B.2", "B.1"),
    sees="""
        All ranks enter the set-up of the group, and after its time limit all of them raise
        "connectFullMesh failed" with "Connect timeout". If the firewall rejects instead of
        dropping, it is "Connection refused", at once.
    """,
    why="""
        MASTER_PORT is one port, which an administrator has opened. The backends then connect each
        rank with each other one at free ports of their own, which nobody has opened.
    """,
    commands=(
        "nft add table inet ddt",
        "nft 'add chain inet ddt in {{ type filter hook input priority 0; }}'",
        "nft 'add rule inet ddt in ip saddr {node1} tcp flags & (syn | ack) == syn drop'",
        "nft 'add chain inet ddt out {{ type filter hook output priority 0; }}'",
        "nft 'add rule inet ddt out ip daddr {node1} tcp flags & (syn | ack) == syn drop'",
    ),
    undo=("nft delete table inet ddt",),
    cell="""
        from datetime import timedelta

        group = dist.new_group(timeout=timedelta(seconds=4))
        total = torch.ones(1)
        dist.all_reduce(total, group=group)
    """,
    cause="hosts-not-connected",
    check="node1 → node2",
    fixes=(
        Advice(
            "fix network setting",
            "let all TCP ports through between the hosts of the job (`nft list ruleset`, or the "
            "security group in a cloud): the store's port alone is not enough",
        ),
        Advice(
            "fix network setting",
            "or choose a network without a firewall between the hosts: GLOO_SOCKET_IFNAME and "
            "NCCL_SOCKET_IFNAME",
        ),
    ),
    cluster="""
        `init_process_group` seems to begin well: the launcher finds all nodes. Security groups of
        clouds and the firewalls of workstations are the usual places.
    """,
    apart={
        "loopback-address": "the address in the message begins with 127",
        "interface-of-another-network": "no firewall is involved: there is no way to the address",
        "full-packets-lost": "the group is formed, and the first long message is lost",
    },
    references=(
        Reference(
            "torch.distributed: TCPStore and initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#initialization",
        ),
        Reference(
            "NCCL: environment variables for sockets and port ranges",
            "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
        ),
    ),
)
