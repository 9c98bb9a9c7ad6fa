"""The lessons' pictures are those of their data, and each text fits into its place."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def tool(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("drawing", root / "tools" / "lesson_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_drawn_from_the_data(tool: ModuleType) -> None:
    files = {path.stem: path.read_text("utf-8") for path in tool.FOLDER.glob("*.svg")}
    assert files == {name: tool.drawn(picture) for name, picture in tool.pictures().items()}


def test_every_picture_is_shown_with_its_description(tool: ModuleType, root: Path) -> None:
    shown = "".join(p.read_text("utf-8") for p in (root / "notebooks").glob("*/[A-E].*.ipynb"))
    for name, picture in tool.pictures().items():
        assert f"![{picture['alt']}](../pictures/{name}.svg)" in shown


def test_texts_fit(tool: ModuleType) -> None:
    assert {name: tool.too_long(picture) for name, picture in tool.pictures().items()} == {
        name: [] for name in tool.pictures()
    }
    assert tool.too_long({"rows": [["rank 0", [0, 5, "work", "longer than its place"]]]})
