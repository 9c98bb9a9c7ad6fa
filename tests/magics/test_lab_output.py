"""JupyterLab's "Rank Output", seen from the kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ddt_notebook.host.listeners import DisplayMessage, RunListener
from ddt_notebook.host.session import active
from ddt_notebook.model import Cell
from ddt_notebook.widgets.lab import TARGET
from ddt_notebook.widgets.lab_output import LabOutput

from .kernels import Reused
from .test_lab import LIMIT_S, Panel

Page = dict[str, Any]


# -- without a kernel ----------------------------------------------------------------------------


class Scene:
    """What a front end receives, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.received: list[Page] = []
        self.output = LabOutput(lambda data: self.received.append(data["output"]), lambda: self.now)

    def cell(self, number: int) -> RunListener:
        (make,) = active.listeners
        return make(Cell(number=number, source=""), (0, 1))

    def tick(self, listener: RunListener, seconds: float = 0.3) -> list[Page]:
        before = len(self.received)
        self.now += seconds
        listener.on_tick(self.now)
        return self.received[before:]


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    made.output.begin()
    yield made
    made.output.end()
    assert active.listeners == []


def test_nothing_is_sent_before_a_question(scene: Scene) -> None:
    listener = scene.cell(1)
    listener.on_output(0, "stdout", "x\n")
    assert scene.tick(listener) == []
    listener.on_end()
    assert scene.received == []
    scene.output.asked({"run": 0, "after": 0})
    assert scene.received[0]["lines"] == [(0, "stdout", "x")]
    scene.output.enough()
    scene.cell(2).on_end()
    assert len(scene.received) == 1


def test_new_output_is_sent_once_and_not_too_often(scene: Scene) -> None:
    scene.output.asked({"run": 0, "after": 0})
    assert (scene.received[0]["run"], scene.received[0]["lines"]) == (0, [])
    listener = scene.cell(4)
    (page,) = scene.tick(listener)
    assert (page["run"], page["cell"], page["running"]) == (1, 4, True)
    listener.on_output(0, "stdout", "a\nb")
    assert scene.tick(listener, 0.1) == []
    (page,) = scene.tick(listener, 0.2)
    assert (page["from"], page["lines"]) == (0, [(0, "stdout", "a")])
    assert page["unfinished"] == [(0, "stdout", "b")]
    assert scene.tick(listener) == []
    listener.on_end()
    page = scene.received[-1]
    assert (page["from"], page["lines"], page["running"]) == (1, [(0, "stdout", "b")], False)


def test_a_flood_is_reported_page_by_page(scene: Scene) -> None:
    scene.output.asked({"run": 0, "after": 0})
    listener = scene.cell(1)
    listener.on_output(0, "stdout", "".join(f"line {n} {'x' * 500}\n" for n in range(1000)))
    listener.on_end()
    while (page := scene.received[-1])["next"] < page["total"]:
        scene.output.asked({"run": page["run"], "after": page["next"]})
    lines = [text for page in scene.received for _, _, text in page["lines"]]
    assert [text.split()[1] for text in lines] == [str(n) for n in range(1000)]
    assert len(scene.received) > 5


def test_a_page_that_reads_from_the_start_does_not_send_the_others_back(scene: Scene) -> None:
    """A page that was loaded again reads from the start; other messages continue meanwhile."""
    scene.output.asked({"run": 0, "after": 0})
    listener = scene.cell(1)
    listener.on_output(0, "stdout", "".join(f"{n} {'x' * 900}\n" for n in range(300)))
    while scene.tick(listener):
        pass
    scene.output.asked({"run": 0, "after": 0})
    assert scene.received[-1]["next"] < scene.received[-1]["total"]
    listener.on_output(1, "stdout", "news\n")
    assert [page["lines"] for page in scene.tick(listener)] == [[(1, "stdout", "news")]]


