"""Confines a process to some files, for code that nobody has read (Linux's Landlock).

The kernel enforces it for this process, its threads and what they start, also against code in C and
against root. Nothing can undo it. Processes outside can be neither traced nor signalled any more.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

#: System calls have these numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH, _NO_NEW_PRIVILEGES = 1, 1, 38
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
#: What may be done to a file, and what only to a folder: truncation came with version 3, control
#: of devices with 5, renaming across folders with 2.
_OF_FILES = _EXECUTE | _WRITE | _READ | 1 << 14 | 1 << 15
_RIGHTS_OF_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
#: Since version 6, abstract sockets and signals do not reach processes outside.
_SCOPES, _SCOPED_SINCE, _NETWORK_SINCE = 0b11, 6, 4
#: What Python and its libraries read of a system.
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/proc", "/sys", "/dev/urandom", "/dev/random")
_SETTINGS = ("ld.so.cache", "localtime", "hosts", "nsswitch.conf", "passwd", "group")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/shm")  # noqa: S108  (nothing is made)


def version() -> int:
    """The version of Landlock; 0 if the kernel has none or has switched it off."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION)))


def confine(folder: Path) -> bool:
    """Let this thread, and what it starts, read only Python and the system, and write one folder.

    Other threads of the process are not confined: it has to run before there are any.

    Parameters
    ----------
    folder
        The folder in which files may be read and written.

    Returns
    -------
    bool
        Whether the kernel enforces it from now on.
    """
    known = version()
    if not known:
        return False
    rights = _RIGHTS_OF_VERSION[max(v for v in _RIGHTS_OF_VERSION if v <= known)]
    scopes = _SCOPES if known >= _SCOPED_SINCE else 0
    fields = 3 if scopes else 2 if known >= _NETWORK_SINCE else 1
    libc = _libc()
    asked = struct.pack("=QQQ", rights, 0, scopes)[: 8 * fields]
    rules = libc.syscall(_CREATE_RULESET, asked, len(asked), 0)
    if rules < 0:
        return False
    try:
        for path in _readable():
            _allow(libc, rules, path, rights & (_EXECUTE | _READ | _LIST))
        for name in (str(folder), *_DEVICES):
            _allow(libc, rules, name, rights)
        if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            return False
        return not libc.syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _readable() -> Iterator[str]:
    yield from _SYSTEM
    yield from (f"/etc/{name}" for name in _SETTINGS)
    yield from {sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(__file__).parents[1])}
    yield from _libraries(sys.path)


def _libraries(paths: Iterable[str]) -> Iterator[str]:
    """Where packages are installed; other folders on the path may hold anything."""
    standard = set(sysconfig.get_paths().values())
    for path in paths:
        if Path(path).name in ("site-packages", "dist-packages") or path in standard:
            yield path


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    with suppress(OSError):  # this system has no such file
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = rights if Path(path).is_dir() else rights & _OF_FILES
            rule = struct.pack("=Qi", allowed, opened)
            libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
        finally:
            os.close(opened)
