"""The connection of one host is slower than those of the others."""

from ddt_notebook.faults.card import Advice, Reference
from ddt_notebook.faults.host_card import HostCard

CARD = HostCard(
    id="slow-host",
    title="one host or its connection is slower than the others",
    symptoms=("D.2.3",),
    sees="""
        Everything works, and each step takes as long as the slowest host or connection needs. More
        hosts make the training slower instead of faster.
    """,
    why="""
        A collective ends when its last part has arrived. A cable that negotiated 1 Gbit/s, a port
        with errors, a shared link, or a processor that runs hot delays all ranks alike, so that no
        rank's own numbers look wrong.
    """,
    commands=("tc qdisc replace dev eth0 root tbf rate 20mbit burst 32k latency 400ms",),
    undo=("tc qdisc del dev eth0 root",),
    check="bandwidth of",
    bandwidth=True,
    fixes=(
        Advice(
            "change hardware",
            "compare speed and errors of the interfaces (`ethtool NAME`, `ip -s link`), the cable "
            "and the port of the switch; take the host out of the job until it is repaired",
        ),
    ),
    cluster="""
        Step times grow when one node joins, whichever ranks it has. `ddt.doctor(bandwidth=True)`
        shows each connection; nccl-tests do the same for NCCL's own way.
    """,
    apart={
        "straggler-compute": "one rank computes longer, and the connections are equal",
        "full-packets-lost": "long messages never arrive",
    },
    references=(Reference("NCCL tests", "https://github.com/NVIDIA/nccl-tests"),),
)
