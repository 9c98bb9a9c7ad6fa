"""The process that serves a session's store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


#: Forks a server for each case, uses it as a client, and prints whether a Unix socket is behind it.
SERVE = """
import ctypes, json, os, signal, socket
from datetime import timedelta
import psutil
import torch.distributed as dist
from ddt_notebook.rank import store_server
from ddt_notebook.rank.probes import peers

def refused(*args):
    raise OSError("refused")

def without_netlink():
    real = socket.socket
    def opened(family=socket.AF_INET, *args, **kwargs):
        return refused() if family == socket.AF_NETLINK else real(family, *args, **kwargs)
    peers.socket.socket = opened

changes = {
    "as it is": lambda: None,
    "no such family": lambda: delattr(socket, "AF_NETLINK"),
    "refused by the system": without_netlink,
    "another torch": lambda: setattr(store_server, "_bytes_of", lambda _: b"xx"),
}
folders = {"no folder": "/nowhere/at/all"}
found = {}
for name in (*changes, *folders):
    listener = store_server.listen("127.0.0.1")
    port = listener.getsockname()[1]
    server = os.fork()
    if not server:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with the process that started it
        try:
            changes.get(name, lambda: None)()
            store_server.serve(listener, folders.get(name, ""))
        finally:
            os._exit(1)
    listener.close()
    try:
        store = dist.TCPStore("127.0.0.1", port, timeout=timedelta(seconds=60))
        store.set("key", name)
        assert store.get("key").decode() == name
        behind = psutil.Process(server).net_connections("unix")
        found[name] = any(one.laddr == os.fsdecode(port.to_bytes(2, "big")) for one in behind)
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
print(json.dumps(found))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, PyTorch serves it anyway")
def test_where_the_system_does_not_tell_who_connects_the_store_is_served_as_by_pytorch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE], capture_output=True, text=True, timeout=100, check=True
    )
    found: dict[str, bool] = json.loads(done.stdout)
    assert {name for name, behind in found.items() if behind} == {"as it is"}
    assert len(found) == 5
    assert "No such file or directory: '/nowhere/at/all/" in done.stderr, "the cause is shown"
