"""The assistant: from a hang to the run without it by keyboard alone, and what is saved of it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from .lab import Lab, Page
from .without_kernel import open_without_kernel

pytestmark = pytest.mark.timeout(300)

START = "%load_ext ddt_notebook\n%ddt_start -n 2 --hang-after 0.5"
HANG = "%%ddt\nx = torch.ones(2)\nif rank == 0:\n    dist.all_reduce(x)\n    print('sum', x)"
TOLD = ("rank 1 never entered all_reduce", "call all_reduce on every rank", "the symptom is gone")
#: Nothing that the assistant shows is further away than this.
_MOST_STEPS = 40


def tab_to(page: Page, button: Locator) -> None:
    """Press Tab until a button has the keyboard."""
    expect(button).to_be_visible()
    for _ in range(_MOST_STEPS):
        if button.evaluate("button => button === document.activeElement"):
            return
        page.tab.keyboard.press("Tab")
    raise AssertionError(f"the keyboard does not come to {button}")


def test_from_a_hang_to_its_fix_by_keyboard_and_kept(page: Page, lab: Lab) -> None:
    page.open(lab.write("assistant.ipynb", START, HANG, "%ddt_debug"))
    page.run_to_end(0)
    page.run_to_end(1)
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("Control+Enter")
    page.ended(2)
    assistant = page.output(2).locator(".ddt-assistant")
    expect(assistant).to_contain_text(TOLD[0])
    expect(assistant).to_contain_text("a collective under a condition on the rank")
    page.picture("assistant")

    tab_to(page, assistant.get_by_role("button", name="Try the fixed cell"))
    page.tab.keyboard.press("Enter")
    tab_to(page, assistant.get_by_role("button", name="Run it now"))
    page.tab.keyboard.press("Space")
    for told in TOLD:
        expect(assistant).to_contain_text(told)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.theme(theme)
        assert page.violations(".ddt-assistant") == []
    page.picture("assistant-fixed-dark")

    page.save()
    page.tab.goto("about:blank")
    lab.end_kernels()
    open_without_kernel(page, "assistant.ipynb")
    page.cell(2).scroll_into_view_if_needed()
    for told in TOLD:
        expect(page.output(2).get_by_text(told).first).to_be_visible()
    expect(page.output(2).get_by_role("button")).to_have_count(0)
    page.picture("assistant-saved")
