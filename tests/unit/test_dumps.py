"""Flight Recorder dumps of a job, as NCCL's recorder writes them."""

from __future__ import annotations

import json
import pickle
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

import ddt_notebook as ddt
from ddt_notebook.cli import main
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.dumps import calls, readers
from ddt_notebook.dumps.collection import collect
from ddt_notebook.model.codec import FormatError
from ddt_notebook.model.last_collectives import last_collectives

from .wire.test_bypasses import BOMBS, SHARED

TRAIN = {"filename": "/job/train.py", "line": 42, "name": "step"}
TORCH = {"filename": "/x/site-packages/torch/nn/parallel/distributed.py", "line": 1, "name": "f"}


def entry(number: int, op: str = "all_reduce", state: str = "completed", **other: Any) -> dict:
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": 1_700_000_000_000_000_000 + number,
        "input_sizes": [[1000]],
        "input_dtypes": ["Float"],
        "output_sizes": [[1000]],
        "output_dtypes": ["Float"],
        "state": state,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [TORCH, TRAIN],
    } | other


def write(folder: Path, rank: int, *entries: dict, world: int = 4) -> None:
    ranks = f"[{', '.join(map(str, range(world)))}]"
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    dump = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": list(entries)}
    (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))


def test_a_device_that_waits_is_told_from_python_that_has_gone_on(tmp_path: Path) -> None:
    """With NCCL, ranks issue collectives behind the one in which their devices wait."""
    done = [entry(number) for number in range(1, 6)]
    for rank in range(4):
        ahead = [entry(6, state="started"), *(entry(n, state="scheduled") for n in (7, 8))]
        write(tmp_path, rank, *done, *(ahead if rank != 1 else ()))
    report = ddt.diagnose_dumps(tmp_path)
    (finding,) = report.findings
    assert (finding.ranks, finding.waiting, finding.values["sequence"]) == ([1], [0, 2, 3], 6)
    (behind,) = (fact for fact in finding.facts if fact.kind == "issued-behind")
    assert (behind.ranks, behind.values["count"], behind.values["sequence"]) == ((0, 2, 3), 2, 8)
    assert report.snapshot is not None
    drawn = last_collectives(report.snapshot, finding.waiting, 3)
    assert drawn is not None
    assert drawn.columns[-1] == (6, "all_reduce")  # what is behind it has not happened
    assert [lane.entries[-1].step for lane in drawn.lanes] == ["waiting", "missing"]


def test_a_device_that_waits_with_nothing_behind_it_says_nothing_of_python(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, entry(1), *([entry(2, state="started")] if rank != 1 else ()))
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert "issued-behind" not in {fact.kind for fact in finding.facts}


