"""Asks what can show a running rank's state: py-spy, the job's store, the ranks' debug servers.

All answers are bounded in time and size. Nothing that arrives is unpickled.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: In seconds. py-spy takes 0.2 s; a debug server 0.02 s; importing torch 3 s, on a busy machine 20.
_PY_SPY_S, _HTTP_S, _STORE_S = 15.0, 5.0, 60.0
_MOST_BYTES = 1 << 26
_ADDRESS = re.compile(r"http://([\w.\-]{1,253}|\[[0-9a-fA-F:]{2,45}\]):(\d{1,5})/?")


@dataclass(frozen=True, slots=True)
class Store:
    """What a job's TCPStore shows.

    Attributes
    ----------
    joined
        Ranks that have joined the default group, as far as its backend leaves keys.
    servers
        Addresses of the ranks' debug servers.
    problem
        Why it could not be read; empty if it could.
    """

    joined: tuple[int, ...] = ()
    servers: Mapping[int, str] = field(default_factory=dict)
    problem: str = ""


def py_spy() -> str | None:
    """Path of py-spy, None if it is not installed."""
    beside = Path(sys.executable).parent / "py-spy" if sys.executable else None
    if beside is not None and beside.is_file():
        return str(beside)
    return shutil.which("py-spy")


def stack_of(tool: str, pid: int) -> tuple[str, str]:
    """What py-spy prints about a process, with local variables; and the reason if it cannot."""
    command = [tool, "dump", "--json", "--locals", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PY_SPY_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return "", lines[0][:200] if lines else f"exit status {done.returncode}"
    return done.stdout[:_MOST_BYTES], ""


def read_store(host: str, port: int) -> Store:
    """Ask a job's TCPStore who joined and where debug servers listen; it is only read."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-P", "-m", "ddt_notebook.rank.store_reader", host, str(port)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_STORE_S,
            check=False,
        )
        plain = json.loads(done.stdout.strip().splitlines()[-1])
        servers = {int(rank): str(address) for rank, address in plain["servers"].items()}
        return Store(tuple(map(int, plain["joined"])), servers)
    except subprocess.TimeoutExpired:
        return Store(problem=f"it did not answer within {_STORE_S:.0f} s")
    except OSError as error:
        return Store(problem=str(error))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return Store(problem="it does not answer, or it is not a TCPStore")


def ask_server(address: str, handler: str) -> bytes:
    """What a rank's debug server answers; empty if it does not answer."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return b""
    host = found[1]
    if host == socket.gethostname():  # a name that may not resolve; it is this machine
        host = "127.0.0.1"
    url = f"http://{host}:{found[2]}/handler/{handler}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
    request = urllib.request.Request(url, data=b"", method="POST")
    try:
        with opener.open(request, timeout=_HTTP_S) as answer:
            data: bytes = answer.read(_MOST_BYTES + 1)
    except (OSError, ValueError):
        return b""
    return data if len(data) <= _MOST_BYTES else b""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: a debug server sends none."""

    def redirect_request(self, *_: object) -> None:
        return None
