"""A notebook that is only read: no kernel is started for it."""

from __future__ import annotations

from playwright.sync_api import expect

from .lab import Page

_NONE = {"shouldStart": False, "canStart": False, "autoStartDefault": False}
#: ipywidgets looks for the kernel of every notebook, and does not expect that there is none.
_OF_IPYWIDGETS = "Cannot read properties of null (reading 'kernel')"


def open_without_kernel(page: Page, name: str) -> None:
    """Open JupyterLab with a notebook, and start no kernel for it."""
    page.open()
    with page.tab.expect_event("pageerror", lambda error: str(error) == _OF_IPYWIDGETS):
        page.command("docmanager:open", path=name, kernelPreference=_NONE)
    page.errors.remove(_OF_IPYWIDGETS)
    expect(page.notebook.locator(".jp-Cell").first).to_be_visible()
