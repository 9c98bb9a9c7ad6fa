"""The actions of the tests in JupyterLab and Notebook 7, as a user does them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Locator,
    Request,
    ViewportSize,
    WebSocket,
    expect,
)
from playwright.sync_api import Page as Tab
from playwright.sync_api import TimeoutError as TookTooLong

from .server import Lab

LIMIT_MS = 90_000
THEMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")
SIZE: ViewportSize = {"width": 1400, "height": 900}
#: Every control is reached with at most this many presses of Tab.
_MOST_STEPS = 40
#: JupyterLab's own error, some time after the notebook of an earlier test was closed.
_CLOSED = "Disposed"
expect.set_options(timeout=LIMIT_MS)
#: Closes all documents and panels, none of which asks whether to save it.
_CLOSE = """async () => {
  const { shell } = window.jupyterapp;
  for (const widget of [...shell.widgets('main')]) {
    if (widget.context?.model) widget.context.model.dirty = false;
    widget.close();
  }
  for (const widget of [...shell.widgets('down')]) widget.close();
  shell.collapseRight();
  shell.activateById('filebrowser');
}"""
_IS_EMPTY = """() => {
  const { shell } = window.jupyterapp;
  return ![...shell.widgets('main')].some(widget => widget.context);
}"""
#: Whether each connection to a kernel is closed. JupyterLab forgets one whose notebook was closed
#: while it was made, and only the first connection to a kernel receives the messages of widgets.
_IS_APART = """() => window.jupyterapp.serviceManager.kernels._kernelConnections.size === 0"""
_APART_LIMIT_MS = 2_000


def is_here(url: str) -> bool:
    """Whether an address is on this machine."""
    return urlsplit(url).hostname in {"127.0.0.1", "localhost", None}


@dataclass
class Page:
    """JupyterLab in one tab."""

    browser: Browser
    lab: Lab
    strays: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # one context for all pages, so that the browser loads JupyterLab only once
        contexts = self.browser.contexts
        self._context = contexts[0] if contexts else self.browser.new_context(viewport=SIZE)
        self._context.set_default_timeout(LIMIT_MS)
        self._context.on("request", self._note_request)
        tab = self._context.new_page()
        kept = {"origin": self.lab.url.rstrip("/"), "storageTypes": "local_storage,indexeddb"}
        self._context.new_cdp_session(tab).send("Storage.clearDataForOrigin", kept)
        self._watch(tab)

    def _watch(self, tab: Tab) -> None:
        tab.on("pageerror", self._fail)
        tab.on("console", self._note)
        tab.on("websocket", self._note_request)
        self.tab = tab

    def _fail(self, error: Error) -> None:
        if "/ddt-notebook/" in (error.stack or ""):
            self.ours.append(str(error))
        if str(error) != _CLOSED:
            self.errors.append(str(error))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console.append(f"{message.text} {message.location.get('url', '')}")

    def leave(self) -> bool:
        """Close all that a test opened in JupyterLab; whether the next can go on from there."""
        for tab in self._context.pages:
            if tab is not self.tab:
                tab.close()
        asks = self.tab.locator(".jp-Dialog, [role=alert], #jupyterlab-splash")
        if not self._shows_lab() or asks.count():
            return False
        self.tab.set_viewport_size(SIZE)
        self.theme(THEMES[0])
        self.tab.evaluate(_CLOSE)
        self.tab.wait_for_function(_IS_EMPTY)
        try:
            self.tab.wait_for_function(_IS_APART, timeout=_APART_LIMIT_MS)
        except TookTooLong:
            return False
        self.lab.end_kernels(keep=True)
        return True

    def begin(self) -> None:
        """Forget what was noted for an earlier test."""
        for noted in (self.strays, self.errors, self.ours, self.console):
            noted.clear()

    def _shows_lab(self) -> bool:
        return not self.tab.is_closed() and self.tab.url.startswith(f"{self.lab.url}lab")

    def close(self, *, keep_kernel: bool = False) -> None:
        """Close its tabs and end its kernels; one is kept for the next test if wanted."""
        self._context.remove_listener("request", self._note_request)
        for tab in self._context.pages:
            tab.close()
        self.lab.end_kernels(keep=keep_kernel)

    def _note_request(self, asked: Request | WebSocket) -> None:
        if not is_here(asked.url):
            self.strays.append(asked.url)

    # -- JupyterLab ----------------------------------------------------------------------------

    def open(self, name: str = "", *, anew: bool = False) -> None:
        """Open JupyterLab, with a notebook if one is named; without one, it is loaded anew."""
        if name:
            self.lab.lend_kernel(name)
        if name and self._shows_lab() and not anew:
            self.command("docmanager:open", path=name)
        else:
            tree = f"/tree/{name}" if name else ""
            self.tab.goto(f"{self.lab.url}lab{tree}?token={self.lab.token}&reset")
            expect(self.tab.locator("#jp-main-dock-panel")).to_be_visible()
        if name:
            expect(self.notebook.locator(".jp-Cell").first).to_be_visible()
            self.wait_for_kernel()

    def open_in_notebook_7(self, name: str) -> None:
        """Open a notebook of code in Notebook 7, where it has a page of its own."""
        self.lab.lend_kernel(name)
        self.tab.goto(f"{self.lab.url}notebooks/{name}?token={self.lab.token}")
        expect(self.notebook.locator(".jp-Cell").first).to_be_visible()
        self.wait_for_kernel()

    @contextmanager
    def to_the_new_tab(self) -> Iterator[None]:
        """Go on in the tab that opens inside."""
        with self._context.expect_page() as opened:
            yield
        self._watch(opened.value)

    def menu(self, *entries: str) -> None:
        """Choose an entry of the menu bar, by mouse."""
        bar, *below, last = entries
        self.tab.locator(".lm-MenuBar-item").get_by_text(bar, exact=True).click()
        for entry in below:
            self.tab.locator(".lm-Menu-item").get_by_text(entry, exact=True).hover()
        self.tab.locator(".lm-Menu-item").get_by_text(last, exact=True).click()

    def wait_for_kernel(self) -> None:
        """Wait until the notebook that is shown has an idle kernel."""
        self.tab.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session"
            "?.kernel?.status === 'idle'"
        )

    @property
    def notebook(self) -> Locator:
        """The notebook that is shown."""
        return self.tab.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def cell(self, number: int) -> Locator:
        """A cell, counted from 0."""
        return self.notebook.locator(".jp-Cell").nth(number)

    def output(self, number: int) -> Locator:
        """All outputs of a cell."""
        return self.cell(number).locator(".jp-Cell-outputArea")

    def run(self, number: int) -> None:
        """Run a cell; does not wait for its end."""
        self.cell(number).locator(".jp-InputPrompt").click()
        self.tab.keyboard.press("Control+Enter")

    def run_to_end(self, number: int) -> None:
        """Run a cell, and wait until it has ended."""
        self.run(number)
        self.ended(number)

    def ended(self, number: int) -> None:
        """Wait until a cell has a number."""
        expect(self.cell(number).locator(".jp-InputPrompt").first).to_have_text(
            re.compile(r"\[\d+\]:")
        )

    def tab_to(self, button: Locator) -> None:
        """Press Tab until a button has the keyboard."""
        expect(button).to_be_visible()
        for _ in range(_MOST_STEPS):
            if button.evaluate("button => button === document.activeElement"):
                return
            self.tab.keyboard.press("Tab")
        raise AssertionError(f"Tab does not reach {button}")

    def save(self) -> None:
        """Save the notebook that is shown, and wait until it is on the disk."""
        self.tab.evaluate(
            "() => { const shell = window.jupyterapp.shell;"
            " return shell.currentWidget.context.save(); }"
        )

    def theme(self, name: str) -> None:
        """Change the theme, and wait until it is drawn."""
        self.command("apputils:change-theme", theme=name)
        expect(self.tab.locator("body")).to_have_attribute("data-jp-theme-name", name)
        expect(self.tab.locator("#jupyterlab-splash")).to_have_count(0)

    def violations(self, *selectors: str) -> list[str]:
        """What axe finds against the rules of WCAG in these parts of the page."""
        found = Axe().run(
            self.tab,
            context={"include": [[name] for name in selectors]},
            options={"resultTypes": ["violations"]},
        )
        return [
            f"{rule['id']}: {node['html'][:200]}"
            for rule in found.response["violations"]
            for node in rule["nodes"]
        ]

    def command(self, name: str, **arguments: Any) -> None:
        """Execute a command of JupyterLab."""
        self.tab.evaluate(
            "([name, args]) => { window.jupyterapp.commands.execute(name, args); }",
            [name, arguments],
        )

    # -- the side panel ------------------------------------------------------------------------

    @property
    def panel(self) -> Locator:
        """The side panel "Ranks"."""
        return self.tab.locator("#ddt-notebook-ranks")

    def open_panel(self) -> None:
        """Show the side panel."""
        self.command("ddt-notebook:show-ranks")
        expect(self.panel).to_be_visible()

    def button(self, name: str) -> Locator:
        """A button of the panel."""
        return self.panel.get_by_role("button", name=name, exact=True)

    def row(self, rank: int) -> Locator:
        """A rank's row."""
        return self.panel.locator(".ddt-lab-ranks tbody tr").nth(rank)

    def picture(self, state: str) -> None:
        """Keep a picture for a person to look at, if a folder is named."""
        folder = os.environ.get("DDT_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.tab.screenshot(path=str(Path(folder) / f"{state}.png"))
