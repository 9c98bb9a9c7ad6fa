"""Packets of full size are lost between the hosts (a black hole of the path MTU)."""

from ddt_notebook.faults.card import Advice, Reference
from ddt_notebook.faults.host_card import HostCard

CARD = HostCard(
    id="full-packets-lost",
    title="packets of full size are lost between the hosts",
    symptoms=("D.1.1", "D.2.1"),
    sees="""
        The group is formed, a barrier and small tensors pass. The first large tensor never arrives;
        after some time, ranks raise "Connection timed out" or wait until their time limit.
    """,
    why="""
        Some part of the way carries smaller packets than the interfaces at its ends send: jumbo
        frames of 9000 bytes on a switch for 1500, a tunnel or an overlay network with a header of
        its own. The message that would say so is filtered, so that the sender repeats for ever.
    """,
    commands=(
        "nft add table inet ddt",
        "nft 'add chain inet ddt in {{ type filter hook input priority 0; }}'",
        "nft 'add rule inet ddt in ip saddr {node1} ip length > 1400 drop'",
        "nft 'add chain inet ddt out {{ type filter hook output priority 0; }}'",
        "nft 'add rule inet ddt out ip daddr {node1} ip length > 1400 drop'",
    ),
    undo=("nft delete table inet ddt",),
    check="node1 → node2",
    fixes=(
        Advice(
            "fix network setting",
            "set the same MTU on all interfaces and switches on the way, or a smaller one on all "
            "hosts (`ping -M do -s 1472 HOST` finds the largest size that passes)",
        ),
        Advice(
            "fix network setting",
            "let ICMP through (`fragmentation needed`), or set net.ipv4.tcp_mtu_probing=1",
        ),
    ),
    cluster="""
        ssh works and copies of files stall; overlay networks of containers, VPNs and jumbo frames
        on one node only are the usual places.
    """,
    apart={
        "hosts-not-connected": "not even the group is formed",
        "slow-host": "long messages arrive late, and they arrive",
    },
    references=(
        Reference(
            "RFC 2923: TCP problems with path MTU discovery",
            "https://www.rfc-editor.org/rfc/rfc2923",
        ),
    ),
)
