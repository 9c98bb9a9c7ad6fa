"""The interactive timeline in a notebook: a widget with the data of the run."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from IPython.core.error import UsageError

from ddt_notebook.views.timeline import TimelineView

from .conftest import Notebook
from .test_live_panel import FrontEnd, front_end, reused  # noqa: F401  (fixtures)

TRACED = """%%ddt_debug -n 2
model = DDP(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


def test_only_the_timeline_is_interactive(notebook: Notebook) -> None:
    with pytest.raises(UsageError, match="--zoom is for the timeline"):
        notebook.run("%ddt_show parity --zoom")


def test_a_terminal_shows_the_view_itself(notebook: Notebook) -> None:
    notebook.run(TRACED)
    assert isinstance(notebook.run("%ddt_show timeline --zoom"), TimelineView)
    notebook.run("%ddt_stop")


def test_a_notebook_gets_the_widget_and_the_view(front_end: FrontEnd) -> None:  # noqa: F811
    front_end.run(TRACED)
    messages = front_end.run("%ddt_show timeline --zoom")
    (state,) = [
        message["content"]["data"]["state"]
        for message in messages
        if message["msg_type"] == "comm_open" and "data" in message["content"]["data"]["state"]
    ]
    raw = zlib.decompress(base64.b64decode(state["data"]))
    header: dict[str, Any] = json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])
    assert [lane["rank"] for lane in header["lanes"]] == [0, 1]
    assert any("all_reduce" in name for name in header["names"])
    assert len(header["steps"]) == 20
    assert "render" in state["_esm"]
    (shown,) = [
        message["content"]["data"]
        for message in messages
        if message["msg_type"] in ("execute_result", "display_data")
    ]
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert "critical path" in shown["text/html"], "a saved notebook shows the view"
