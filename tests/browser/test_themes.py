"""The panel and the outputs in every theme, and by axe."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from .lab import Lab, Page

pytestmark = pytest.mark.timeout(300)

HANG = "%%ddt\nif rank == 0:\n    dist.barrier()"
THEMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")


def test_panel_and_outputs_are_accessible_in_every_theme(page: Page, lab: Lab) -> None:
    page.open(
        lab.write("seen.ipynb", "%load_ext ddt_notebook\n%ddt_start -n 2 --hang-after 0.5", HANG)
    )
    page.open_panel()
    page.run_to_end(0)
    page.run_to_end(1)
    expect(page.panel.get_by_role("article")).to_have_count(1)
    expect(page.output(1)).to_contain_text("rank 1 never entered barrier")
    for theme in THEMES:
        page.theme(theme)
        page.picture(f"theme-{theme.replace(' ', '-').lower()}")
        assert page.violations("#ddt-notebook-ranks", ".jp-OutputArea-output .ddt-view") == []
