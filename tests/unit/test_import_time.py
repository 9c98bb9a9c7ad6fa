"""`import ddt_notebook` costs nothing that a notebook would notice."""

from __future__ import annotations

import subprocess
import sys

LIMIT_S = 0.150
HEAVY = {"torch", "numpy", "pandas", "plotly", "IPython", "ipywidgets", "psutil", "asyncio"}
PROGRAM = """
import sys, time
before = set(sys.modules)
start = time.perf_counter()
import ddt_notebook
took = time.perf_counter() - start
print(took, *sorted({name.split(".")[0] for name in set(sys.modules) - before}))
"""


def import_once() -> tuple[float, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    took, *modules = done.stdout.split()
    return float(took), set(modules)


def test_import_is_quick_and_light() -> None:
    runs = [import_once() for _ in range(5)]
    # The best of five: on a busy machine the others measure the machine.
    assert min(took for took, _ in runs) <= LIMIT_S
    assert not HEAVY & runs[0][1]
