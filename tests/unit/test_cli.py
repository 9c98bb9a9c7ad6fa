"""The command ``ddt-notebook``: its output, and its messages about mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddt_notebook.cli import main
from ddt_notebook.model import Cell, RankReport, Snapshot


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    ranks = tuple(RankReport(rank=rank) for rank in range(2))
    snapshot = Snapshot(cell=Cell(number=1, source="pass"), ranks=ranks, world_size=2)
    return snapshot.save(tmp_path / "run.ddt.json")


def test_diagnose_a_healthy_run(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(healthy)]) == 0
    assert capsys.readouterr().out.startswith("ok")
    assert main(["diagnose", str(healthy), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "d.2.1"]) == 0
    assert "fix behavior logic" in capsys.readouterr().out
    assert main(["explain", "D.2.1", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["faults"] == 44
    assert plain["fixes"][0] == {
        "pattern": "fix communication configuration",
        "faults": 11,
        "share": 0.25,
    }


def test_explain_a_card_words_and_everything(capsys: pytest.CaptureFixture[str]) -> None:
    name = "collective-under-rank-condition"
    assert main(["explain", name, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["id"] == name
    assert plain["broken"] != plain["fixed"]
    assert plain["fixes"][0]["pattern"] == "fix behavior logic"
    assert main(["explain", "hang", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert hits[0]["name"] == "D.2.1"
    assert main(["explain", "collective", "condition", "rank"]) == 0
    assert name in capsys.readouterr().out
    assert main(["explain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"] == 637


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "D.2.9"], "near it: "),
        (["explain", "zebra"], "codes run from A.1 to D.2.6"),
        (["diagnose", "missing.json"], "missing.json: No such file or directory"),
        (["demo", "--html", "nowhere/at/all/demo.html"], "does not exist"),
    ],
)
def test_mistakes_give_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("ddt-notebook: ")
    assert message in shown.err
    assert shown.err.count("\n") == 1


def test_json_that_is_not_a_snapshot_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{}")
    assert main(["diagnose", str(path)]) == 2
    assert "is not a ddt_notebook snapshot" in capsys.readouterr().err


def test_a_log_of_a_job_is_diagnosed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.log"
    path.write_text(
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
        "[rank0]: RuntimeError: Connection closed by peer [127.0.0.1]:4242\n"
    )
    assert main(["diagnose", str(path), "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["findings"][0]
    assert (first["symptom"], first["ranks"]) == ("D.1.2", [2])


def test_the_logs_of_a_folder_are_diagnosed_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = "RuntimeError: [pair.cc:547] Connection closed by peer [127.0.0.1]:4242\n"
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(peer)
    (tmp_path / "rank3.log").write_text(
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
        "ValueError: `FlatParameter` requires uniform `requires_grad`\n"
    )
    assert main(["diagnose", str(tmp_path), "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["findings"][0]
    assert (first["symptom"], first["ranks"]) == ("C.8", [3])


def test_a_missing_script_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["script", "-n", "2", "missing.py", "--lr", "0.1"]) == 2
    assert "missing.py is not a file" in capsys.readouterr().err


def test_a_script_that_is_not_executable_is_run_by_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text("print('alone')")
    assert main(["run", "--", str(script)]) == 126
    assert f"this file is not executable; `python {script}` runs it" in capsys.readouterr().err