def test_values_and_figures_are_shown_as_lines(scene: Scene) -> None:
    listener = scene.cell(1)
    listener.on_output(1, "stdout", "unfinished")
    figure = {"image/png": "aaaa", "text/plain": "<Figure>"}
    listener.on_display(1, DisplayMessage("display", figure))
    listener.on_display(1, DisplayMessage("display", figure, update=True))
    listener.on_display(1, DisplayMessage("clear"))
    listener.on_display(1, DisplayMessage("result", {"text/plain": "[1,\n 2]"}))
    listener.on_end()
    scene.output.asked({"run": 0, "after": 0})
    assert scene.received[-1]["lines"] == [
        (1, "display", "<Figure>"),
        (1, "display", "[1,"),
        (1, "display", " 2]"),
        (1, "stdout", "unfinished"),
    ]


# -- in a kernel ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reused() -> Iterator[Reused[Panel]]:
    made = Reused(Panel)
    yield made
    made.close()


@pytest.fixture
def side_panel(reused: Reused[Panel], request: pytest.FixtureRequest) -> Iterator[Panel]:
    with reused.lent_to(request.node) as lent:
        yield lent


def ask(side_panel: Panel, subshell: str | None = None, **question: int) -> None:
    side_panel.send(TARGET, {"do": "output", "run": 0, "after": 0} | question, subshell)


def answer(side_panel: Panel) -> Page:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = side_panel.client.get_iopub_msg(timeout=LIMIT_S)
        if message["msg_type"] == "comm_msg" and "output" in message["content"]["data"]:
            return dict(message["content"]["data"]["output"])
    raise TimeoutError("the kernel does not answer")


def pages(side_panel: Panel, source: str) -> list[Page]:
    """The messages about the output while a cell runs."""
    return [received["output"] for received in side_panel.run(source) if "output" in received]


TURNS = """%%ddt
import time
for turn in range(4):
    if rank == turn % 2:
        print("turn", turn)
    dist.barrier()
    time.sleep(0.3)
"""


def test_a_running_cell_is_reported_in_the_order_of_arrival(side_panel: Panel) -> None:
    side_panel.run("%ddt_start -n 2")
    side_panel.hello()
    assert pages(side_panel, "%%ddt\nprint('not received')") == []
    ask(side_panel)
    first = answer(side_panel)
    assert {line[2] for line in first["lines"]} == {"not received"}
    received = pages(side_panel, TURNS)
    assert len([page for page in received if page["running"] and page["lines"]]) >= 2
    assert {page["run"] for page in received} == {first["run"] + 1}
    assert [tuple(line) for page in received for line in page["lines"]] == [
        (turn % 2, "stdout", f"turn {turn}") for turn in range(4)
    ]
    assert not received[-1]["running"]
    assert received[-1]["folder"]


def test_a_front_end_that_connects_late_gets_the_output_that_was_kept(side_panel: Panel) -> None:
    side_panel.run("%ddt_start -n 2")
    side_panel.run("%%ddt\nprint('rank', rank)")
    side_panel.hello()
    ask(side_panel)
    page = answer(side_panel)
    assert not page["ordered"]
    assert page["lines"] == [[0, "", "rank 0"], [1, "", "rank 1"]]
    side_panel.run("%ddt_stop")
    ask(side_panel)
    assert answer(side_panel)["lines"] == page["lines"]


def test_a_request_is_answered_while_the_cell_blocks_the_kernel(side_panel: Panel) -> None:
    side_panel.run("%ddt_start -n 2")
    side_panel.hello()
    subshell = side_panel.create_subshell()
    asked: list[bool] = []
    received: list[Page] = []

    def take(data: dict[str, Any]) -> None:
        if "output" in data:
            received.append(data["output"])
        elif not asked and data["run"] and data["run"]["outcome"] is None:
            asked.append(True)
            ask(side_panel, subshell)

    side_panel.run(
        "%%ddt\nimport time\nfor step in range(20):\n    print(step)\n    time.sleep(0.2)", take
    )
    assert [page for page in received if page["running"] and page["lines"]]
    assert received[-1]["next"] == 40
