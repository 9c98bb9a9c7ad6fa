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
from ddt_notebook.views.registry import below_diagnosis

FIXTURE = Path(__file__).parent.parent / "fixtures" / "one-rank-skips-all-reduce.ddt.json"


def named(parts: list[tuple[str, str]]) -> list[str]:
    """The views by the first word of their titles."""
    return [title.split()[0] for title, _ in parts]


def test_the_page_shows_the_diagnosis_and_the_recorded_views() -> None:
    ((untitled, diagnosis), *views), data = render(FIXTURE.read_text())
    assert data, "the interactive timeline"
    assert untitled == ""
    assert "rank 1 never entered all_reduce" in diagnosis
    snapshot = Snapshot.load(FIXTURE)
    recorded = [view.name for view in below_diagnosis() if view.is_in(snapshot)]
    assert named(views) == recorded
    assert {"collectives", "timeline"} <= set(recorded)
    assert "placement" not in recorded
    assert all(page.startswith("<div") for _, page in views)

    looked = replace(snapshot, placement=(RankPlacement(rank=0),))
    assert named(render(json.dumps(looked.to_json()))[0][1:]) == ["placement", *recorded]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "<b>"}', '{"format": "ddt-snapshot"}']
)
def test_files_that_are_not_snapshots_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        render(text)
