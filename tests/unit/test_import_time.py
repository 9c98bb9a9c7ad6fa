"""`import ddt_notebook` loads no heavy module; benchmarks/import_time.py measures its time."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "numpy", "pandas", "plotly", "IPython", "ipywidgets", "psutil", "asyncio"}
#: What processes of ranks, which import the package too, do not need.
OF_THE_NOTEBOOK = ("ddt_notebook.diagnosis", "ddt_notebook.views.words", "ddt_notebook.faults")
PROGRAM = """
import sys
before = set(sys.modules)
import ddt_notebook
print(*sorted(set(sys.modules) - before))
"""


def test_import_is_light() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "ddt_notebook" in loaded
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
    assert not {name for name in loaded if name.startswith(OF_THE_NOTEBOOK)}
