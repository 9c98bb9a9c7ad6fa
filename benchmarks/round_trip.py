"""How long an empty cell takes on four ranks."""

from __future__ import annotations

from . import peers
from .common import Figure, median_of, quantity, run_checked, seconds, session


def measure() -> list[Figure]:
    with session() as active:
        run_checked(active, "pass")
        took, note = median_of(lambda: 1e3 * seconds(lambda: active.run("pass")), 200)
    theirs = {"ipyparallel": quantity(1e3 * peers.ipyparallel_round_trip_s(200), "ms")}
    return [Figure("round trip of `pass` on 4 ranks", took, 3.0, "ms", theirs, note)]


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
