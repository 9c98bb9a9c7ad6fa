"""The extension stays quiet with other kernels, and without a kernel."""

from __future__ import annotations

from playwright.sync_api import expect

from .lab import Lab, Page
from .without_kernel import open_without_kernel

QUIET = "No session in this notebook."
#: A kernel of another language, which knows neither comms nor subshells; driven by Python.
JULIA = """
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel


class Julia(Kernel):
    implementation, implementation_version, banner = "julia", "1", ""
    language_info = {"name": "julia", "mimetype": "text/x-julia", "file_extension": ".jl"}
    supported_features = []

    async def do_execute(self, code, silent, *args, **kwargs):
        if code.startswith("from "):
            content = {"ename": "ParseError", "evalue": "extra token after end", "traceback": []}
            self.send_response(self.iopub_socket, "error", content)
            return {"status": "error", "execution_count": self.execution_count, **content}
        return {"status": "ok", "execution_count": self.execution_count, "payload": [],
                "user_expressions": {}}


IPKernelApp.launch_instance(kernel_class=Julia)
"""
#: Messages that another version of ddt_notebook might send, before and after the panel's first.
STRANGE = """
from comm import create_comm, get_comm_manager
def received(comm, message):
    session = {"session": {"line": "2 ranks", "ranks": 2}, "headline": "a cell runs"}
    for data in ({}, {"news": [1]}, session, session | {"rows": []}, session | {"notes": []}):
        comm.send(data)
    comm.send(session | {"rows": [], "notes": [], "report": {"findings": "none"}})
known = create_comm(target_name="ddt_notebook", comm_id="ddt_notebook", primary=False)
known.on_msg(lambda message: received(known, message))
get_comm_manager().register_comm(known)
get_comm_manager().register_target("ddt_notebook", received)
"""


def check_quiet(page: Page) -> None:
    """One line in the panel, no notification, and no error in the console."""
    expect(page.panel).to_contain_text(QUIET)
    expect(page.panel.get_by_role("status")).to_be_empty()
    expect(page.tab.locator(".Toastify__toast")).to_have_count(0)
    assert page.console == []
    assert page.errors == []


def test_a_kernel_of_another_language(page: Page, lab: Lab) -> None:
    lab.add_kernel("julia", "julia", JULIA)
    page.open(lab.write("other.ipynb", 'x = "ddt"', "1 + 1", kernel="julia"), anew=True)
    page.open_panel()
    page.run_to_end(0)
    page.run_to_end(1)
    check_quiet(page)
    page.button("Start").click()
    expect(page.panel).to_contain_text("the kernel runs julia, not Python")
    page.picture("panel-julia")


def test_a_notebook_without_a_kernel(page: Page, lab: Lab) -> None:
    open_without_kernel(page, lab.write("none.ipynb", "x = 'ddt'"))
    page.open_panel()
    page.cell(0).locator(".cm-content").click()
    check_quiet(page)
    page.button("Start").click()
    expect(page.panel).to_contain_text("the notebook has no kernel")
    assert lab.kernels() == []


def test_a_kernel_that_sends_unknown_messages(page: Page, lab: Lab) -> None:
    page.open(lab.write("strange.ipynb", STRANGE, "x = 'ddt'"))
    page.open_panel()
    page.run_to_end(0)
    page.run_to_end(1)
    check_quiet(page)
    lab.end_kernels()  # what this one sends would confuse the next test
