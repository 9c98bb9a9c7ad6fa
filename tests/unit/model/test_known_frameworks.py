"""The frameworks that the package and installed packages describe."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from ddt_notebook.model import frameworks


def test_a_broken_package_is_named_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("ring", "no_such_package:FRAMEWORK", frameworks.ENTRY_POINTS)
    monkeypatch.setattr(frameworks.metadata, "entry_points", lambda group: [broken])
    with pytest.warns(UserWarning, match="'ring' of no_such_package:FRAMEWORK is not known"):
        found = frameworks.known_frameworks.__wrapped__()
    assert found["deepspeed"].title == "DeepSpeed"
    assert "ring" not in found
