"""How long ``import ddt_notebook`` takes in a new interpreter."""

from __future__ import annotations

import subprocess
import sys

from .common import Figure, check, median_of

PROGRAM = """
import sys, time
start = time.perf_counter()
import ddt_notebook
print(time.perf_counter() - start, "torch" in sys.modules)
"""


def measure() -> list[Figure]:
    def once_ms() -> float:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
        )
        took, with_torch = done.stdout.split()
        check(with_torch == "False", "torch was imported")
        return 1e3 * float(took)

    took, note = median_of(once_ms, 11)
    return [Figure("`import ddt_notebook`, without torch", took, 150, "ms", note=note)]


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
