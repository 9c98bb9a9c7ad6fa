"""The command ``ddt-notebook``: what it prints, and what it says to a mistake."""

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "D.2.9"], "near it: "),
        (["diagnose", "missing.json"], "missing.json: No such file or directory"),
        (["diagnose", __file__], "is not a ddt_notebook snapshot"),
        (["demo", "--html", "nowhere/at/all/demo.html"], "does not exist"),
    ],
)
def test_mistakes_get_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("ddt-notebook: ")
    assert message in shown.err
    assert shown.err.count("\n") == 1
