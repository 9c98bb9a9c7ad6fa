"""The texts of the user's files that a snapshot carries."""

from __future__ import annotations

import os
from pathlib import Path

from ddt_notebook.host.source_files import SourceFiles


def test_the_text_stays_as_it_was_run(tmp_path: Path) -> None:
    path = tmp_path / "helper.py"
    path.write_text("first = 1\n")
    files = SourceFiles()
    files.note([str(path)])
    path.write_text("second = 2\n")
    os.utime(path, (1, 1))
    (file,) = files.of([])
    assert (file.path, file.source, file.changed) == (str(path), "first = 1\n", True)
    files.forget()
    assert files.of([]) == ()


def test_named_files_come_first_and_the_sum_is_limited(tmp_path: Path) -> None:
    paths = [tmp_path / f"part{number}.py" for number in range(4)]
    for path in paths:
        path.write_text("#" * 200_000 + "\n")
    too_long = tmp_path / "long.py"
    too_long.write_text("#" * 300_000)
    files = SourceFiles()
    files.note(map(str, [too_long, *paths]))
    found = files.of([str(paths[3]), "cell[2]", "<string>", str(tmp_path / "missing.py")])
    assert [file.path for file in found] == [str(paths[3]), str(paths[0])]
