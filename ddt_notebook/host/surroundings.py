"""What in the surroundings of a session explains that it cannot start, and what to change."""

from __future__ import annotations

import os
import re
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from .errors import SessionError

_MB = 1 << 20
#: Less than this in the folder for temporary files is too little for the logs of a few ranks.
_LITTLE_BYTES = 16 * _MB


#: What is wrong if `tempfile` finds no folder, and what to do.
_NO_FOLDER = "there is no folder for temporary files that can be written"
_SET_TMPDIR = "set TMPDIR to one"


def temporary_folder() -> str:
    """The folder for temporary files.

    Raises
    ------
    SessionError
        If there is none that can be written.
    """
    try:
        return tempfile.gettempdir()
    except OSError as error:
        raise SessionError(_NO_FOLDER, _SET_TMPDIR) from error


def advice(error: str) -> str:
    """What to change so that an error at the start does not occur again; empty if nothing is known.

    Parameters
    ----------
    error
        The text of the error, which names a cause only together with what is found here.
    """
    return "; ".join(_found(error))


def _found(error: str) -> Iterator[str]:
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    interfaces = psutil.net_if_addrs()
    if unknown := [name for name in interface.split(",") if name and name not in interfaces]:
        yield (
            f"GLOO_SOCKET_IFNAME is {interface}, but this machine has no network interface "
            f"{', '.join(unknown)}: unset it"
        )
    if "no answer" in error and not any(
        stats.isup and name.startswith("lo") for name, stats in psutil.net_if_stats().items()
    ):
        yield "the loopback interface is down: bring it up (ip link set lo up)"
    if re.search(r"File too large|signal 25|status -25", error):
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        yield f"files may have at most {limit} bytes here: raise the limit (ulimit -f unlimited)"
    if re.search(r"start new thread|Resource temporarily unavailable|Errno 11\b", error):
        limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        shown = f"at most {limit}" if limit != resource.RLIM_INFINITY else "a limited number of"
        yield f"this user may have {shown} processes and threads: raise the limit (ulimit -u)"
    if re.search(r"Too many open files", error):
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield f"a process may have at most {limit} files open: raise the limit (ulimit -n 1024)"
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and re.search(r"(?i)memory|failed to map|bad_alloc", error):
        yield (
            f"a process may use at most {limit // _MB} MB of addresses, and torch needs 2000 MB: "
            "raise the limit (ulimit -v unlimited)"
        )
    if "/dev/null" in error and not Path(os.devnull).exists():
        yield "/dev/null is missing: make it (mknod -m 666 /dev/null c 1 3)"
    yield from _about_temporary_files(error)


def _about_temporary_files(error: str) -> Iterator[str]:
    if not re.search(r"status -7\b|signal 7\b|No space left|Read-only|temporary directory", error):
        return
    try:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
    except OSError:
        yield f"{_NO_FOLDER}: {_SET_TMPDIR}"
        return
    if free < _LITTLE_BYTES:
        yield (
            f"{folder}, where temporary files go, has {free / _MB:.1f} MB free: free some, or set "
            "TMPDIR to another folder"
        )
