"""Notes that the main thread builds an extension of PyTorch, or waits while another process does.

The process that builds has made the file ``lock`` and keeps it open until it removes it; the others
ask again and again whether the file is still there. A process that is killed leaves it behind.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from ...model.rank import WaitsFor
from ..after_import import AfterImport
from ..training_thread import CURRENT

#: What compiles a source file, in the file that PyTorch writes for ninja.
_COMPILED = re.compile(r"^build (\S+\.o): ", re.MULTILINE)
#: A look at all open files of this user takes some milliseconds, so it is made only this often.
_LOOK_EVERY_S = 2.0
#: Characters that are read of that file.
_MOST_READ = 100_000


class Builds:
    """The lock for which the main thread waits, and the one that it has taken."""

    def __init__(self) -> None:
        self._awaited = self._taken = ""
        self._looked_s = float("-inf")
        self._holder: int | None = None
        self._tell: Callable[[WaitsFor, str, int | None], object] = lambda *_: None

    def tell(self, act: Callable[[WaitsFor, str, int | None], object]) -> None:
        """Tell ``act`` when a build or a wait begins; and with two empty strings, when it ends."""
        self._tell = act

    def watch(self, baton: Any) -> None:
        """Note the waits and locks of this class, PyTorch's ``FileBaton``."""
        wait, take, release = baton.wait, baton.try_acquire, baton.release

        @functools.wraps(wait)
        def waiting(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if not CURRENT.is_current:
                return wait(self_, *args, **kwargs)
            self._awaited, self._looked_s = _path(self_), float("-inf")
            self._tell(*self.awaited())
            try:
                return wait(self_, *args, **kwargs)
            finally:
                self._awaited = ""
                self._tell("", "", None)

        @functools.wraps(take)
        def taking(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            taken = take(self_, *args, **kwargs)
            if taken and CURRENT.is_current:
                self._taken = _path(self_)
                self._tell("build", str(Path(self._taken).parent), None)
            return taken

        @functools.wraps(release)
        def releasing(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if CURRENT.is_current:
                self._taken = ""
                self._tell("", "", None)
            return release(self_, *args, **kwargs)

        baton.wait, baton.try_acquire, baton.release = waiting, taking, releasing

    def awaited(self) -> tuple[WaitsFor, str, int | None]:
        """The lock for which the main thread waits, and the process that has it open."""
        file = self._awaited
        if not file:
            return "", "", None
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s, self._holder = now_s, _process_with(file)
        return "build lock", file, self._holder

    def building(self) -> tuple[str, tuple[int, int] | None]:
        """The folder that the main thread builds in, and how many of its files are compiled."""
        lock = self._taken
        return (str(Path(lock).parent), _compiled(Path(lock))) if lock else ("", None)


#: The record of this process.
RECORD = Builds()


def install() -> None:
    """Record what this process builds, once it can build."""
    AfterImport("torch.utils.file_baton", _watch).install()


def _watch(module: ModuleType) -> None:
    baton = getattr(module, "FileBaton", None)
    if all(hasattr(baton, name) for name in ("wait", "try_acquire", "release")):
        RECORD.watch(baton)


def _path(baton: Any) -> str:
    return str(Path(getattr(baton, "lock_file_path", "")).absolute())


def _process_with(file: str) -> int | None:
    """Return a process of this user that has a file open; None if there is none."""
    with suppress(OSError):
        wanted = Path(file).stat()
        for process in os.listdir("/proc"):
            if process.isdecimal() and _has_open(process, wanted):
                return int(process)
    return None


def _has_open(process: str, wanted: os.stat_result) -> bool:
    with suppress(OSError):  # of another user, or it has ended
        for number in os.listdir(f"/proc/{process}/fd"):
            with suppress(OSError):
                if os.path.samestat(Path(f"/proc/{process}/fd/{number}").stat(), wanted):
                    return True
    return False


def _compiled(lock: Path) -> tuple[int, int] | None:
    """Return how many files were compiled since a lock was taken, and how many there are."""
    with suppress(OSError):
        began_s = lock.stat().st_mtime
        with (lock.parent / "build.ninja").open(encoding="utf-8", errors="replace") as written:
            objects = _COMPILED.findall(written.read(_MOST_READ))
        done = 0
        for name in objects:
            with suppress(OSError):
                done += (lock.parent / name).stat().st_mtime >= began_s
        return (done, len(objects)) if objects else None
    return None
