"""``%ddt_load``: dumps of a job, and runs that were saved."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from IPython.core.error import UsageError

import ddt_notebook as ddt
from ddt_notebook.model import Call, Cell, Position, RankReport, Snapshot
from ddt_notebook.wire.job_files import STARTED

from .conftest import Notebook


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two ranks, one of which stopped after its first collective."""
    for rank in range(2):
        entries = [
            {
                "record_id": at,
                "profiling_name": "nccl:all_reduce",
                "process_group": ["0", "default_pg"],
                "collective_seq_id": at + 1,
                "state": "started" if at else "completed",
            }
            for at in range(1 + rank)
        ]
        dump = {"pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": entries}
        (tmp_path / f"fr_rank_{rank}").write_text(json.dumps(dump))
    return tmp_path


def test_dumps_are_diagnosed_and_kept_for_the_views(notebook: Notebook, job: Path) -> None:
    report = notebook.run(f"%ddt_load {job} -o job")
    assert [finding.ranks for finding in report.findings] == [[0]]
    table = ddt.collectives(notebook.names["job"]).to_frame()
    assert set(table["op"]) == {"all_reduce"}
    assert "all_reduce" in str(notebook.run("%ddt_show collectives job"))


def test_views_are_of_what_was_loaded_last(notebook: Notebook, job: Path) -> None:
    notebook.run(f"%ddt_load {job} -o job")
    assert notebook.run("%ddt_show collectives").to_frame()["op"].tolist() == ["all_reduce"] * 2
    assert [finding.ranks for finding in notebook.run("%ddt_debug").findings] == [[0]]
    with pytest.raises(UsageError, match="memory"):  # dumps have none, and there are no ranks
        notebook.run("%ddt_show memory")
    notebook.run("%ddt_start -n 1")
    notebook.run("%%ddt\nx = 1")
    assert notebook.run("%ddt_show collectives").to_frame().empty
    assert not notebook.run("%ddt_show collectives job").to_frame().empty
    with pytest.raises(UsageError, match="'nothing' is no run"):
        notebook.run("%ddt_show collectives nothing")


def test_one_log_is_diagnosed(notebook: Notebook, tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    report = notebook.run(f"%ddt_load {log}")
    assert [finding.symptom for finding in report.findings][:1] == ["D.1.2"]


def test_the_folder_above_a_recorded_job_names_it(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "ddt-job-1").mkdir()
    (tmp_path / "ddt-job-1" / f"host-17{STARTED}").write_text("{}")
    with pytest.raises(UsageError, match=r"there is a recorded job below it: .*ddt-job-1$"):
        notebook.run(f"%ddt_load {tmp_path}")
    (tmp_path / "ddt-job-1" / "host-17.calls").write_bytes(b"\0\1")
    with pytest.raises(UsageError, match=r"host-17\.calls is one file of a recorded job"):
        notebook.run(f"%ddt_load {tmp_path / 'ddt-job-1' / 'host-17.calls'}")
    (tmp_path / "a-later-one").mkdir()
    (tmp_path / "a-later-one" / f"host-18{STARTED}").write_text("{}")
    os.utime(tmp_path / "ddt-job-1", (0, 0))
    with pytest.raises(UsageError, match=r"below it: .*a-later-one \(the newest of 2\)$"):
        notebook.run(f"%ddt_load {tmp_path}")


def test_fix_works_on_the_run_that_was_loaded(notebook: Notebook, tmp_path: Path) -> None:
    source = "if rank != 1:\n    dist.all_reduce(loss)\n"
    where = Position(file="cell[3]", line=2, function="<module>", code="dist.all_reduce(loss)")
    call = Call(index=0, op="all_reduce", members=(0, 1), sequence=1, status="pending", where=where)
    waits = RankReport(rank=0, state="blocked", blocked_in=0, position=where, calls=(call,))
    ranks = (waits, RankReport(rank=1))
    cell = Cell(number=3, source=source)
    Snapshot(cell=cell, outcome="hung", ranks=ranks, world_size=2).save(tmp_path / "a.ddt.json")
    notebook.run(f"%ddt_load {tmp_path / 'a.ddt.json'}")
    assert "the next cell holds your cell, corrected" in str(notebook.run("%ddt_debug --fix"))


def test_a_file_that_went_away_while_a_folder_was_read_is_named(
    notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory", f"{path}/rank_0.log")

    monkeypatch.setattr("ddt_notebook.api.diagnose_dumps", gone)
    with pytest.raises(UsageError, match=r"rank_0\.log: No such file"):
        notebook.run(f"%ddt_load {tmp_path}")


def test_a_saved_run_is_diagnosed(notebook: Notebook, job: Path) -> None:
    notebook.run(f"%ddt_load {job} -o job")
    notebook.names["job"].save(job / "run.ddt.json")
    report = notebook.run(f"%ddt_load {job / 'run.ddt.json'}")
    assert [finding.ranks for finding in report.findings] == [[0]]


@pytest.mark.parametrize("path", ["nothing-here", "nothing-here.ddt.json"])
def test_a_missing_file_is_one_line(notebook: Notebook, job: Path, path: str) -> None:
    with pytest.raises(UsageError, match=r"ddt_load: .*No such file"):
        notebook.run(f"%ddt_load {job / path}")


def test_a_folder_without_dumps_is_one_line(notebook: Notebook, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no Flight Recorder dump"):
        notebook.run(f"%ddt_load {tmp_path}")


@pytest.mark.parametrize(
    ("target", "problem"), [("train.py", "process id or HOST:PORT"), ("4194305", "does not exist")]
)
def test_a_job_that_cannot_be_observed_is_one_line(
    notebook: Notebook, target: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        notebook.run(f"%ddt_attach {target}")
