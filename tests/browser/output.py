""" "Rank Output" in the page: opened, and its lines."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from .lab import Page


def opened(page: Page) -> Locator:
    """The output of the active notebook, opened as by the menu."""
    page.command("ddt-notebook:show-output")
    shown = page.tab.locator(".ddt-lab-output:not(.lm-mod-hidden)")
    expect(shown).to_be_visible()
    return shown


def lines(shown: Locator) -> Locator:
    return shown.get_by_role("listitem")
