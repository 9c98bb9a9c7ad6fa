"""What ``ddt-notebook run`` says of extensions that PyTorch builds in a job."""

from __future__ import annotations

import sys
from pathlib import Path

from .test_jobs import Job, _no_process_is_left

__all__ = ["_no_process_is_left"]


def test_a_process_that_waits_for_the_lock_of_a_build_is_named_before_it_is_a_rank(
    tmp_path: Path,
) -> None:
    lock, file = tmp_path / "lock", tmp_path / "train.py"
    lock.touch()  # by a build that was killed
    file.write_text(
        f"from torch.utils.file_baton import FileBaton\nFileBaton({str(lock)!r}).wait()"
    )
    job = Job(tmp_path / "job", "--", sys.executable, file)
    assert job.process.stderr is not None
    said = next(line for line in job.process.stderr if "build" in line)
    assert f"the lock of a build, which no process here has open: {lock}; delete" in said
    assert list((tmp_path / "job").glob("*.build"))
    lock.unlink()
    assert job.end()[0] == 0
    assert not list((tmp_path / "job").glob("*.build"))
