"""A front end that keeps widgets and outputs as JupyterLab does, for tests without a browser."""

from __future__ import annotations

from typing import Any

import nbformat

from .test_live_panel import FrontEnd

Message = dict[str, Any]
WIDGET = "application/vnd.jupyter.widget-view+json"


class Page(FrontEnd):
    """Presses buttons by their labels, and stores what it was asked to show."""

    def __init__(self) -> None:
        self.states: dict[str, dict[str, Any]] = {}
        self.outputs: list[tuple[str, dict[str, Any]]] = []
        self.focused = self.next_input = ""
        super().__init__()

    def clear(self) -> None:
        """Begin with a page on which nothing is shown."""
        self.states.clear()
        self.outputs.clear()
        self.focused = ""

    def execute(self, source: str) -> list[Message]:
        """Run a cell; what it offers as the next one is kept."""
        received: list[Message] = []

        def take(message: Message) -> None:
            if message["msg_type"] not in ("status", "execute_input"):
                received.append(message)
            self._take(message)

        reply = self.client.execute_interactive(source, timeout=60, output_hook=take)
        offers = [p["text"] for p in reply["content"].get("payload", []) if "text" in p]
        self.next_input = offers[-1] if offers else ""
        return received

    def press(self, label: str) -> None:
        """Press the visible button whose label begins so, and wait until all has been done."""
        (comm,) = [c for c in self.visible() if self.states[c]["description"].startswith(label)]
        content = {
            "comm_id": comm,
            "data": {"method": "custom", "content": {"event": "click"}},
        }
        message = self.client.session.msg("comm_msg", content)
        self.client.shell_channel.send(message)
        while True:
            received = self.client.get_iopub_msg(timeout=60)
            self._take(received)
            if received["parent_header"].get("msg_id") == message["header"]["msg_id"] and (
                received["content"].get("execution_state") == "idle"
            ):
                return

    def visible(self) -> list[str]:
        """Comms of the buttons that can be pressed, in the order in which they were made."""
        return [
            comm
            for comm, state in self.states.items()
            if state.get("_model_name") == "ButtonModel"
            and not state.get("disabled")
            and self._layout(state).get("display") != "none"
        ]

    def labels(self) -> list[str]:
        return [self.states[comm]["description"] for comm in self.visible()]

    def shown(self) -> str:
        """All HTML of the panel."""
        return "\n".join(
            state["value"]
            for state in self.states.values()
            if state.get("_model_name") == "HTMLModel"
        )

    def saved(self, kind: str = "text/plain") -> str:
        """What the last output holds now, apart from the panel's own."""
        stored = [data for _, data in self.outputs if WIDGET not in data]
        return str(stored[-1][kind])

    def notebook(self) -> nbformat.NotebookNode:
        """The notebook as it would be saved: its outputs, and no state of widgets."""
        cell = nbformat.v4.new_code_cell("%ddt_debug")
        cell.outputs = [
            nbformat.v4.new_output("display_data", data=data) for _, data in self.outputs
        ]
        return nbformat.v4.new_notebook(cells=[cell])

    def _layout(self, state: dict[str, Any]) -> dict[str, Any]:
        return self.states.get(str(state.get("layout", "")).removeprefix("IPY_MODEL_"), {})

    def _take(self, message: Message) -> None:
        content = message["content"]
        shown_as = content.get("transient", {}).get("display_id", "")
        match message["msg_type"]:
            case "comm_open":
                self.states[content["comm_id"]] = dict(content["data"].get("state", {}))
            case "comm_msg":
                data = content["data"]
                if data["method"] == "update":
                    self.states[content["comm_id"]].update(data["state"])
                elif data.get("content", {}).get("do") == "focus":
                    self.focused = self.states[content["comm_id"]]["description"]
            case "display_data":
                self.outputs.append((shown_as, content["data"]))
            case "update_display_data":
                self.outputs = [
                    (name, content["data"] if name == shown_as else data)
                    for name, data in self.outputs
                ]