@pytest.fixture(autouse=True, params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs as for small dumps and as for large ones, of which not all calls are kept."""
    if request.param == "large":
        monkeypatch.setattr(calls, "_KEEP_ALL", 0)
        monkeypatch.setattr(calls, "_LAST", 1)
    return str(request.param)


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_HERE_BYTES", 0)
    monkeypatch.setattr(readers, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(readers, "_cores", lambda: 2)


def test_the_rank_that_never_arrived_is_named(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        later = entry(3, state="scheduled")  # issued, and queued behind the one that is stuck
        write(tmp_path, rank, entry(1), entry(2, state="started"), later)
    write(tmp_path, 2, entry(1))
    report = ddt.diagnose_dumps(tmp_path)
    (finding,) = report.findings
    assert (finding.symptom, finding.cause) == ("D.2.1", "uneven-iterations")
    assert (finding.ranks, finding.waiting) == ([2], [0, 1, 3])
    assert "all_reduce #2" in finding.title
    assert finding.where[0] == "train.py line 42"
    assert report.snapshot is not None
    assert report.snapshot.backend == "nccl"
    assert report.snapshot.timeout_s == 600


def test_without_a_library_nothing_is_reported_as_the_reason(tmp_path: Path) -> None:
    for rank in range(4):
        last = [entry(2, state="started", frames=[TRAIN])] if rank else []
        write(tmp_path, rank, entry(1, frames=[TRAIN]), *last)
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.cause, finding.ranks) == ("rank-not-at-collective", [0])


def test_different_operations_with_one_number_are_reported(tmp_path: Path) -> None:
    for rank in range(4):
        op = "broadcast" if rank == 1 else "all_reduce"
        write(tmp_path, rank, entry(1), entry(2, op, "scheduled"))
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.cause, finding.ranks) == ("different-collectives", [1])


def test_different_sizes_are_reported(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, entry(1, state="started", input_sizes=[[4 if rank == 3 else 6]]))
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert finding.ranks == [3]
    assert "6 on ranks 0-2; 4 on rank 3" in finding.title


def test_a_rank_without_a_dump_is_named(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path, rank, entry(1), entry(2, state="started"))
    report = ddt.diagnose_dumps(tmp_path)
    (finding,) = report.findings
    assert (finding.cause, finding.ranks) == ("rank-without-dump", [3])
    assert any("no dump of rank 3" in note for note in report.snapshot.notes)


def test_a_job_in_which_every_rank_arrived_is_healthy(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path, rank, entry(1), entry(2))
    report = ddt.diagnose_dumps(tmp_path)
    assert report.ok
    assert report.scope.ranks == 4
    assert report.scope.collectives + report.scope.calls_dropped == 2


def test_a_ring_buffer_that_overwrote_entries_accuses_no_rank(tmp_path: Path) -> None:
    for rank in range(4):
        kept = range(50, 60) if rank == 2 else range(40, 60)
        write(tmp_path, rank, *(entry(number) for number in kept))
    assert ddt.diagnose_dumps(tmp_path).ok


def test_entries_from_before_a_group_was_formed_again_are_left_out(tmp_path: Path) -> None:
    for rank in range(4):
        before = [entry(1), *([entry(2)] if rank else [])]  # the fault of an earlier attempt
        now = [entry(1, pg_id=1, record_id=5)]
        write(tmp_path, rank, *before, *now)
    assert ddt.diagnose_dumps(tmp_path).ok


def test_a_rank_that_has_done_nothing_in_the_new_group(tmp_path: Path) -> None:
    for rank in range(4):
        now = [entry(1, "barrier", "started", pg_id=1, record_id=5)] if rank else []
        write(tmp_path, rank, entry(1), *now)
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.cause, finding.ranks) == ("rank-not-at-collective", [0])


def test_a_message_that_no_rank_sent(tmp_path: Path) -> None:
    receive = entry(0, "recv 1<-0", "started", is_p2p=True)
    write(tmp_path, 0, entry(1), world=2)
    write(tmp_path, 1, entry(1), receive, world=2)
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.ranks, finding.waiting) == ([0], [1])
    assert "recv" in finding.title


def test_dumps_in_json_are_read(tmp_path: Path) -> None:
    for rank in range(2):
        entries = [entry(1), *([entry(2, state="started")] if rank else [])]
        plain = {"pg_config": {}, "entries": entries}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(plain))
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert finding.ranks == [0]


def test_a_snapshot_of_dumps_survives_json(tmp_path: Path) -> None:
    write(tmp_path, 0, entry(1, state="started"), world=2)
    snapshot = load(tmp_path)
    assert ddt.Snapshot.from_json(snapshot.to_json()) == snapshot


def load(folder: Path) -> ddt.Snapshot:
    snapshot = collect(folder).snapshot
    assert snapshot is not None
    return snapshot


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("was-run"),))


def test_a_dump_cannot_run_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, 0, entry(1), world=1)
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps({"entries": [Hostile()]}))
    report = ddt.diagnose_dumps(tmp_path)
    assert not (tmp_path / "was-run").exists()
    assert any("nccl_trace_rank_1 was left out" in note for note in report.snapshot.notes)


@pytest.mark.parametrize("data", [b"", b"nonsense", b"{", b"[]", b"\x80\x02]q\x00."])
def test_what_is_not_a_dump_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(data)
    with pytest.raises(FormatError, match="no Flight Recorder dump"):
        ddt.diagnose_dumps(tmp_path)


@pytest.mark.parametrize(
    "strange",
    [
        {"collective_seq_id": "first"},
        {"input_sizes": [["wide"]]},
        {"frames": [3]},
        {"timeout_ms": "soon"},
    ],
    ids=lambda strange: next(iter(strange)),
)
def test_a_dump_of_strange_entries_is_one_error(tmp_path: Path, strange: dict[str, Any]) -> None:
    for rank in range(2):
        write(tmp_path, rank, entry(1, **strange), world=2)
    with pytest.raises(FormatError, match="does not write"):
        ddt.diagnose_dumps(tmp_path)


def test_dumps_of_two_jobs_in_one_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 0, entry(1))
    (tmp_path / "other_rank_0").write_bytes((tmp_path / "nccl_trace_rank_0").read_bytes())
    with pytest.raises(FormatError, match="both of rank 0"):
        ddt.diagnose_dumps(tmp_path)


def test_the_command_diagnoses_dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(2):
        entries = [entry(1), *([entry(2, state="started")] if rank else [])]
        write(tmp_path, rank, *entries, world=2)
    assert main(["analyze", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["ranks"] == [0]
    saved = tmp_path / "hang.ddt.json"
    ddt.diagnose_dumps(tmp_path).snapshot.save(saved)  # type: ignore[union-attr]
    assert main(["analyze", str(saved), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["kind"] == "never-entered"
    assert main(["analyze", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err


# -- which calls of large dumps are kept ----------------------------------------------------------


def kept(folder: Path, rank: int = 0, group: str = "0") -> list[int | None]:
    """The numbers of a rank's calls in a group."""
    return [call.sequence for call in load(folder).rank(rank).calls if call.group == group]


def in_group(number: int, name: str, **other: Any) -> dict:
    return entry(number, process_group=(name, "mesh_tp"), pg_id=int(name), **other)


def test_calls_that_all_ranks_completed_alike_are_only_counted(tmp_path: Path, size: str) -> None:
    for rank in range(3):
        last = [entry(21, state="started")] if rank != 1 else []
        write(tmp_path, rank, *map(entry, range(1, 21)), *last, world=3)
    expected = [20, 21] if size == "large" else list(range(1, 22))
    assert kept(tmp_path) == expected
    snapshot = load(tmp_path)
    dropped = 19 if size == "large" else 0
    assert [report.calls_dropped for report in snapshot.ranks] == [dropped] * 3
    (finding,) = ddt.diagnose(snapshot).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("never-entered", [1], [0, 2])


def test_everything_after_the_first_difference_is_kept(tmp_path: Path, size: str) -> None:
    for rank in range(3):
        other = entry(10, input_sizes=[[9]]) if rank == 2 else entry(10)
        write(tmp_path, rank, *map(entry, range(1, 10)), other, *map(entry, (11, 12)), world=3)
    assert kept(tmp_path)[-4:] == [9, 10, 11, 12]
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.kind, finding.ranks) == ("arguments-differ", [2])


