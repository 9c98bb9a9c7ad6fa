"""Measure the memory of a JupyterLab server that has a notebook open, for the guide's table.

python tools/measure_server.py --table docs/figures.json
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from measuring import pss_of_tree
from tables import update

ROOT = Path(__file__).resolve().parent.parent
START_S = 60
NOTEBOOK = "01-tour.ipynb"


def main() -> int:
    """Start a server as on Binder, load a notebook from it, and record its memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", type=Path, metavar="FILE.json", help="add the figure to it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        with log.open("w") as file:
            server = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root"),
                    *("--ip=127.0.0.1", "--port=0", "--ServerApp.token=measure"),
                    f"--config={ROOT / 'binder' / 'jupyter_server_config.py'}",
                ],
                cwd=ROOT / "notebooks",
                env=os.environ | {"JUPYTER_RUNTIME_DIR": folder},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            address = _address(log)
            for path in ("/lab", f"/api/contents/{NOTEBOOK}", "/api/kernelspecs"):
                _get(address + path)
            time.sleep(2)
            megabytes = round(pss_of_tree(server.pid) / 1e6)
        finally:
            server.terminate()
            server.wait(timeout=30)
    print(f"server: {megabytes} MB")
    if options.table:
        update(options.table, {"server_megabytes": megabytes})
    return 0


def _address(log: Path) -> str:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return found[0]
        time.sleep(0.2)
    raise TimeoutError(f"the server did not start in {START_S} s:\n{log.read_text()}")


def _get(address: str) -> object:
    request = urllib.request.Request(address, headers={"Authorization": "token measure"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if "/api/" in address else text


if __name__ == "__main__":
    sys.exit(main())
