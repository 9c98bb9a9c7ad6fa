"""An unused server with the image's settings ends, and so does everything that it started."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient

#: Six seconds: a kernel has to come up in them.
IDLE_MINUTES = "0.1"
LIMIT_S = 60.0
#: The server looks once a minute whether anybody is there; here, each second.
SERVER = """
import sys
from jupyter_server import serverapp
from tornado import ioloop

class EachSecond(ioloop.PeriodicCallback):
    def __init__(self, callback, milliseconds, *rest):
        super().__init__(callback, min(milliseconds, 1000), *rest)

ioloop.PeriodicCallback = EachSecond
sys.exit(serverapp.main(sys.argv[1:]))
"""
START = "%load_ext ddt_notebook\n%ddt_start -n 2"


class Server:
    """A Jupyter server as a container of the image starts it."""

    def __init__(self, root: Path, home: Path) -> None:
        settings = home / "etc"
        settings.mkdir()
        shutil.copy(root / "binder" / "jupyter_server_config.py", settings)
        self._runtime = home / "runtime"
        environment = os.environ | {
            "DDT_IDLE_MINUTES": IDLE_MINUTES,
            "HOME": str(home),
            "JUPYTER_CONFIG_DIR": str(settings),
            "JUPYTER_RUNTIME_DIR": str(self._runtime),
            "JUPYTER_TOKEN": "secret",
        }
        options = ["--port=0", "--no-browser", "--allow-root", f"--ServerApp.root_dir={home}"]
        self.log = home / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [root / "binder" / "start", sys.executable, "-c", SERVER, *options],
                cwd=home,
                env=environment,
                stderr=log,
            )

    def _url(self) -> str:
        """Wait until the server listens, and return its address."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            for file in self._runtime.glob("jpserver-*.json"):
                with contextlib.suppress(json.JSONDecodeError, OSError):  # it is not ready yet
                    info = json.loads(file.read_text())
                    socket.create_connection((info["hostname"], info["port"]), LIMIT_S).close()
                    return str(info["url"])
            time.sleep(0.05)
        raise TimeoutError(f"the server does not answer: {self.log.read_text()}")

    def start_kernel(self) -> BlockingKernelClient:
        """A client of a new kernel."""
        request = urllib.request.Request(
            f"{self._url()}api/kernels",
            data=b'{"name": "python3"}',
            headers={"Authorization": "token secret"},
        )
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            info: dict[str, Any] = json.load(answer)
        client = BlockingKernelClient()
        client.load_connection_file(str(self._runtime / f"kernel-{info['id']}.json"))
        client.start_channels()
        return client

    def end(self) -> None:
        """End it, and what is left below it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.kill()
        self.process.wait(LIMIT_S)


@pytest.fixture
def server(root: Path, tmp_path: Path) -> Iterator[Server]:
    made = Server(root, tmp_path)
    yield made
    made.end()


def test_a_server_that_nobody_uses_ends_with_all_its_ranks(server: Server) -> None:
    client = server.start_kernel()
    reply = client.execute(START, reply=True, timeout=LIMIT_S)
    assert reply["content"]["status"] == "ok"
    client.stop_channels()
    below = psutil.Process(server.process.pid).children(recursive=True)
    assert len(below) >= 4, "a kernel, a fork server and two ranks"
    assert server.process.wait(LIMIT_S) == 0
    log = server.log.read_text()
    assert "Culling 'idle' kernel" in log
    assert "shutting down" in log
    assert not psutil.wait_procs(below, timeout=5)[1]
