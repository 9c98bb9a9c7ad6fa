"""The assistant: from a hang to the run without it by keyboard alone, and what is saved of it."""

from __future__ import annotations

from playwright.sync_api import expect

from .lab import Lab, Page
from .walk import CELLS, SHOWN, walk
from .without_kernel import open_without_kernel


def test_from_a_hang_to_its_fix_by_keyboard_and_kept(page: Page, lab: Lab) -> None:
    page.open(lab.write("assistant.ipynb", *CELLS))
    walk(page, "assistant")
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.theme(theme)
        assert page.violations(".ddt-assistant") == []
    page.picture("assistant-fixed-dark")

    page.save()
    page.tab.goto("about:blank")
    lab.end_kernels()
    open_without_kernel(page, "assistant.ipynb")
    page.cell(2).scroll_into_view_if_needed()
    for line in SHOWN:
        expect(page.output(2).get_by_text(line).first).to_be_visible()
    expect(page.output(2).get_by_role("button")).to_have_count(0)
    page.picture("assistant-saved")
