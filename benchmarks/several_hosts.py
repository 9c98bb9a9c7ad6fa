"""What a session on two hosts costs beside one of as many local ranks, in turns.

The hosts are network namespaces of this machine, so the network itself takes no time. Needs the
right to make them.
"""

from __future__ import annotations

from ddt_notebook.host.joining import Joining
from ddt_notebook.host.session import Session
from ddt_notebook.host.several_hosts import SeveralHosts
from tests.multiprocess.network import Network, Shown

from .common import RANKS, Figure, median_of, quantity, run_checked, seconds, warm_up

_JOIN_LIMIT_S = 300.0
_TURNS, _STARTS = 9, 3


def measure() -> list[Figure]:
    """Measure starts, restarts and round trips."""
    warm_up()
    network = Network()
    try:
        network.make()
        found = _starts(network)
        with Session(RANKS, hosts=_place(network)) as there, Session(RANKS) as here:
            return [*found, *_restarts(there, here), *_round_trips(there, here)]
    finally:
        network.remove()


def _place(network: Network) -> SeveralHosts:
    """Two hosts whose agents are up."""
    joining = Joining(RANKS, 2, network.address, limit_s=_JOIN_LIMIT_S, say=Shown(network))
    return joining.place()


def _starts(network: Network) -> list[Figure]:
    def once() -> float:
        place = _place(network)
        started: list[Session] = []
        took_s = seconds(lambda: started.append(Session(RANKS, hosts=place)))
        started[0].stop()
        return took_s

    took, note = median_of(once, _STARTS)
    return [Figure("2 hosts × 2 ranks: ready after the agents are up", took, 1.0, "s", note=note)]


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
