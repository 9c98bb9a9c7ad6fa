"""TensorFlow's profiler, read in a copy of the process, so that its end can cost no rank.

As TensorFlow 2.21 collects its events, it keeps pointers to those that began in another thread,
such as collectives, and copies and frees what they point to whenever its list of threads grows
(`TraceMeRecorder::Consume`). What it then writes there corrupts the heap. So a process that
records never collects: it only stops to record, and a forked child collects.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import platform
import resource
import signal
import time
import warnings
from pathlib import Path
from typing import Any

#: What is measured: operations of TensorFlow, on the CPU.
_OPTIONS = {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 0}
#: How much TensorFlow records now, and its value for nothing (`TraceMeRecorder`).
_LEVEL, _NOTHING = "_ZN3tsl8profiler8internal13g_trace_levelE", -1
_LIBRARY = "libtensorflow_framework.so.2"
#: A child whose locks another thread held, or that has crashed, is given up after this time.
_MOST_S, _LOOK_EVERY_S = 20.0, 0.01
#: The machine's instruction that returns from a function.
_RETURN = {"x86_64": b"\xc3", "aarch64": b"\xc0\x03\x5f\xd6"}
_READ_WRITE_EXECUTE = 7


class Profile:
    """TensorFlow's profiler, from now on.

    Parameters
    ----------
    folder
        Where the events are left until they were read.

    Raises
    ------
    Exception
        If TensorFlow's profiler runs already, or is not known.
    """

    def __init__(self, folder: str) -> None:
        import tensorflow as tf
        from tensorflow.python.profiler.internal import _pywrap_profiler

        library = Path(tf.__file__).with_name(_LIBRARY)
        self._level = ctypes.c_int.in_dll(ctypes.CDLL(str(library)), _LEVEL)
        self._folder = Path(folder)
        session = _pywrap_profiler.ProfilerSession()
        session.start(folder, _OPTIONS)
        self._session: Any = session

    def end(self) -> bytes:
        """Stop to record; returns the events as TensorFlow writes them, empty if that failed."""
        level, self._level.value = self._level.value, _NOTHING
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # about locks of other threads
                child = os.fork()
        except OSError:
            child = -1
        if child == 0:
            self._collect(level)
        written = child > 0 and _ends_well(child)
        # with nothing recorded, its end collects nothing; the next start frees the events
        self._session = None
        found = next(self._folder.rglob("*.xplane.pb"), None) if written else None
        return found.read_bytes() if found is not None else b""

    def _collect(self, level: int) -> None:
        """Write the events and end this process."""
        try:
            faulthandler.disable()
            for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            nowhere = os.open(os.devnull, os.O_RDWR)
            for output in (1, 2):
                os.dup2(nowhere, output)
            _never_free()
            self._level.value = level
            self._session.export_to_tb()
            os._exit(0)
        finally:
            os._exit(1)


def _ends_well(child: int) -> bool:
    """Wait until a child has ended, and end it if it takes too long."""
    until = time.monotonic() + _MOST_S
    try:
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return False
            time.sleep(_LOOK_EVERY_S)
    except ChildProcessError:  # the program waits for any child
        return False
    return ended[1] == 0


def _never_free() -> None:
    """Have this process keep all memory, so that pointers into freed memory do no harm.

    Without it, about one child of 10 crashed; the events of a trace then were missing.
    """
    instruction = _RETURN.get(platform.machine())
    if instruction is None:
        return
    library = ctypes.CDLL(None)
    address = ctypes.cast(library.free, ctypes.c_void_p).value or 0
    first = address - address % mmap.PAGESIZE
    start, size = ctypes.c_void_p(first), ctypes.c_size_t(2 * mmap.PAGESIZE)
    if library.mprotect(start, size, _READ_WRITE_EXECUTE) == 0:
        ctypes.memmove(address, instruction, len(instruction))
