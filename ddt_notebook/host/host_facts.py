"""What an agent sees of its own host, for comparison with the other hosts of a session."""

from __future__ import annotations

import os
import platform
import queue
import shutil
import socket
import threading
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import psutil

from ..model.hosts import HostFacts

#: How long the answer of a name server is awaited.
RESOLVE_S = 3.0
SHARED = Path("/dev/shm")  # noqa: S108  (only its size is read)
#: What must have the same version on all hosts, by the names of the packages that bring it.
_PACKAGES = {
    "torch": ("torch",),
    "ddt_notebook": ("ddt-notebook",),
    "nccl": ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"),
}


def host_facts(
    address: str, interface: str, gloo_interface: str, variables: Iterable[str]
) -> HostFacts:
    """The facts of this host.

    Parameters
    ----------
    address, interface, gloo_interface, variables
        As in `HostFacts`; the names of the variables only.
    """
    name = socket.gethostname()
    try:
        known = tuple(resolve(name))
    except OSError:  # also TimeoutError
        known = ()
    states = psutil.net_if_stats()
    shared = shutil.disk_usage(SHARED) if SHARED.is_dir() else None
    return HostFacts(
        versions={"python": platform.python_version()} | _installed(),
        variables={one: os.environ[one] for one in variables if one in os.environ},
        name=name,
        name_addresses=known,
        gloo_interface=gloo_interface,
        address=address,
        interface=interface,
        mtu=states[interface].mtu if interface in states else 0,
        wall_s=time.time() - time.monotonic(),
        shared_bytes=shared.total if shared else None,
        shared_free=shared.free if shared else None,
    )


def _installed() -> dict[str, str]:
    found = {}
    for what, packages in _PACKAGES.items():
        for package in packages:
            try:
                found[what] = metadata.version(package)
                break
            except metadata.PackageNotFoundError:
                continue
    return found


def resolve(name: str) -> list[str]:
    """The addresses of a host; raises `TimeoutError` without an answer, `OSError` without one."""
    answers: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(name, None)
            answers.put(sorted({str(answer[4][0]).split("%")[0] for answer in found}))
        except OSError as error:
            answers.put(error)
        except UnicodeError as error:  # not a valid host name
            answers.put(OSError(str(error)))

    # a daemon thread: a name server that does not answer must not keep the process from exiting
    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=RESOLVE_S)
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer
