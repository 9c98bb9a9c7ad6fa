"""What 64 hosts with 8 ranks each cost the notebook; the agents are real, their ranks only answer.

All of them run on this machine, so that their own work is in these times.
"""

from __future__ import annotations

import resource
import subprocess

from ddt_notebook import diagnose
from ddt_notebook.host.joining import Joining
from ddt_notebook.host.session import Session
from tests.multiprocess.simulated_hosts import start_all

from .common import Figure, check, seconds

HOSTS, RANKS_EACH, _PROCESSES = 64, 8, 4
_JOIN_LIMIT_S = 120.0


def measure() -> list[Figure]:
    """Measure."""
    started: list[subprocess.Popen[bytes]] = []

    def say(text: str) -> None:
        if not started:
            started.extend(start_all(text, HOSTS, _PROCESSES))

    size = f"{HOSTS} hosts × {RANKS_EACH} simulated ranks"
    ranks = HOSTS * RANKS_EACH
    try:
        place = Joining(ranks, HOSTS, "127.0.0.1", limit_s=_JOIN_LIMIT_S, say=say).place()
        sessions: list[Session] = []
        ready_s = seconds(lambda: sessions.append(Session(ranks, hosts=place)))
        (session,) = sessions
        with session:
            first_s = seconds(lambda: session.run("pass"))
            cell_s = seconds(lambda: session.run("pass"))
            run = session.last_run
            assert run is not None
            check(len(run.snapshot.hosts) == ranks, "a rank is missing")
            snapshot_s = seconds(lambda: (run.snapshot.to_json(), diagnose(run)))
            status_s = seconds(session.status)
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    finally:
        for process in started:
            process.kill()
            process.wait(60)
    return [
        Figure(f"{size}: ready, after the agents are up", ready_s, 5.0, "s"),
        Figure(f"{size}: the first cell", first_s, 5.0, "s"),
        Figure(f"{size}: a cell", cell_s, 5.0, "s"),
        Figure(f"{size}: its snapshot as JSON, and the diagnosis", snapshot_s, 5.0, "s"),
        Figure(f"{size}: the state of all ranks", status_s, 5.0, "s"),
        Figure(f"{size}: memory of the notebook", peak_mb, 500.0, "MB"),
    ]


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
