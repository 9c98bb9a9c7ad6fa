"""The timeline's slider: a shorter time span is drawn in place, with more detail."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError

from ddt_notebook.views import figures
from ddt_notebook.views.timeline import TimelineView
from ddt_notebook.widgets.zoom import TimelineZoom

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


class Published:
    """What the shell was asked to display."""

    def __init__(self) -> None:
        self.all: list[tuple[dict[str, Any], str, bool]] = []

    def publish(self, data: dict[str, Any], transient: Any = None, update: bool = False) -> None:
        self.all.append((data, (transient or {}).get("display_id", ""), update))


def test_a_moved_slider_draws_another_stretch(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook.run(TRACED)
    view = notebook.run("%ddt_show timeline --zoom")
    assert isinstance(view, TimelineView), "a terminal has no slider"
    published = Published()
    monkeypatch.setattr(notebook.shell, "display_pub", published)
    monkeypatch.setattr(figures, "MAX_BARS", 40)  # so that the whole is too much to draw
    zoom = TimelineZoom(view, notebook.shell)
    zoom._ipython_display_()
    _, (whole, shown_as, updated) = published.all
    assert not updated
    assert "share of the time" in whole[figures.MIME]["layout"]["xaxis"]["title"]["text"]

    middle = view.duration_ms / 2
    zoom.slider.value = (middle, middle + view.duration_ms / 50)
    part, same, updated = published.all[-1]
    assert (same, updated) == (shown_as, True)
    assert "share of the time" not in part[figures.MIME]["layout"]["xaxis"]["title"]["text"]
    assert part["text/html"] == whole["text/html"]
    monkeypatch.undo()
    notebook.run("%ddt_stop")


def test_only_the_timeline_has_a_slider(notebook: Notebook) -> None:
    with pytest.raises(UsageError, match="--zoom is for the timeline"):
        notebook.run("%ddt_show parity --zoom")


def test_the_slider_moves_in_a_notebook(front_end: FrontEnd) -> None:  # noqa: F811
    front_end.run(TRACED)
    front_end.run("%ddt_show timeline --zoom")
    slider = front_end.client.session.msg(
        "comm_msg",
        {
            "comm_id": front_end.buttons["show ms"],
            "data": {"method": "update", "state": {"value": [0.0, 1.0]}},
        },
    )
    shown: list[dict[str, Any]] = []
    front_end.client.shell_channel.send(slider)
    while not shown:
        message = front_end.client.get_iopub_msg(timeout=10)
        if message["msg_type"] == "update_display_data":
            shown.append(message["content"]["data"])
    assert shown[0]["text/plain"].startswith("timeline")
    assert shown[0][figures.MIME]["data"]
