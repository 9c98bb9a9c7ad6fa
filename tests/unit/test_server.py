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


def test_shows_the_diagnosis_and_the_views_of_which_something_was_recorded() -> None:
    page = render(FIXTURE.read_text())
    assert "rank 1 never entered all_reduce" in page
    assert ">collectives" in page
    assert ">placement" not in page

    looked = replace(Snapshot.load(FIXTURE), placement=(RankPlacement(rank=0),))
    page = render(json.dumps(looked.to_json()))
    assert ">placement" in page
    assert ">parity" not in page


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "<b>"}', '{"format": "ddt-snapshot"}']
)
def test_refuses_what_is_no_snapshot(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        render(text)
