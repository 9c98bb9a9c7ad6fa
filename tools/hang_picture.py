"""Draws the README's picture of a hang that is named and repaired, from saved runs.

python tools/hang_picture.py            # writes docs/images/hang.png

It needs Playwright and chromium, as the tests in a browser do.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import gallery  # noqa: E402

from tests.browser.server import BROWSER_ARGUMENTS, find_chromium  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "hang.png"
WIDTH = 860
_STYLE = "body{margin:12px 16px;background:#fff;color:#000;font:15px/1.45 system-ui,sans-serif}"


def main() -> None:
    """Write the picture."""
    page = f"<!DOCTYPE html><meta charset=utf-8><style>{_STYLE}</style>{gallery.repair()}"
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=find_chromium(), args=list(BROWSER_ARGUMENTS)
        )
        tab = browser.new_page(viewport={"width": WIDTH, "height": 400})
        tab.set_content(page)
        tab.screenshot(path=PICTURE, full_page=True)
        browser.close()
    print(PICTURE.name, f"{PICTURE.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
