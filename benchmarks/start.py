"""How long four ranks with a process group take to start from a warm fork server and to restart."""

from __future__ import annotations

from ddt_notebook.host.session import Session

from . import peers
from .common import RANKS, Figure, median_of, quantity, seconds, session, warm_up


def measure() -> list[Figure]:
    warm_up()

    def start_once() -> float:
        opened: list[Session] = []
        took = seconds(lambda: opened.append(Session(RANKS)))
        opened[0].stop()
        return took

    started, start_note = median_of(start_once, 9)
    with session() as active:
        restarted, restart_note = median_of(lambda: seconds(active.restart), 9)
    others = {
        "torchrun": peers.torchrun_ready_s,
        "multiprocessing spawn": peers.spawn_ready_s,
        "ipyparallel": peers.ipyparallel_ready_s,
    }
    theirs = {name: quantity(median_of(once, 3)[0], "s") for name, once in others.items()}
    return [
        Figure("4 ranks ready, group formed, warm", started, 0.5, "s", theirs, start_note),
        Figure("restart of 4 ranks", restarted, 0.5, "s", note=restart_note),
    ]


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
