"""What the Jupyter server's part of the extension renders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ddt_notebook.model import Snapshot
from ddt_notebook.model.placement import RankPlacement

pytest.importorskip("jupyter_server", reason="Jupyter server is not installed")

from ddt_notebook.server import render

FIXTURE = Path(__file__).parent.parent / "fixtures" / "one-rank-skips-all-reduce.ddt.json"


def named(parts: list[tuple[str, str]]) -> list[str]:
    """The views by the first word of their titles."""
    return [title.split()[0] for title, _ in parts]


def test_shows_the_diagnosis_and_the_views_of_which_something_was_recorded() -> None:
    (untitled, diagnosis), *views = render(FIXTURE.read_text())
    assert untitled == ""
    assert "rank 1 never entered all_reduce" in diagnosis
    assert named(views) == ["collectives", "timeline"]
    assert all(page.startswith("<div") for _, page in views)

    looked = replace(Snapshot.load(FIXTURE), placement=(RankPlacement(rank=0),))
    assert named(render(json.dumps(looked.to_json()))[1:]) == [
        *("placement", "collectives", "timeline")
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "<b>"}', '{"format": "ddt-snapshot"}']
)
def test_refuses_what_is_not_a_snapshot(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        render(text)
