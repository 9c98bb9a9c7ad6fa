"""JupyterLab's side panel, seen from the kernel: a front end that speaks over a subshell."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from ddt_notebook.widgets.lab import TARGET

LIMIT_S = 60.0
WAITS = "%%ddt\nimport time\nkept = rank\nif rank == 0:\n    time.sleep(20)\ndist.barrier()"

State = dict[str, Any]


class Panel:
    """Runs cells, and collects what the kernel tells the side panel."""

    def __init__(self) -> None:
        self.manager, self.client = start_new_kernel(startup_timeout=60)
        self.run("%load_ext ddt_notebook")

    def run(self, source: str, each: Callable[[State], None] = lambda s: None) -> list[State]:
        states: list[State] = []

        def take(message: dict[str, Any]) -> None:
            if message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == TARGET:
                states.append(message["content"]["data"])
                each(states[-1])

        self.client.execute_interactive(source, timeout=LIMIT_S, output_hook=take)
        return states

    def create_subshell(self) -> str:
        self.client.control_channel.send(self.client.session.msg("create_subshell_request"))
        reply = self.client.control_channel.get_msg(timeout=5)
        return str(reply["content"]["subshell_id"])

    def say(self, word: str, subshell: str | None = None) -> None:
        content = {"comm_id": TARGET, "data": {"do": word}}
        message = self.client.session.msg("comm_msg", content)
        message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)

    def hello(self) -> State:
        """The answer to the panel's first word."""
        self.say("hello")
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=LIMIT_S)
            if message["msg_type"] == "comm_msg":
                return dict(message["content"]["data"])
        raise TimeoutError("the kernel does not answer")

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def side_panel() -> Iterator[Panel]:
    made = Panel()
    yield made
    made.close()


def when_waiting(side_panel: Panel, word: str, subshell: str) -> Callable[[State], None]:
    said: list[str] = []

    def each(state: State) -> None:
        if not said and any(row["state"] == "waits" for row in state["rows"]):
            said.append(word)
            side_panel.say(word, subshell)

    return each


def test_says_nothing_until_it_is_asked(side_panel: Panel) -> None:
    assert side_panel.run("%ddt_start -n 2\n") == []
    assert side_panel.run("%%ddt\nimport time\ntime.sleep(0.7)") == []
    state = side_panel.hello()
    assert state["session"] == {
        "line": "2 ranks · gloo · cpu",
        "ranks": 2,
        "busy": False,
        "frozen": False,
    }
    assert [row["state"] for row in state["rows"]] == ["ready", "ready"]
    assert state["report"]["findings"] == []
    assert side_panel.run("1 + 1") == []


def test_keeps_up_while_a_cell_runs(side_panel: Panel) -> None:
    assert side_panel.hello()["session"] is None
    assert side_panel.run("%ddt_start -n 2 --memory 700M")[-1]["session"]["ranks"] == 2
    states = side_panel.run(
        "%%ddt\nimport time\nif rank == 0:\n    time.sleep(1.5)\ndist.barrier()"
    )
    running = [state for state in states if state["run"] and state["run"]["outcome"] is None]
    assert len(running) >= 3
    assert running[-1]["session"]["busy"]
    apart = [state["rows"] for state in running if state["rows"][0]["line"] == 4]
    first, second = apart[-1]
    assert first["state"] == "running"
    assert (second["state"], second["line"]) == ("waits", 5)
    assert second["wait"].endswith("for rank 0 in barrier #1")
    assert " MB " in second["memory"]
    assert running[-1]["session"]["line"].endswith("each may allocate 734 MB")  # 700 MiB
    assert states[-1]["run"]["outcome"] == "ok"
    assert states[-1]["report"]["summary"]
    assert side_panel.run("%ddt_stop")[-1] == {
        "session": None,
        "run": None,
        "report": None,
        "earlier": None,
        "headline": "no session",
        "rows": [],
        "notes": [],
    }


def test_tells_what_was_found_and_where(side_panel: Panel) -> None:
    side_panel.hello()
    side_panel.run("%ddt_start -n 2 --hang-after 0.5")
    states = side_panel.run("%%ddt\nif rank == 0:\n    dist.barrier()")
    assert states[-1]["run"]["outcome"] == "hung"
    report = states[-1]["report"]
    (finding,) = report["findings"]
    assert finding["symptom"] == "D.2.1"
    assert "rank 1 never entered barrier" in finding["title"]
    assert (finding["places"][0]["cell"], finding["places"][0]["line"]) == (report["cell"], 3)
    assert finding["explain"][0] == "D.2.1"
    assert finding["fixes"]
    states = side_panel.run("%%ddt\ndist.barrier()")
    assert states[-1]["report"]["findings"] == []
    assert states[-1]["earlier"] == report
    assert side_panel.run("%ddt_stop")[-1]["earlier"] == report


def test_interrupts_and_freezes_while_the_cell_blocks_the_kernel(side_panel: Panel) -> None:
    side_panel.hello()
    side_panel.run("%ddt_start -n 2")
    subshell = side_panel.create_subshell()
    states = side_panel.run(WAITS, when_waiting(side_panel, "interrupt", subshell))
    assert states[-1]["run"]["outcome"] == "interrupted"
    states = side_panel.run(WAITS, when_waiting(side_panel, "freeze", subshell))
    assert states[-1]["session"]["frozen"]
    assert states[-1]["run"]["frozen"]
    assert {row["state"] for row in states[-1]["rows"]} == {"running", "waits"}
    released = side_panel.run("%ddt_release")
    assert not released[-1]["session"]["frozen"]
    assert side_panel.run("%%ddt\nassert kept == rank")[-1]["run"]["outcome"] == "ok"


def test_is_gone_when_the_extension_is_unloaded(side_panel: Panel) -> None:
    side_panel.hello()
    side_panel.run("%ddt_start -n 2")
    assert side_panel.run("%unload_ext ddt_notebook") == []
    side_panel.run("%load_ext ddt_notebook")
    assert side_panel.hello()["session"] is None