def test_each_group_is_compared_by_itself(tmp_path: Path, size: str) -> None:
    for rank in range(4):
        pair = str(1 + rank // 2)
        steps = [e for n in range(1, 9) for e in (entry(n), in_group(n, pair))]
        if rank == 3:
            steps.pop()
        elif rank == 2:
            steps[-1] = in_group(8, pair, state="started")
        write(tmp_path, rank, *steps)
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.ranks, finding.waiting) == ([3], [2])
    if size == "large":
        assert kept(tmp_path) == [8]
        assert kept(tmp_path, 2, "2") == [7, 8]


def test_lines_that_differ_in_every_step_are_kept_once(tmp_path: Path, size: str) -> None:
    lines = [[{"filename": "/job/train.py", "line": n, "name": "f"}] for n in (3, 5)]
    for rank in range(4):
        frames = lines[rank == 0]
        write(tmp_path, rank, *(entry(n, frames=frames) for n in range(1, 13)))
    assert ddt.diagnose_dumps(tmp_path).ok
    if size == "large":
        assert kept(tmp_path) == [12]


def test_a_rank_that_never_used_its_group(tmp_path: Path) -> None:
    for rank in range(3):
        steps = [] if rank == 1 else [in_group(1, "1")]
        write(tmp_path, rank, *map(entry, range(1, 9)), *steps, world=3)
    for file in tmp_path.iterdir():
        plain = pickle.loads(file.read_bytes())
        plain["pg_config"]["1"] = {"name": "1", "desc": "mesh_tp", "ranks": "[0, 1, 2]"}
        file.write_bytes(pickle.dumps(plain))
    matching = Context(load(tmp_path)).matching
    assert [absence.absent for absence in matching.absences] == [(1,)]


