"""Lets the processes of a job record themselves; torch calls `begin` at the end of its import.

A worker of a framework that need not import torch, such as TensorFlow, calls `begin_worker` when it
meets the others.

No error gets out of here: the job must run as it would without the recorder.
"""

import contextlib
import importlib
import os
import socket
from pathlib import Path


def begin() -> None:
    """Record this process from the moment at which it forms a process group."""
    folder = os.environ.get("DDT_JOB_FOLDER")
    if not folder:
        return
    _count_process()
    try:
        from ddt_notebook.rank.recorded_rank import JobRecorder

        JobRecorder.install(folder, note_failure)
    except BaseException as error:  # noqa: BLE001  (it would end the import of torch)
        note_failure(folder, error)


def begin_worker(framework: str) -> None:
    """Record this process as a worker of a framework."""
    folder = os.environ.get("DDT_JOB_FOLDER")
    if not folder:
        return
    try:
        importlib.import_module("torch")  # which calls `begin`
        from ddt_notebook.rank.recorded_rank import JobRecorder

        JobRecorder.record_worker(framework)
    except BaseException as error:  # noqa: BLE001  (it would end the worker)
        note_failure(folder, error)


def _count_process() -> None:
    """Note that torch was imported in one more process, with this module in it."""
    with contextlib.suppress(BaseException):  # such as a full disk
        with Path(__file__).with_name("processes").open("ab", buffering=0) as file:
            file.write(b".")


def note_failure(folder: str, error: BaseException) -> None:
    """Note why this process is not recorded."""
    with contextlib.suppress(BaseException):  # such as a full disk
        file = Path(folder, f"{socket.gethostname()}-{os.getpid()}.failed")
        file.write_text(f"{type(error).__name__}: {error}\n", "utf-8", "replace")
