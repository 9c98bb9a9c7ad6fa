"""The live panel in a real kernel, with a front end that sends messages over a subshell."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ddt_notebook as ddt

from .kernels import Client, Reused

LIMIT_S = 90.0
WAITS = "%%ddt\nimport time\nkept = rank\nif rank == 0:\n    time.sleep(20)\ndist.barrier()"

Message = dict[str, Any]


class FrontEnd(Client):
    """Runs cells, collects what the kernel publishes, and clicks buttons meanwhile."""

    def __init__(self) -> None:
        self.buttons: dict[str, str] = {}
        super().__init__()

    def run(self, source: str, each: Callable[[Message], None] = lambda m: None) -> list[Message]:
        messages: list[Message] = []

        def take(message: Message) -> None:
            if message["msg_type"] not in ("status", "execute_input"):
                messages.append(message)
            if message["msg_type"] == "comm_open":
                content = message["content"]
                self.buttons[content["data"]["state"].get("description")] = content["comm_id"]
            each(message)

        self.client.execute_interactive(source, timeout=LIMIT_S, output_hook=take)
        return messages

    def click(self, button: str, subshell: str | None) -> None:
        clicked = {"method": "custom", "content": {"event": "click"}}
        self.send(self.buttons[button], clicked, subshell)


@pytest.fixture(scope="module")
def reused() -> Iterator[Reused[FrontEnd]]:
    made = Reused(FrontEnd)
    yield made
    made.close()


@pytest.fixture
def front_end(reused: Reused[FrontEnd], request: pytest.FixtureRequest) -> Iterator[FrontEnd]:
    with reused.lent_to(request.node) as lent:
        yield lent


def plain(message: Message) -> str:
    return str(message["content"].get("data", {}).get("text/plain", ""))


def panel(messages: list[Message]) -> list[str]:
    return [plain(m) for m in messages if plain(m).startswith(("cell[", "no session", "2 ranks,"))]


class ClickWhenWaiting:
    """Clicks once, as soon as the panel says that a rank waits."""

    def __init__(self, front_end: FrontEnd, button: str, subshell: str | None) -> None:
        self._what = front_end, button, subshell
        self._clicked = False

    def __call__(self, message: Message) -> None:
        if not self._clicked and "waits" in plain(message) and " runs" in plain(message):
            front_end, button, subshell = self._what
            self._clicked = True
            front_end.click(button, subshell)


def test_the_panel_is_updated_while_a_cell_runs_and_quiet_without_a_session(
    front_end: FrontEnd,
) -> None:
    opened = front_end.run("%ddt_live")
    assert panel(opened) == ["no session: %ddt_start begins one"]
    started = front_end.run("%ddt_start -n 2")
    assert panel(started)[-1].startswith("2 ranks, no cell runs")

    arrived: list[tuple[float, Message]] = []
    front_end.run(
        "%%ddt\nimport time\nif rank == 0:\n    time.sleep(1.5)\ndist.barrier()",
        lambda m: arrived.append((time.monotonic(), m)),
    )
    updates = [(at, plain(m)) for at, m in arrived if m["msg_type"] == "update_display_data"]
    running = [(at, text) for at, text in updates if " runs · " in text]
    assert len(running) >= 3
    assert running[-1][0] - running[0][0] > 0.4  # as it went on, not all at the end
    # at the very end rank 0 may have come, too
    waits = [text for _, text in running if "for rank 0 in barrier #1" in text]
    assert "‖ waits" in waits[-1]
    assert "line 4: time.sleep(1.5)" in waits[-1]
    assert " ended after " in updates[-1][1]
    states = [m["content"]["data"]["state"] for _, m in arrived if m["msg_type"] == "comm_msg"]
    assert states == [{"disabled": False}] * 2 + [{"disabled": True}] * 2

    assert panel(front_end.run("1 + 1")) == []
    assert panel(front_end.run("%ddt_stop")) == ["no session: %ddt_start begins one"]
    front_end.run("%ddt_live --close")
    assert panel(front_end.run("%ddt_start -n 2")) == []


def test_interrupt_works_while_the_cell_blocks_the_kernel(front_end: FrontEnd) -> None:
    front_end.run("%ddt_start -n 2\n%ddt_live")
    click = ClickWhenWaiting(front_end, "Interrupt", front_end.create_subshell())
    outputs = front_end.run(WAITS, click)
    assert "was interrupted after" in panel(outputs)[-1]
    assert "was running" in panel(outputs)[-1]
    assert "delivers clicks only" not in "".join(panel(outputs))
    assert outputs[-1]["content"]["ename"] == "CellFailed"
    assert "ok" in plain(front_end.run("%%ddt\nassert kept == rank\ndist.barrier()")[-1])


def test_freeze_holds_the_cell_until_it_is_released(front_end: FrontEnd) -> None:
    front_end.run("%ddt_start -n 2\n%ddt_live")
    subshell = front_end.create_subshell()
    click = ClickWhenWaiting(front_end, "Freeze", subshell)
    outputs = front_end.run(WAITS, click)
    assert "is held" in panel(outputs)[-1]
    assert "%ddt_release ends it" in panel(outputs)[-1]
    front_end.click("Interrupt", subshell)  # comes too late to mean this cell
    assert "dist.barrier()" in plain(front_end.run("%ddt_show stacks")[-1])
    released = front_end.run("%ddt_release")
    assert "was interrupted after" in panel(released)[-1]
    assert "ok" in plain(front_end.run("%%ddt\nassert kept == rank\ndist.barrier()")[-1])


def test_the_panel_shows_a_note_if_clicks_come_late(front_end: FrontEnd) -> None:
    front_end.run("%ddt_start -n 2\n%ddt_live")
    click = ClickWhenWaiting(front_end, "Interrupt", None)
    outputs = front_end.run(WAITS.replace("20", "3"), click)
    assert "delivers clicks only when the cell has ended" in panel(outputs)[-2]
    assert " ended after " in panel(outputs)[-1]
    outputs = front_end.run("%%ddt\nimport time\ntime.sleep(1)")
    assert " ended after " in panel(outputs)[-1]  # the late click ended nothing


def test_a_cell_can_be_frozen_while_it_computes() -> None:
    with ddt.Session(2) as session:
        session.run("kept = 1")
        threading.Timer(0.7, session.freeze).start()
        run = session.run("while True:\n    pass")
        assert run.frozen
        assert run.snapshot.outcome == "interrupted"
        assert [report.state for report in run.snapshot.ranks] == ["running", "running"]
        assert [rank.state for rank in session.status().ranks] == ["running", "running"]
        with pytest.raises(ddt.SessionError, match="held"):
            session.run("pass")
        assert not session.release().frozen
        assert session.run("assert kept == 1\ndist.barrier()").ok


def test_a_hang_that_is_frozen_is_called_a_hang() -> None:
    with ddt.Session(2, hang_after=20.0, timeout=20.0) as session:
        threading.Timer(0.7, session.freeze).start()
        run = session.run("if rank == 0:\n    dist.barrier()")
        assert run.frozen
        assert run.snapshot.outcome == "hung"
        session.release()
        assert session.run("dist.barrier()").ok


def test_freezing_has_no_effect_when_no_cell_runs() -> None:
    with ddt.Session(2) as session:
        session.freeze()
        assert not session.frozen
        assert session.run("pass").ok


def test_in_a_terminal_it_says_what_there_is_instead(notebook: Any) -> None:
    assert "needs a notebook" in notebook.shown("%ddt_live")
    notebook.run("%ddt_live --close")
