"""Starts JupyterLab without the settings of whoever starts it, and ends it with all below it.

Where Notebook 7 is installed, the same server has it, too.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_core.paths import ENV_JUPYTER_PATH, SYSTEM_JUPYTER_PATH
from jupyterlab_server.config import get_federated_extensions

from ..anew import BEGIN, make_new

#: Runs a command to which Linux sends SIGTERM when the process that started it ends, also when that
#: process is killed. A server that gets SIGTERM ends its kernels, too.
_ENDING_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
parent, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit(1)
os.execv(command[0], command)
"""
_START_LIMIT_S, _STOP_LIMIT_S, _ANSWER_LIMIT_S = 90.0, 10.0, 60.0
#: For chromium: no sandbox (CI is root), no GPU, and nothing beyond this machine has an address. A
#: key scrolls at once: on a busy machine, a smooth scrolling goes on for as long as a test looks.
BROWSER_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-smooth-scrolling",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
_CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_EXTENSION = "ddt-notebook"
_KERNEL = "python3"
_APPS = ("LabApp", "JupyterNotebookApp")
#: No news are fetched, and nothing asks before it acts.
_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
}


@dataclass(frozen=True)
class Lab:
    """A running server."""

    url: str
    token: str
    folder: Path
    #: The session and the kernel that wait for the next notebook.
    kept: dict[str, str] = field(default_factory=dict)

    def write(self, name: str, *cells: str, kernel: str = _KERNEL) -> str:
        """Write a notebook of code cells, and return its name."""
        notebook = {
            "cells": [
                {
                    "cell_type": "code",
                    "id": f"cell-{number}",
                    "metadata": {},
                    "source": source,
                    "outputs": [],
                    "execution_count": None,
                }
                for number, source in enumerate(cells)
            ],
            "metadata": {
                "kernelspec": {"name": kernel, "display_name": kernel},
            },
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        (self.folder / name).write_text(json.dumps(notebook))
        return name

    def wait_for_file(self, name: str) -> None:
        """Wait until a kernel has written a file of JSON."""
        deadline = time.monotonic() + _ANSWER_LIMIT_S
        while time.monotonic() < deadline:
            with suppress(ValueError, OSError):  # not yet, or not yet whole
                json.loads((self.folder / name).read_text())
                return
            time.sleep(0.1)
        raise RuntimeError(f"{name} was not written within {_ANSWER_LIMIT_S:.0f} s")

    def add_kernel(self, name: str, language: str, source: str) -> None:
        """Install a kernel that this program is."""
        folder = self.folder.parent / "data" / "kernels" / name
        folder.mkdir(parents=True)
        (folder / "kernel.py").write_text(source)
        argv = [sys.executable, str(folder / "kernel.py"), "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": name, "language": language}
        (folder / "kernel.json").write_text(json.dumps(spec))

    def ask(self, path: str, method: str = "GET", content: Any = None) -> Any:
        """Send a request to the server's REST interface."""
        request = urllib.request.Request(
            f"{self.url}api/{path}",
            headers={"Authorization": f"token {self.token}"},
            method=method,
            data=None if content is None else json.dumps(content).encode(),
        )
        with urllib.request.urlopen(request, timeout=_ANSWER_LIMIT_S) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def kernels(self) -> list[str]:
        """The kernels of this test."""
        kept = self.kept.values()
        return [kernel["id"] for kernel in self.ask("kernels") if kernel["id"] not in kept]

    def end_kernels(self, *, keep: bool = False) -> None:
        """End all kernels, as a person would before the next notebook; keep one, if wanted."""
        if not keep:
            self.kept.clear()
        for session in self.ask("sessions"):
            name, kernel = session["id"], session["kernel"]
            if keep and not self.kept and self._becomes_new(kernel):
                self.kept[name] = kernel["id"]
                self._rename(name, "kept")
            if name not in self.kept:
                self.ask(f"sessions/{name}", "DELETE")

    def lend_kernel(self, name: str) -> None:
        """Give a notebook the kernel that was kept: the front end finds the session by its path."""
        wanted = json.loads((self.folder / name).read_text())["metadata"]["kernelspec"]["name"]
        if self.kept and wanted == _KERNEL:
            session, _ = self.kept.popitem()
            try:
                self._rename(session, name)
            except HTTPError as error:
                if error.code != HTTPStatus.NOT_FOUND:
                    raise
                # its kernel has ended meanwhile: the front end starts another one

    def _becomes_new(self, kernel: dict[str, str]) -> bool:
        """Whether a kernel of Python is idle, and nothing of this test is left in it."""
        if (kernel["name"], kernel["execution_state"]) != (_KERNEL, "idle"):
            return False
        runtime = self.folder.parent / "runtime"
        client = BlockingKernelClient(connection_file=str(runtime / f"kernel-{kernel['id']}.json"))
        client.load_connection_file()
        client.start_channels()
        try:
            return make_new(client)
        finally:
            client.stop_channels()

    def _rename(self, session: str, name: str) -> None:
        self.ask(f"sessions/{session}", "PATCH", {"path": name, "name": name})


def find_chromium() -> str | None:
    """Path of the browser, None if there is none."""
    named = os.environ.get("DDT_CHROMIUM")
    return named or next(filter(None, map(shutil.which, _CHROMIUM)), None)


@contextmanager
def running_lab(home: Path, bundle: Path | None, neighbours: Path | None = None) -> Iterator[Lab]:
    """A server on the loopback interface.

    Parameters
    ----------
    home
        An empty folder for all that it writes.
    bundle
        The built extension; None: JupyterLab without it.
    neighbours
        A folder of other extensions, as `pip install --target` makes it.
    """
    folders = {
        name: home / name for name in ("notebooks", "extensions", "settings", "runtime", "config")
    }
    for folder in folders.values():
        folder.mkdir()
    for name, installed in _other_extensions(neighbours).items():
        (folders["extensions"] / name).parent.mkdir(exist_ok=True)
        (folders["extensions"] / name).symlink_to(installed)
    if bundle is not None:
        (folders["extensions"] / _EXTENSION).symlink_to(bundle)
    begin = home / "ipython" / "profile_default" / "startup" / "begin.py"
    begin.parent.mkdir(parents=True)
    begin.write_text(BEGIN)
    for plugin, values in _SETTINGS.items():
        scope, name = plugin.split(":")
        target = folders["settings"] / scope / f"{name}.jupyterlab-settings"
        target.parent.mkdir(parents=True)
        target.write_text(json.dumps(values))
    token = secrets.token_hex(16)
    command = [
        *(sys.executable, "-c", _ENDING_WITH_PARENT, str(os.getpid())),
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *("--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--IdentityProvider.token={token}"),
        *(f"--{app}.labextensions_path={folders['extensions']}" for app in _APPS),
        *(f"--{app}.expose_app_in_browser=True" for app in _APPS),
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
        f"--ServerApp.jpserver_extensions=ddt_notebook.server={bundle is not None}",
        f"--ServerApp.root_dir={folders['notebooks']}",
    ]
    environment = os.environ | {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folders["config"]),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(folders["runtime"]),
        "JUPYTERLAB_SETTINGS_DIR": str(folders["settings"]),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    if neighbours is not None:
        paths = (str(neighbours), environment.get("PYTHONPATH"))
        environment |= {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "JUPYTER_PATH": str(neighbours / "share" / "jupyter"),
            "JUPYTER_CONFIG_PATH": str(neighbours / "etc" / "jupyter"),
        }
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            url = _address(server, folders["runtime"], home / "server.log")
            yield Lab(url=url, token=token, folder=folders["notebooks"])
        finally:
            _end(server)


def _other_extensions(neighbours: Path | None) -> dict[str, Path]:
    """Where the extensions of other projects are installed, by name.

    Ours may be installed, too, and maybe not the one that is asked for: a disabled extension is
    fetched all the same, so it has to be out of JupyterLab's sight.
    """
    shared = dict.fromkeys([*ENV_JUPYTER_PATH, *SYSTEM_JUPYTER_PATH])
    if neighbours is not None:
        shared[str(neighbours / "share" / "jupyter")] = None
    known = get_federated_extensions([str(Path(folder) / "labextensions") for folder in shared])
    return {name: Path(about["ext_path"]) for name, about in known.items() if name != _EXTENSION}


def _address(server: subprocess.Popen[bytes], runtime: Path, log: Path) -> str:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        for found in runtime.glob("jpserver-*.json"):
            with suppress(ValueError, OSError):  # it is being written, or nobody listens yet
                url = str(json.loads(found.read_text())["url"])
                _listens(url)
                return url
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start:\n{log.read_text()[-4000:]}")


def _listens(url: str) -> None:
    """Raise an OSError if no server answers there."""
    to = urlsplit(url)
    socket.create_connection((to.hostname, to.port), timeout=_ANSWER_LIMIT_S).close()


def _end(server: subprocess.Popen[bytes]) -> None:
    """End the server and every kernel and rank below it."""
    family = []
    if server.poll() is None:
        family = psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(timeout=_STOP_LIMIT_S)
    _, alive = psutil.wait_procs(family, timeout=_STOP_LIMIT_S)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=_STOP_LIMIT_S)
