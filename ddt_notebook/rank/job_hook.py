"""Lets the processes of a recorded job record themselves; torch calls it at the end of its import.

``ddt-notebook run`` puts a folder on ``PYTHONPATH`` that declares `begin` as an entry point of the
group ``torch.backends``. Without the job's variable nothing happens. No error gets out of here: the
job must run as it would without the recorder.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..wire import job_files


def begin() -> None:
    """Record this process from the moment at which it forms a process group."""
    folder = os.environ.get(job_files.FOLDER)
    if not folder:
        return
    try:
        from .recorded_rank import JobRecorder

        JobRecorder.install(Path(folder))
    except BaseException as error:  # noqa: BLE001  (it would end the import of torch)
        job_files.note_failure(Path(folder), error)
