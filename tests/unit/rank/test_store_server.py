"""The process that serves a session's store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LISTEN = """
from ddt_notebook.rank import store_server
with store_server.listen("127.0.0.1") as listener:
    store_server._unix_listener(listener, "")
"""


def test_without_a_folder_of_its_own_it_leaves_no_file_behind(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", LISTEN],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        timeout=100,
        check=True,
    )
    assert not list(tmp_path.iterdir())
