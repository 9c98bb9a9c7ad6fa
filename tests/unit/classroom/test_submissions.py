"""Reads submitted notebooks and writes the table of grades; no ranks."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from ddt_notebook.classroom.grader import Limits
from ddt_notebook.classroom.sandbox import _refuse_unless_local
from ddt_notebook.classroom.submissions import (
    Row,
    handed_in,
    notebooks_in,
    regrade,
    student_of,
    write_csv,
)
from ddt_notebook.host.errors import SessionError


def notebook(path: Path, *cells: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"cells": list(cells)}), encoding="utf-8")
    return path


def code(source: str | list[str], **metadata: object) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": metadata}


def test_cells_are_found_by_their_first_line_or_their_metadata(tmp_path: Path) -> None:
    path = notebook(
        tmp_path / "book.ipynb",
        {"cell_type": "markdown", "source": "# exercise: own-clock"},
        code("x = 1"),
        code(["%%ddt\n", "# exercise: own-clock\n", "first"]),
        code("y = 2", ddt_notebook={"exercise": "new-epoch"}),
        code("%%ddt\n# exercise: own-clock\nlast"),
    )
    found = {answer.exercise: answer for answer in handed_in(path)}
    assert set(found) == {"own-clock", "new-epoch"}
    assert found["own-clock"].cell.source.endswith("last")
    assert [cell.source for cell in found["own-clock"].above] == ["x = 1"]
    assert found["new-epoch"].cell.number == 3


def test_a_folder_stands_for_all_notebooks_below_it(tmp_path: Path) -> None:
    wanted = [tmp_path / name for name in ("anna/week1/a.ipynb", "ben/week1/a.ipynb", "z.ipynb")]
    for path in (*wanted, tmp_path / "anna/week1/.ipynb_checkpoints/a-checkpoint.ipynb"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "notes.txt").touch()
    assert notebooks_in(tmp_path) == wanted
    assert notebooks_in(wanted[0]) == [wanted[0]]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SessionError, match="no notebook in this folder"):
        notebooks_in(tmp_path / "empty")


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"cells": 3}', '{"cells": [{}]}', '{"cells": [1]}', "\x00"]
)
def test_a_file_that_is_not_a_notebook_is_reported_and_the_others_are_read(
    tmp_path: Path, content: str
) -> None:
    broken = tmp_path / "broken.ipynb"
    broken.write_text(content)
    empty = notebook(tmp_path / "empty.ipynb")
    strange = notebook(tmp_path / "strange.ipynb", code("# exercise: no-such-exercise"))
    paths = [broken, tmp_path / "missing.ipynb", empty, strange]
    rows = list(regrade(paths, Limits()))
    assert [row.student for row in rows] == ["broken", "missing", "empty", "strange"]
    assert not any(row.passed for row in rows)
    assert "is not a notebook" in rows[0].message
    assert rows[1].message == "No such file or directory"
    assert "no cell of an exercise" in rows[2].message
    assert "no exercise 'no-such-exercise'" in rows[3].message


def test_the_student_is_the_folder_of_nbgrader_or_the_file() -> None:
    assert student_of(Path("submitted/anna/week1/book.ipynb")) == "anna"
    assert student_of(Path("collected/ben.ipynb")) == "ben"


def test_no_cell_of_the_table_is_a_formula() -> None:
    file = io.StringIO()
    row = Row(student="=1+1", notebook="a.ipynb", message="one, two", passed=True, seconds=1.5)
    write_csv([row], file)
    (found,) = csv.DictReader(io.StringIO(file.getvalue()))
    assert found["student"] == "'=1+1"
    assert found["message"] == "one, two"
    assert found["passed"] == "True"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "", None, b"127.0.0.1"])
def test_connections_to_this_machine_are_allowed(host: object) -> None:
    _refuse_unless_local((host, 80))


@pytest.mark.parametrize("host", ["192.0.2.1", "example.org", "2001:db8::1", b"example.org"])
def test_connections_to_other_machines_are_refused(host: object) -> None:
    with pytest.raises(PermissionError, match="cannot reach other machines"):
        _refuse_unless_local((host, 80))
