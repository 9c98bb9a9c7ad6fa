"""The assistant's way from a hang to the run without it, by keyboard alone."""

from __future__ import annotations

from playwright.sync_api import expect

from .lab import Page

CELLS = (
    "%load_ext ddt_notebook\n%ddt_start -n 2 --hang-after 0.5",
    "%%ddt\nx = torch.ones(2)\nif rank == 0:\n    dist.all_reduce(x)\n    print('sum', x)",
    "%ddt_debug",
)
SHOWN = ("rank 1 never entered all_reduce", "call all_reduce on every rank", "the symptom is gone")


def walk(page: Page, name: str) -> None:
    """Walk it in a notebook of these cells, with a picture of that name."""
    page.run_to_end(0)
    page.run_to_end(1)
    page.tab.keyboard.press("ArrowDown")
    page.tab.keyboard.press("Control+Enter")
    page.ended(2)
    assistant = page.output(2).locator(".ddt-assistant")
    expect(assistant).to_contain_text(SHOWN[0])
    expect(assistant).to_contain_text("a collective under a condition on the rank")
    page.picture(name)

    page.tab_to(assistant.get_by_role("button", name="Try the fixed cell"))
    page.tab.keyboard.press("Enter")
    page.tab_to(assistant.get_by_role("button", name="Run it now"))
    page.tab.keyboard.press("Space")
    for line in SHOWN:
        expect(assistant).to_contain_text(line)
