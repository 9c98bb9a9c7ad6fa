"""The examples of the guide's page on the API run as they are, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_examples_of_the_api_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "api.md"
    examples = re.findall(
        r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(examples) == 5
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in examples:
        exec(compile(example, page.name, "exec"), names)
    assert (tmp_path / "hang.html").is_file()
