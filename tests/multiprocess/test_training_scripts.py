"""Complete training scripts and healthy programs that look like a fault give no finding."""

from __future__ import annotations

from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.run_result import RunResult

FIXTURES = Path(__file__).parent.parent / "fixtures"
SCRIPTS = sorted((FIXTURES / "training_scripts").glob("*.py"))
#: Cells; those that form the process group themselves get none.
LOOK_ALIKES = sorted((FIXTURES / "look_alikes").glob("*.py"))


def run(path: Path, n: int) -> RunResult:
    source = path.read_text(encoding="utf-8")
    with ddt.Session(n, group="init_process_group" not in source, timeout=30.0) as session:
        return session.run(source)


def test_there_are_ten() -> None:
    assert len(SCRIPTS) == 10


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_is_without_findings(path: Path) -> None:
    done = run(path, 2)
    assert done.ok, done.errors
    report = ddt.diagnose(done)
    assert not report.findings, str(report)


@pytest.mark.parametrize("path", LOOK_ALIKES, ids=lambda path: path.stem)
def test_look_alike_is_without_findings(path: Path) -> None:
    done = run(path, 3)
    assert done.ok, done.errors
    report = ddt.diagnose(done)
    assert not report.findings, str(report)
