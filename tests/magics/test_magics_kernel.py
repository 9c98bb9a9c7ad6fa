"""The magics in a real kernel: what a notebook stores, interrupt, restart, and sudden death."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from .kernels import Client, Reused

LIMIT_S = 90.0
GONE_LIMIT_S = 30.0


class Kernel(Client):
    """Runs cells in an ipykernel and collects their outputs."""

    def run(
        self, source: str, *, until: str = "", do: Callable[[], None] = lambda: None
    ) -> list[dict[str, Any]]:
        """Outputs of a cell; as soon as ``until`` was printed, ``do`` is called once."""
        outputs: list[dict[str, Any]] = []

        def take(message: dict[str, Any]) -> None:
            nonlocal until
            content = message["content"] | {"kind": message["msg_type"]}
            outputs.append(content)
            if until and until in content.get("text", ""):
                until = ""
                do()

        self.client.execute_interactive(source, timeout=LIMIT_S, output_hook=take)
        return [o for o in outputs if o["kind"] not in ("status", "execute_input")]

    def start_ranks(self, number: int) -> list[int]:
        *_, table = self.run(f"%ddt_start -n {number} --hang-after 0.5")
        return [int(pid) for pid in re.findall(r"^  \d+\s+(\d+)", plain(table), re.MULTILINE)]


def plain(output: dict[str, Any]) -> str:
    return str(output["data"]["text/plain"])


def printed(outputs: list[dict[str, Any]], stream: str = "stdout") -> str:
    return "".join(o["text"] for o in outputs if o["kind"] == "stream" and o["name"] == stream)


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + GONE_LIMIT_S
    while any(map(psutil.pid_exists, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture(scope="module")
def reused() -> Iterator[Reused[Kernel]]:
    made = Reused(Kernel)
    yield made
    made.close()


@pytest.fixture
def kernel(reused: Reused[Kernel], request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with reused.lent_to(request.node) as lent:
        yield lent


@pytest.fixture
def own_kernel() -> Iterator[Kernel]:
    """A kernel for a test that ends it."""
    made = Kernel()
    yield made
    made.close()


def test_what_a_notebook_stores(kernel: Kernel) -> None:
    kernel.start_ranks(2)

    outputs = kernel.run("%%ddt\nprint('hello')\nrank")
    assert printed(outputs) == "[ranks 0, 1] hello\n[rank 0] 0\n[rank 1] 1\n", outputs
    assert outputs[-1]["kind"] == "execute_result"
    assert set(outputs[-1]["data"]) == {"text/plain", "text/html"}

    outputs = kernel.run(
        "%%ddt -r 1\nfrom IPython.display import HTML, display\n"
        "shown = display(HTML('<b>a</b>'), display_id=True)\nshown.update(HTML('<b>b</b>'))"
    )
    label, first, update, _ = outputs
    assert plain(label) == "[rank 1]"
    assert first["data"]["text/html"] == "<b>a</b>"
    assert update["kind"] == "update_display_data"
    assert update["transient"] == first["transient"]

    outputs = kernel.run(
        "%%ddt\nimport sys, time\nfor i in range(10):\n"
        "    sys.stderr.write(f'\\r{i}0%')\n    time.sleep(0.05)"
    )
    live = [o for o in outputs if o["kind"] in ("display_data", "update_display_data")]
    assert live[0]["kind"] == "display_data"
    assert all(o["kind"] == "update_display_data" for o in live[1:])
    assert plain(live[-1]) == ""
    assert printed(outputs, "stderr") == "[ranks 0, 1] 90%\n"

    *_, report, error = kernel.run("%%ddt\nif rank == 0:\n    dist.barrier()")
    assert "rank 1 never entered barrier" in plain(report)
    assert "◀ rank 0 waits in barrier" in report["data"]["text/html"]
    assert error["kind"] == "error"
    assert error["ename"] == "CellFailed"
    assert not [line for line in error["traceback"] if "magics" in line]


def test_interrupt_ends_a_cell(kernel: Kernel) -> None:
    kernel.start_ranks(2)
    outputs = kernel.run(
        "%%ddt\nimport time\nprint('begun')\nif rank == 0:\n    time.sleep(60)\ndist.barrier()",
        until="begun",
        do=kernel.manager.interrupt_kernel,
    )
    assert outputs[-1]["ename"] == "CellFailed"
    assert outputs[-1]["evalue"].startswith("interrupted after")
    assert "ok · 2 ranks" in plain(kernel.run("%%ddt\ndist.barrier()")[-1])


def test_restarting_the_kernel_leaves_no_rank(own_kernel: Kernel) -> None:
    pids = own_kernel.start_ranks(2)
    assert all(map(psutil.pid_exists, pids))
    own_kernel.manager.restart_kernel(now=False)
    assert gone(pids)
    own_kernel.client.wait_for_ready(timeout=60)
    own_kernel.run("%load_ext ddt_notebook")
    assert len(own_kernel.start_ranks(2)) == 2


def test_killing_the_kernel_leaves_no_rank(own_kernel: Kernel) -> None:
    pids = own_kernel.start_ranks(2)
    server = psutil.Process(pids[0]).ppid()
    os.kill(own_kernel.manager.provisioner.pid, signal.SIGKILL)  # type: ignore[union-attr]
    assert gone([*pids, server])


def test_a_corrected_cell_becomes_a_new_cell_of_the_notebook(kernel: Kernel) -> None:
    kernel.start_ranks(2)
    kernel.run("%%ddt\nif rank == 0:\n    dist.barrier()")
    reply = kernel.client.execute_interactive("%ddt_debug --fix", timeout=LIMIT_S)
    (payload,) = reply["content"]["payload"]
    assert (payload["source"], payload["replace"]) == ("set_next_input", False)
    assert payload["text"] == "%%ddt_debug --again\ndist.barrier()\n"
    assert plain(kernel.run(payload["text"])[-1]).startswith("gone · the symptom is gone")
