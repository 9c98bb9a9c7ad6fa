"""The tool that executes notebooks keeps what a reader sees, and reports when a cell fails."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook


def execute(root: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / "tools" / "execute_notebooks.py", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def book_of(path: Path, *sources: str, tags: tuple[str, ...] = ()) -> Path:
    cells = [new_code_cell(source, metadata={"tags": list(tags)}) for source in sources]
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_what_is_kept_has_no_trace_of_the_machine(root: Path, tmp_path: Path) -> None:
    source = (
        "import sys, tempfile, pathlib, nbformat\n"
        "print(tempfile.mkdtemp() + '/train.py', flush=True)\n"
        "print(nbformat.__file__)\n"
        "print(str(pathlib.Path.home()) + '/notes')\n"
        f"print({str(root)!r} + '/ddt_notebook/api.py')\n"
        "display({'text/plain': ''}, raw=True)"
    )
    path = book_of(tmp_path / "book.ipynb", source)
    table = tmp_path / "figures.json"
    done = execute(root, "--table", table, path)
    assert done.returncode == 0, done.stderr

    (cell,) = nbformat.read(path, as_version=4).cells
    (output,) = cell.outputs
    first, second, *_, last = output.text.splitlines()
    assert first == "…/train.py"
    assert second == "nbformat/__init__.py"
    assert last == "…/ddt_notebook/api.py"
    assert str(Path.home()) not in output.text
    assert tempfile.gettempdir() not in output.text
    assert cell.id == "cell-01"
    assert "execution" not in cell.metadata

    figures = json.loads(table.read_text())["notebooks"]["book"]
    assert figures["seconds"] > 0
    assert figures["megabytes"] > 10
    assert 0 < figures["processor_seconds"] < 100


@pytest.mark.parametrize(
    ("source", "tags", "message"),
    [
        ("1 / 0", (), "ZeroDivisionError"),
        ("1 + 1", ("raises-exception",), "did not fail"),
        ("import os; os._exit(3)", (), "cell 1"),
    ],
)
def test_a_notebook_that_goes_wrong_stays_as_it_was(
    root: Path, tmp_path: Path, source: str, tags: tuple[str, ...], message: str
) -> None:
    path = book_of(tmp_path / "book.ipynb", source, tags=tags)
    before = path.read_bytes()
    done = execute(root, path)
    assert done.returncode == 1
    assert message in done.stderr
    assert path.read_bytes() == before
