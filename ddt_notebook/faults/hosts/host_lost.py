"""A host vanishes while its ranks take part."""

from ddt_notebook.faults.card import Advice, Reference
from ddt_notebook.faults.host_card import HostCard

CARD = HostCard(
    id="host-lost",
    title="a host vanished from the network",
    symptoms=("D.1.11", "D.2.1"),
    sees="""
        The ranks of the other hosts wait, and without a watcher nothing says so until a time limit
        passes, 10 to 30 minutes later. Nothing arrives, not even the end of a connection.
    """,
    why="""
        A host that crashes, loses power or its cable, or is taken away by a provider cannot close
        its connections. TCP alone waits for hours.
    """,
    commands=("ip link set eth0 down",),
    cell="dist.barrier()",
    cause="host-lost",
    check="node2",
    fixes=(
        Advice(
            "fix network setting",
            "find out whether the host still runs and can be reached, and whether its "
            "`ddt-notebook agent` was ended (by a scheduler's time limit, a closed ssh connection "
            "or too little memory); then start the session again with all hosts",
        ),
    ),
    cluster="""
        Preempted instances, a node that the scheduler drained, a kernel that ran out of memory.
        torchrun with `--max-restarts` and checkpoints let the job go on without it.
    """,
    apart={"killed-from-outside": "the host still answers, and only a process of it has ended"},
    references=(
        Reference(
            "torchrun: fault tolerance",
            "https://docs.pytorch.org/docs/stable/elastic/run.html",
        ),
    ),
)
