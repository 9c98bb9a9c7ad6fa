"""A framework that no module of the package knows: a package that is installed brings it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[1] / "fixtures"
#: It runs in a process of its own, in which the framework is installed from the beginning.
PROGRAM = """
import json
import ddt_notebook as ddt

CELLS = {
    "healthy": "import toyring\\nfor step in range(3):\\n    print(toyring.exchange(1.0))",
    "hang": "import toyring\\nfor step in range(3 - rank):\\n    toyring.exchange(1.0)",
    "again": "print(toyring.exchange(1.0))",
    "threads": "toyring.use_threads(1 + rank)\\ntoyring.exchange(1.0)",
    "idle": "toyring.use_threads(2)",
}
found = {}
with ddt.Session(2, framework="toyring", hang_after=0.5) as session:
    for name, cell in CELLS.items():
        result = session.run(cell)
        report = ddt.diagnose(result)
        found[name] = {
            "ok": result.ok,
            "lost": list(result.lost),
            "errors": [error.type for error in result.errors.values()],
            "exchanges": [
                [call.op for call in rank.calls].count("exchange") for rank in result.snapshot.ranks
            ],
            "findings": [[f.symptom, f.cause, f.ranks, f.waiting] for f in report.findings],
            "lines": [{r: p.line for r, p in f.places.items()} for f in report.findings],
            "text": str(report),
        }
found["page"] = str(ddt.explain("toyring-alone"))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is observed and found in a notebook in which the framework is installed."""
    site = tmp_path_factory.mktemp("installed") / "site-packages"  # it is no code of the user
    metadata = site / "toyring-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toyring\nVersion: 1\n")
    point = "[ddt_notebook.frameworks]\ntoyring = toyring.described:FRAMEWORK\n"
    (metadata / "entry_points.txt").write_text(point)
    (site / "toyring").symlink_to(FIXTURES / "toyring", target_is_directory=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_its_collective_is_recorded(found: dict[str, Any]) -> None:
    healthy = found["healthy"]
    assert healthy["ok"], healthy["text"]
    assert not healthy["findings"], healthy["text"]
    assert healthy["exchanges"] == [3, 3]
    assert "3 collectives on 1 group agree" in healthy["text"]


def test_its_blocked_call_is_freed_and_named(found: dict[str, Any]) -> None:
    hang = found["hang"]
    assert hang["findings"] == [["D.2.1", "toyring-alone", [1], [0]]], hang["text"]
    assert hang["errors"] == ["Interrupted"]
    assert not hang["lost"]
    assert hang["lines"][0]["0"] == 3  # of the cell
    assert found["again"]["ok"], found["again"]["text"]


def test_its_words_and_its_card_are_used(found: dict[str, Any]) -> None:
    assert "the ranks of the ring began 3 and 2 exchanges" in found["hang"]["text"]
    assert "let every rank exchange equally often" in found["hang"]["text"]
    assert "ranks 0 and 1 of the ring exchanged nothing" in found["idle"]["text"]
    assert "a rank of the ring makes fewer exchanges" in found["page"]


def test_its_settings_are_compared(found: dict[str, Any]) -> None:
    differs = [finding[1] for finding in found["threads"]["findings"]]
    assert differs == ["toyring-alone"], found["threads"]["text"]
