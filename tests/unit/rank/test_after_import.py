"""What is done when a library has been imported."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from ddt_notebook.rank.after_import import AfterImport


def test_it_acts_once_when_the_module_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "awaited_library").mkdir()
    (tmp_path / "awaited_library" / "__init__.py").write_text("value = 1\n")
    (tmp_path / "awaited_library" / "inner.py").write_text("value = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    seen: list[int] = []

    def act(module: ModuleType) -> None:
        seen.append(module.value)
        module.value = 3  # type: ignore[attr-defined]

    AfterImport("awaited_library.inner", act).install()
    import awaited_library  # type: ignore[import-not-found]

    assert (seen, awaited_library.value) == ([], 1)
    from awaited_library import inner

    assert (seen, inner.value) == ([2], 3)
    assert sys.meta_path == before
    AfterImport("awaited_library.inner", act).install()
    assert seen == [2, 3]
    assert sys.meta_path == before
    for name in ("awaited_library", "awaited_library.inner"):
        monkeypatch.delitem(sys.modules, name)
