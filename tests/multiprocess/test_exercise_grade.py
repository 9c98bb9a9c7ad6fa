"""``ddt-notebook grade`` on notebooks that were handed in; it runs as a process of its own."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddt_notebook.classroom.exercise import exercise
from ddt_notebook.classroom.notebooks import notebook_of

_COMMAND = [sys.executable, "-c", "import sys; from ddt_notebook.cli import main; sys.exit(main())"]
_LIMIT_S = 110
#: Run in a rank by a submission: what a program outside Python would see of the network.
_INTERFACES = """
lines = open("/proc/net/dev").read().splitlines()[2:]
raise RuntimeError("interfaces " + " ".join(sorted(line.split(":")[0].strip() for line in lines)))
"""


def hand_in(path: Path, name: str, source: str) -> Path:
    book = notebook_of(exercise(name))
    for cell in book["cells"]:
        if cell["id"] == "task":
            cell["source"] = source
        elif cell["cell_type"] == "code":
            cell["source"] = "raise SystemExit('another cell was run')"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(book), encoding="utf-8")
    return path


def grade(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [*_COMMAND, "grade", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def test_submissions_are_regraded_and_a_bad_one_does_not_stop_the_others(tmp_path: Path) -> None:
    one = exercise("shared-slice")
    submitted = tmp_path / "submitted"
    paths = [
        hand_in(submitted / "carl" / "week1" / "a.ipynb", one.name, "import os\nos._exit(0)"),
        tmp_path / "missing.ipynb",
        hand_in(submitted / "ben" / "week1" / "a.ipynb", one.name, one.cell()),
        hand_in(submitted / "anna" / "week1" / "a.ipynb", one.name, one.cell(one.solution)),
    ]
    table = tmp_path / "grades.csv"
    done = grade(*paths, "--csv", table, "--json", "--seconds", 20)
    assert done.returncode == 1, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    assert [row["student"] for row in rows] == ["carl", "missing", "ben", "anna"]
    assert [row["passed"] for row in rows] == [False, False, False, True]
    assert "died" in rows[0]["message"]
    assert "No such file" in rows[1]["message"]
    assert "read by no rank" in rows[2]["message"]
    assert rows[3]["held"] == rows[3]["behaviours"] == len(one.behaviours)
    assert rows[3]["points"] == one.level
    with open(table, encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["passed"] for row in written] == ["False", "False", "False", "True"]
    assert "network: " in done.stderr
    assert "memory 1G" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
def test_the_ranks_have_no_network_where_the_kernel_permits_it(tmp_path: Path) -> None:
    path = hand_in(tmp_path / "anna.ipynb", "shared-slice", _INTERFACES)
    done = grade(path, "--json")
    if "namespace is not permitted" in done.stderr:
        pytest.skip("this machine permits no network namespace")
    (row,) = json.loads(done.stdout)
    assert "raised RuntimeError: interfaces lo;" in row["message"]


def test_an_impossible_limit_is_refused(tmp_path: Path) -> None:
    done = grade(tmp_path / "a.ipynb", "--memory", "much")
    assert done.returncode == 2
    assert "'much' is not an amount of memory" in done.stderr
