"""Files for which a rank waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddt_notebook.model import Position
from ddt_notebook.rank.probes import polled_files


def test_a_file_that_is_missed_while_the_users_line_is_sought_is_none_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = polled_files.PolledFiles()

    def user_line(_: object) -> Position:
        record.missing(tmp_path / "RECORD")
        return Position(file="train.py", line=1)

    monkeypatch.setattr(polled_files, "user_line", user_line)
    record.missing(tmp_path / "ready")
    assert [Path(file).name for _, file, _ in record._polls] == ["ready"]
