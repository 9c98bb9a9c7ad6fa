"""What a session on two hosts costs beside one of as many local ranks, in turns.

The hosts are network namespaces of this machine, so the network itself takes no time. Needs the
right to make them.
"""

from __future__ import annotations

from ddt_notebook.host.joining import Joining
from ddt_notebook.host.session import Session
from tests.multiprocess.network import Network

from .common import RANKS, Figure, median_of, quantity, run_checked, seconds, warm_up

_JOIN_LIMIT_S = 300.0
_TURNS = 9


def measure() -> list[Figure]:
    """Measure restarts and round trips; a restart is a start from agents that are there."""
    warm_up()
    network = Network()
    commands: list[str] = []

    def say(text: str) -> None:
        if not commands:
            commands.append(text)
            network.start_agents(text)

    try:
        network.make()
        joining = Joining(RANKS, 2, network.address, limit_s=_JOIN_LIMIT_S, say=say)
        with Session(RANKS, hosts=joining.place()) as there, Session(RANKS) as here:
            return [*_restarts(there, here), *_round_trips(there, here)]
    finally:
        network.remove()


def _restarts(there: Session, here: Session) -> list[Figure]:
    local: list[float] = []

    def once() -> float:
        local.append(seconds(here.restart))
        return seconds(there.restart)

    took, note = median_of(once, _TURNS)
    theirs = {f"{RANKS} local ranks": quantity(sorted(local)[len(local) // 2], "s")}
    return [Figure("2 hosts × 2 ranks: restart, group formed", took, 0.5, "s", theirs, note)]


def _round_trips(there: Session, here: Session) -> list[Figure]:
    local: list[float] = []
    for session in (there, here):
        run_checked(session, "pass")

    def once() -> float:
        local.append(1e3 * seconds(lambda: here.run("pass")))
        return 1e3 * seconds(lambda: there.run("pass"))

    took, note = median_of(once, 200)
    theirs = {f"{RANKS} local ranks": quantity(sorted(local)[len(local) // 2], "ms")}
    return [Figure("2 hosts × 2 ranks: round trip of `pass`", took, 5.0, "ms", theirs, note)]


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
