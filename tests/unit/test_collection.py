"""Dumps, logs and stacks of a job in one folder give one diagnosis."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import ddt_notebook as ddt
from ddt_notebook.dumps.collection import collect

SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
{others}
------------------------------------------------------------
Root Cause (first observed failure):
{first}
============================================================
"""
FAILURE = """\
[{number}]:
  time      : 2026-11-23_08:52:48
  host      : localhost
  rank      : {rank} (local_rank: {rank})
  exitcode  : {status} (pid: 374{rank})
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"""
TRACEBACK = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/train.py", line 12, in <module>
[rank{rank}]:     dist.all_reduce(load(rank, step))
[rank{rank}]:   File "/job/data.py", line 7, in load
[rank{rank}]:     raise ValueError("the shard is empty")
[rank{rank}]: ValueError: the shard is empty
"""
STACK = """\
Process 41: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 41 (active): "MainThread"
    load_batch (/job/data.py:8)
    <module> (/job/train.py:25)
"""
SEGFAULT = """\
step 3
Fatal Python error: Segmentation fault

Current thread 0x00007f0c4a3ff740 (most recent call first):
  File "/job/kernels.py", line 5 in run
  File "/job/train.py", line 30 in <module>
"""


def summary(first: tuple[int, int], *others: tuple[int, int]) -> str:
    texts = [
        FAILURE.format(number=n, rank=rank, status=status)
        for n, (rank, status) in enumerate((first, *others))
    ]
    return SUMMARY.format(first=texts[0], others="\n".join(texts[1:]) or "  <NO_OTHER_FAILURES>")


def dumps(folder: Path, *last_done: bool) -> None:
    """Dumps of ranks that wait in the second all_reduce, or have not issued it."""
    for rank, waits in enumerate(last_done):
        entries: list[dict[str, Any]] = [
            {
                "record_id": number - 1,
                "pg_id": 0,
                "process_group": ("0", "default_pg"),
                "collective_seq_id": number,
                "profiling_name": "nccl:all_reduce",
                "input_sizes": [[4]],
                "input_dtypes": ["Float"],
                "retired": number == 1,
                "frames": [{"filename": "/job/train.py", "line": 12, "name": "<module>"}],
            }
            for number in range(1, 3 if waits else 2)
        ]
        data = pickle.dumps({"pg_config": {}, "entries": entries})
        (folder / f"nccl_trace_rank_{rank}").write_bytes(data)


def torchrun_logs(folder: Path, rank: int, text: str, attempt: int = 0) -> None:
    logs = folder / f"none_k3/attempt_{attempt}/{rank}"
    logs.mkdir(parents=True)
    (logs / "stdout.log").write_text("step 1\n")
    (logs / "stderr.log").write_text(text)


def test_a_log_says_why_the_rank_in_the_dumps_is_missing(tmp_path: Path) -> None:
    dumps(tmp_path, True, False, True)
    torchrun_logs(tmp_path, 1, TRACEBACK.format(rank=1))
    for rank in (0, 2):
        torchrun_logs(tmp_path, rank, "")
    (tmp_path / "job.out").write_text(summary((1, 1), (0, -15), (2, -15)))
    report = ddt.diagnose_dumps(tmp_path)
    (finding,) = report.findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("raised", [1], [0, 2])
    assert (finding.places[1].file, finding.places[1].line) == ("/job/data.py", 7)
    assert "used" in report.notes[0]


def test_a_stack_says_where_the_rank_in_the_dumps_is(tmp_path: Path) -> None:
    dumps(tmp_path, True, False, True)
    (tmp_path / "pyspy_rank1.txt").write_text(STACK)
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("never-entered", [1], [0, 2])
    assert (finding.places[1].file, finding.places[1].line) == ("/job/data.py", 8)


def test_sigterm_of_torchrun_is_a_consequence(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(summary((1, -9), (0, -15), (2, -15)))
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.kind, finding.ranks) == ("died", [1])


WATCHDOG = (
    "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
    "600012 milliseconds before timing out.\n"
)


def test_what_was_printed_before_an_abort_explains_it(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(WATCHDOG + summary((1, -6), (0, -15)))
    first = ddt.diagnose_dumps(tmp_path).findings[0]
    assert (first.symptom, first.kind) == ("D.2.1", "text-says")


def test_a_hang_that_was_killed_is_read_as_the_hang(tmp_path: Path) -> None:
    dumps(tmp_path, True, False, True)
    (tmp_path / "job.out").write_text(summary((1, -9), (0, -9), (2, -9)))
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("never-entered", [1], [0, 2])


def test_the_signal_that_a_log_shows(tmp_path: Path) -> None:
    dumps(tmp_path, True, False, True)
    (tmp_path / "rank_1.log").write_text(SEGFAULT)
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("died", [1], [0, 2])
    assert (finding.places[1].file, finding.places[1].line) == ("/job/kernels.py", 5)


def test_a_caught_exception_is_not_the_end_of_a_rank(tmp_path: Path) -> None:
    dumps(tmp_path, True, False, True)
    later = "".join(f"[rank0]: retried, error {n % 3}: connection {n}\n" for n in range(60))
    (tmp_path / "rank_0.log").write_text(TRACEBACK.format(rank=0) + later)
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.kind, finding.ranks) == ("never-entered", [1])


def test_logs_of_an_earlier_attempt_are_left_out(tmp_path: Path) -> None:
    torchrun_logs(tmp_path, 0, TRACEBACK.format(rank=0))
    torchrun_logs(tmp_path, 0, "RuntimeError: nothing\n", attempt=1)
    torchrun_logs(tmp_path, 1, TRACEBACK.format(rank=1), attempt=1)
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert finding.ranks == [1]


def test_the_file_of_record(tmp_path: Path) -> None:
    folder = tmp_path / "none_k3/attempt_0/1"
    folder.mkdir(parents=True)
    stack = TRACEBACK.replace("[rank{rank}]: ", "")
    plain = {"message": {"message": "ValueError", "extraInfo": {"py_callstack": stack}}}
    (folder / "error.json").write_text(json.dumps(plain))
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.kind, finding.ranks) == ("raised", [1])


def test_logs_alone_are_diagnosed_as_a_text(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(
        "OutOfMemoryError: CUDA out of memory. Tried to allocate\n" * 2
    )
    report = ddt.diagnose_dumps(tmp_path)
    assert [finding.symptom for finding in report.findings][:1] == ["D.1.2"]
    assert report.notes


@pytest.mark.parametrize("content", [b"", b"\0\1", b"a,b\n"])
def test_a_folder_without_evidence_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "table.csv").write_bytes(content)
    (tmp_path / "empty.log").write_bytes(b"")
    with pytest.raises(ddt.FormatError, match="no Flight Recorder dump"):
        ddt.diagnose_dumps(tmp_path)


@pytest.mark.parametrize("name", ["error.json", "rank_0.log", "rank_0.txt"])
@pytest.mark.parametrize("text", ["{", '{"message": 3}', "Thread 1 (idle)", "exitcode  : -99999"])
def test_strange_files_are_tolerated(tmp_path: Path, name: str, text: str) -> None:
    dumps(tmp_path, True, False)
    (tmp_path / name).write_text(text)
    found = collect(tmp_path)
    assert found.snapshot is not None
    assert len(found.snapshot.ranks) == 2


def test_the_recorder_is_no_log_of_the_job(tmp_path: Path) -> None:
    """A job that never called init_process_group leaves only the recorder's own files."""
    own = tmp_path / "recorder" / "host"
    (own / "recorder-1.dist-info").mkdir(parents=True)
    (own / "ddt_notebook_recorder.py").write_text("")
    (own / "recorder-1.dist-info" / "METADATA").write_text("Name: barrier of NCCL\n")
    with pytest.raises(ddt.FormatError, match="no record of a rank"):
        collect(tmp_path)