def test_messages_that_met_are_counted(tmp_path: Path, size: str) -> None:
    for rank in range(2):
        op = "recv 1<-0" if rank else "send 0->1"
        steps = [entry(0, op, is_p2p=True) for _ in range(9)]
        if rank == 0:
            steps.append(entry(0, op, "started", is_p2p=True))
        write(tmp_path, rank, *steps, world=2)
    assert kept(tmp_path) == ([10] if size == "large" else list(range(1, 11)))
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("never-received", [1], [0])


# -- reading in several processes -----------------------------------------------------------------


@pytest.mark.usefixtures("two_processes")
def test_processes_read_what_one_process_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')")
    for rank in range(5):
        last = [entry(3, state="started")] if rank != 2 else []
        write(tmp_path, rank, entry(1), entry(2, "broadcast"), *last, world=6)
    (tmp_path / "nccl_trace_rank_5").write_bytes(pickle.dumps({"entries": [Hostile()]}))
    several = load(tmp_path)
    monkeypatch.setattr(readers, "_HERE_BYTES", 1 << 20)
    assert several == load(tmp_path)
    assert any("nccl_trace_rank_5 was left out" in note for note in several.notes)
    assert not (tmp_path / "was-run").exists()


@pytest.mark.usefixtures("two_processes")
def test_strange_entries_are_reported_from_another_process(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path, rank, entry(1, frames=[3]), world=2)
    with pytest.raises(FormatError, match="does not write"):
        ddt.diagnose_dumps(tmp_path)


@pytest.mark.usefixtures("two_processes")
def test_a_file_that_ends_its_reader_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        write(tmp_path, rank, entry(1), world=2)
    monkeypatch.setattr(readers, "_MODULE", "keyword")  # ends at once
    with pytest.raises(FormatError, match="the process that read it ended"):
        load(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory as Linux does")
@pytest.mark.usefixtures("two_processes")
def test_small_dumps_that_become_large_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bombs, and one whose key takes years to hash, read by processes that limit themselves."""
    child = "from ddt_notebook.dumps import child\nchild._LIMIT_S = 1\nchild.main()"
    (tmp_path / "hasty_child.py").write_text(child)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(readers, "_MODULE", "hasty_child")
    folder = tmp_path / "dumps"
    folder.mkdir()
    write(folder, 0, entry(1), world=1)
    for number, bomb in enumerate(BOMBS.values()):
        (folder / f"nccl_trace_rank_{number + 1}").write_bytes(b"\x80\x05" + bomb + b".")
    before_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    found = collect(folder)
    assert found.snapshot is not None
    assert [report.rank for report in found.snapshot.ranks] == [0]
    assert sum("was left out" in note for note in found.notes) == len(BOMBS)
    peak_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    # a process begins as a copy of this one, and Linux counts that, too
    own_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak_kb < 500_000 or peak_kb <= max(before_kb, own_kb), "no more than earlier processes"


def test_parts_that_are_shared_over_and_over_are_left_out(tmp_path: Path) -> None:
    """Their text or hash would take years, here in this process."""
    write(tmp_path, 0, entry(1), world=1)
    for rank, container in enumerate(("list", "tuple"), start=1):
        shared: Any = "x"
        for _ in range(60):
            shared = [shared, shared] if container == "list" else (shared, shared)
        name = {"profiling_name": shared} if rank == 1 else {"pg_id": shared}
        write(tmp_path, rank, entry(1, **name), world=1)
    (tmp_path / "nccl_trace_rank_3").write_bytes(b"\x80\x02}N" + SHARED + b"Ns.")
    found = collect(tmp_path)
    assert sum("was left out" in note for note in found.notes) == 3


def test_a_dump_that_is_older_than_the_others(tmp_path: Path) -> None:
    write(tmp_path, 0, entry(1, state="started"))  # periodic dumps: rank 0's was written first
    for rank in (1, 2):
        write(tmp_path, rank, entry(1), entry(2), entry(3, state="started"))
    write(tmp_path, 3, entry(1), entry(2))
    (finding,) = ddt.diagnose_dumps(tmp_path).findings
    assert (finding.ranks, finding.waiting) == ([0, 3], [1, 2])
