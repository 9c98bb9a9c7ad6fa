"""The kernel's side of JupyterLab's side panel, with a front end that uses a subshell."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ddt_notebook.widgets.lab import TARGET

from .kernels import Client, Reused

LIMIT_S = 60.0
WAITS = "%%ddt\nimport time\nkept = rank\nif rank == 0:\n    time.sleep(20)\ndist.barrier()"

State = dict[str, Any]


class Panel(Client):
    """Runs cells, and collects what the kernel sends to the side panel."""

    def run(self, source: str, each: Callable[[State], None] = lambda s: None) -> list[State]:
        states: list[State] = []

        def take(message: dict[str, Any]) -> None:
            if message["msg_type"] == "comm_msg" and message["content"]["comm_id"] == TARGET:
                states.append(message["content"]["data"])
                each(states[-1])

        self.client.execute_interactive(source, timeout=LIMIT_S, output_hook=take)
        return states

    def say(self, word: str, subshell: str | None = None, **more: str) -> None:
        self.send(TARGET, {"do": word, **more}, subshell)

    def open(self) -> None:
        content = {"comm_id": TARGET, "target_name": TARGET, "data": {}}
        self.client.shell_channel.send(self.client.session.msg("comm_open", content))

    def hello(self) -> State:
        """The answer to the panel's first message."""
        self.say("hello")
        return self.next_message()

    def page(self, name: str) -> State:
        """A view that was asked for."""
        self.say("page", page=name)
        return self.next_message()

    def next_message(self) -> State:
        """The kernel's next message."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            message = self.client.get_iopub_msg(timeout=LIMIT_S)
            assert message["msg_type"] != "comm_close"
            if message["msg_type"] == "comm_msg":
                return dict(message["content"]["data"])
        raise TimeoutError("the kernel does not answer")


@pytest.fixture(scope="module")
def reused() -> Iterator[Reused[Panel]]:
    made = Reused(Panel)
    yield made
    made.close()


@pytest.fixture
def side_panel(reused: Reused[Panel], request: pytest.FixtureRequest) -> Iterator[Panel]:
    with reused.lent_to(request.node) as lent:
        yield lent


def when_waiting(side_panel: Panel, word: str, subshell: str) -> Callable[[State], None]:
    said: list[str] = []

    def each(state: State) -> None:
        if not said and any(row["state"] == "waits" for row in state["rows"]):
            said.append(word)
            side_panel.say(word, subshell)

    return each


def test_the_kernel_sends_nothing_until_it_is_asked(side_panel: Panel) -> None:
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


def test_the_panel_is_updated_while_a_cell_runs(side_panel: Panel) -> None:
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
    stopped = side_panel.run("%ddt_stop")[-1]
    assert {"name": "memory", "label": "Memory"} in stopped.pop("views")
    assert stopped == {
        "session": None,
        "run": None,
        "report": None,
        "earlier": None,
        "asked": "",
        "headline": "no session",
        "rows": [],
        "notes": [],
    }


def test_the_panel_shows_findings_and_their_places(side_panel: Panel) -> None:
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


def test_the_panel_interrupts_and_freezes_while_the_cell_blocks_the_kernel(
    side_panel: Panel,
) -> None:
    side_panel.hello()
    side_panel.run("%ddt_start -n 2")
    subshell = side_panel.create_subshell()
    states = side_panel.run(WAITS, when_waiting(side_panel, "interrupt", subshell))
    assert states[-1]["run"]["outcome"] == "interrupted"
    assert states[-1]["asked"] == "interrupting"
    states = side_panel.run(WAITS, when_waiting(side_panel, "freeze", subshell))
    assert states[-1]["session"]["frozen"]
    assert states[-1]["run"]["frozen"]
    assert {row["state"] for row in states[-1]["rows"]} == {"running", "waits"}
    released = side_panel.run("%ddt_release")
    assert not released[-1]["session"]["frozen"]
    assert side_panel.run("%%ddt\nassert kept == rank")[-1]["run"]["outcome"] == "ok"


def test_pages_open_the_comm_one_after_another(side_panel: Panel) -> None:
    for _ in range(2):
        side_panel.open()
        assert side_panel.hello()["session"] is None
    assert side_panel.run("import gc\ngc.collect()\n%ddt_start -n 1")[-1]["session"]["ranks"] == 1
    assert side_panel.hello()["session"]["ranks"] == 1


def test_the_panel_shows_no_session_after_the_extension_was_unloaded(side_panel: Panel) -> None:
    side_panel.hello()
    side_panel.run("%ddt_start -n 2")
    assert side_panel.run("%unload_ext ddt_notebook") == []
    side_panel.run("%load_ext ddt_notebook")
    assert side_panel.hello()["session"] is None


def test_the_panel_shows_each_ranks_device_and_its_memory_with_its_cap(side_panel: Panel) -> None:
    side_panel.hello()
    rows = side_panel.run("%ddt_start -n 2 --memory 300M")[-1]["rows"]
    assert [row["device"] for row in rows] == ["cpu", "cpu"]
    empty = [row["share"] for row in rows]
    assert all(0 <= share < 0.5 for share in empty)
    rows = side_panel.run("%%ddt\nx = bytearray(200_000_000 if rank else 0)")[-1]["rows"]
    assert rows[1]["share"] > max(empty) + 0.5
    assert rows[0]["share"] < 0.5
    assert rows[1]["allocated"].endswith(" of 315 MB allocated")
    side_panel.run("%ddt_stop")
    rows = side_panel.run("%ddt_start -n 2 --simulate cuda:2")[-1]["rows"]
    assert [row["device"] for row in rows] == ["cuda:0 (simulated)", "cuda:1 (simulated)"]
    assert [row["share"] for row in rows] == [None, None]


def test_views_of_the_last_run_are_drawn_on_demand(side_panel: Panel) -> None:
    side_panel.hello()
    assert "nothing has run on ranks yet" in side_panel.page("memory")["missing"]
    assert side_panel.page("<b>")["missing"].startswith("there is no view <b>")
    side_panel.run("%ddt_start -n 2")
    side_panel.run("%%ddt\ndist.barrier()")
    assert "barrier" in side_panel.page("collectives")["html"]
    assert "%%ddt_debug" in side_panel.page("memory")["missing"]
    side_panel.run("%%ddt_debug\nx = torch.ones(3)\ndist.all_reduce(x)")
    for name in ("memory", "timeline", "collectives", "placement"):
        answer = side_panel.page(name)
        assert (answer["page"], answer["missing"]) == (name, "")
        assert f"{name} · after cell[" in answer["html"]
        assert bool(answer["viewer"]) == (name == "timeline")
    assert side_panel.page("report")["html"].startswith("<!DOCTYPE html>")
    side_panel.run("%ddt_stop")
    assert "memory · after cell[" in side_panel.page("memory")["html"]


def test_the_last_ended_run_is_drawn_while_a_cell_blocks_the_kernel(
    side_panel: Panel,
) -> None:
    side_panel.hello()
    side_panel.run("%ddt_start -n 2")
    side_panel.run("%%ddt\ndist.barrier()")
    subshell = side_panel.create_subshell()
    side_panel.client.execute(WAITS)
    while not any(row["state"] == "waits" for row in side_panel.next_message()["rows"]):
        pass
    side_panel.say("page", subshell, page="collectives")
    while "page" not in (state := side_panel.next_message()):
        assert state["run"]["outcome"] is None
    assert "collectives · after cell[" in state["html"]
    side_panel.say("interrupt", subshell)
    while side_panel.next_message()["run"]["outcome"] != "interrupted":
        pass
