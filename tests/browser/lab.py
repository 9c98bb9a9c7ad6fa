"""What the tests do in JupyterLab, in the words of a person who uses it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Route, expect

from .server import Lab

LIMIT_MS = 90_000
expect.set_options(timeout=LIMIT_MS)


@dataclass
class Page:
    """JupyterLab in one tab."""

    browser: Browser
    lab: Lab
    strays: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._context = self.browser.new_context(viewport={"width": 1400, "height": 900})
        self._context.set_default_timeout(LIMIT_MS)
        self._context.route("**/*", self._check)
        self.tab = self._context.new_page()
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))

    def close(self) -> None:
        """Close the tab and end its kernels."""
        self._context.close()
        self.lab.end_kernels()

    def _check(self, route: Route) -> None:
        if urlsplit(route.request.url).hostname in {"127.0.0.1", "localhost", None}:
            route.continue_()
        else:
            self.strays.append(route.request.url)
            route.abort()

    # -- JupyterLab ----------------------------------------------------------------------------

    def open(self, name: str = "") -> None:
        """Open JupyterLab, with a notebook if one is named."""
        tree = f"/tree/{name}" if name else ""
        self.tab.goto(f"{self.lab.url}lab{tree}?token={self.lab.token}&reset")
        expect(self.tab.locator("#jp-main-dock-panel")).to_be_visible()
        if name:
            expect(self.notebook.locator(".jp-Cell").first).to_be_visible()
            self.wait_for_kernel()

    def wait_for_kernel(self) -> None:
        """Until the notebook that is shown has a kernel, and that is idle."""
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

    def run_all(self) -> None:
        """Run every cell, by the menu."""
        self.command("notebook:run-all-cells")

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

    def violations(self, *selectors: str) -> list[str]:
        """What axe finds against the rules of WCAG in these parts of the page."""
        found = Axe().run(self.tab, context={"include": [[name] for name in selectors]})
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
