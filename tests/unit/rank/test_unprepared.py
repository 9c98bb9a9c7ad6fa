"""A framework that was not prepared is refused where each rank would train alone."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from ddt_notebook.model.frameworks import AloneBegin, Preparation
from ddt_notebook.rank.frameworks import unprepared

_LIBRARY = """
class Basics:
    def init(self, size=0):
        return size
"""


def _begins(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, framework: str = "", world_size: int = 2
) -> object:
    """What the begin of a library returns in a rank of such a session."""
    (folder / "lonely_library.py").write_text(_LIBRARY)
    alone = AloneBegin(module="lonely_library", method="Basics.init", variable="LONELY_SIZE")
    known = {"lonely": Preparation(modules=("lonely_library",), install="none", alone=alone)}
    monkeypatch.setattr(unprepared, "prepared", lambda: known)
    monkeypatch.syspath_prepend(folder)
    before = list(sys.meta_path)
    unprepared.refuse(framework, world_size)
    try:
        return importlib.import_module("lonely_library").Basics().init(size=5)
    finally:
        sys.modules.pop("lonely_library")
        sys.meta_path[:] = before


def test_ranks_that_would_train_alone_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="would train alone") as caught:
        _begins(monkeypatch, tmp_path)
    assert str(caught.value).endswith("%ddt_start -n 2 --framework lonely")
    assert "\n" not in str(caught.value)


def test_prepared_ranks_a_single_one_and_a_program_that_prepares_itself_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert _begins(monkeypatch, tmp_path, framework="lonely") == 5
    assert _begins(monkeypatch, tmp_path, world_size=1) == 5
    monkeypatch.setenv("LONELY_SIZE", "2")
    assert _begins(monkeypatch, tmp_path) == 5
