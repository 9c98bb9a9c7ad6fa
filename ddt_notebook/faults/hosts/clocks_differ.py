"""The clocks of the hosts show different times."""

from ddt_notebook.faults.card import Advice, Reference
from ddt_notebook.faults.host_card import HostCard

CARD = HostCard(
    id="clocks-differ",
    title="the clocks of the hosts show different times",
    symptoms=("D.2.1",),
    sees="""
        In the merged logs, effects come before their causes, and a loop that ends at a time of day
        ends earlier on the ranks of one host, while the others wait in the next collective.
    """,
    why="""
        Each host has a clock of its own. Without a time service they drift by seconds a day, and a
        machine that was suspended or has an empty battery may be off by years. Certificates and
        files with dates suffer, too.
    """,
    agent="faketime --exclude-monotonic -m -f +120s",
    check="clocks",
    fixes=(
        Advice(
            "fix network setting",
            "let a time service (chrony, systemd-timesyncd) set the clocks; `chronyc tracking` "
            "shows how far a host is off",
        ),
        Advice(
            "fix behavior logic",
            "let one rank decide when to stop and send its decision to the others, and measure "
            "durations with `time.monotonic()` on one host",
        ),
    ),
    cluster="""
        Nodes without access to the internet and without a time server of the cluster. Reports of
        ddt_notebook put all times on one clock; logs of other programs do not.
    """,
    apart={"loop-ends-by-clock": "the clocks agree, and ranks still look at them at other moments"},
    references=(
        Reference("chrony: frequently asked questions", "https://chrony-project.org/faq.html"),
    ),
)
