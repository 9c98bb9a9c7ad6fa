"""Draws contact sheets of every view for a person to look at: one picture for each look and width.

python tools/contact_sheets.py FOLDER            # all views of the gallery's runs
python tools/contact_sheets.py FOLDER hang       # some

Looks are light, dark and high contrast (forced colours); pages are 1200 and 400 pixels wide; runs
have 2, 4 and 64 ranks. The gallery's runs have 4; the others are made of them, each rank like one
of the four. So they may be flagged where the run of 4 is not: samplers for 4 ranks do not fit 64.
It needs Playwright and chromium, as the tests in a browser do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import gallery  # noqa: E402

import ddt_notebook as ddt  # noqa: E402
from ddt_notebook.model import Snapshot  # noqa: E402
from ddt_notebook.views.registry import VIEWS  # noqa: E402
from ddt_notebook.views.report import show  # noqa: E402
from tests.browser.server import BROWSER_ARGUMENTS, find_chromium  # noqa: E402

SIZES = (2, 4, 64)
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "contrast": {"forced_colors": "active"},
}
WIDTHS = (1200, 400)
#: Several narrow pages stand beside each other.
_SHEET = 1640
_FIELDS = ("timeline", "memory", "performance", "placement", "partition", "parity", "training")
_PAGE = (
    '<meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    "<style>body{{font:16px/1.45 system-ui,sans-serif;margin:8px 12px}}"
    "section{{overflow-x:auto}}</style><section>{}</section>"
)
_FIT = """for (const frame of document.querySelectorAll('iframe')) {
  frame.style.height = 0  // a page is at least as high as its frame
  frame.style.height = frame.contentDocument.documentElement.scrollHeight + 8 + 'px'
}"""


def as_if(run: Snapshot, size: int) -> Snapshot:
    """The run as if so many ranks had made it."""
    ranks = tuple(range(size))
    like = {rank: rank if rank < 4 else (0 if rank % 16 else 3) for rank in ranks}

    def members(of: tuple[int, ...]) -> tuple[int, ...]:
        return ranks if len(of) == run.world_size else tuple(rank for rank in of if rank < size)

    def each(items: tuple[Any, ...]) -> tuple[Any, ...]:
        known = {item.rank: item for item in items}
        return tuple(replace(known[like[r]], rank=r) for r in ranks if like[r] in known)

    reports = tuple(
        replace(
            one, calls=tuple(replace(call, members=members(call.members)) for call in one.calls)
        )
        for one in each(run.ranks)
    )
    fields = {name: each(getattr(run, name)) for name in _FIELDS}
    groups = {name: members(of) for name, of in run.groups.items()}
    return replace(run, ranks=reports, world_size=size, groups=groups, **fields)


def drawn(names: list[str]) -> Iterator[tuple[str, str, str]]:
    """For each view: its name, what it is of, and its HTML."""
    for picture in gallery.pictures():
        if names and picture["name"] not in names:
            continue
        for which in gallery.WHICH:
            for size in SIZES:
                run = as_if(gallery.snapshot(picture, which), size)
                name = picture["view"]
                view = show(ddt.diagnose(run), run) if name == "diagnosis" else VIEWS[name].of(run)
                yield picture["name"], f"{which} · {size} ranks", str(view.to_html())


def draw(browser: Browser, folder: Path, views: list[tuple[str, str, str]]) -> None:
    """Write a sheet for each view, look and width."""
    sheet = folder / "sheet.html"
    for look, options in LOOKS.items():
        for width in WIDTHS:
            context = browser.new_context(
                viewport={"width": max(width, _SHEET if width < 1000 else 0), "height": 900},
                **options,
            )
            tab = context.new_page()
            for name in dict.fromkeys(name for name, *_ in views):
                frames = "".join(
                    f'<div style="width:{width - 20}px"><b>{what}</b><iframe style="width:100%" '
                    f'srcdoc="{escape(_PAGE.format(html))}"></iframe></div>'
                    for one, what, html in views
                    if one == name
                )
                sheet.write_text(
                    '<!DOCTYPE html><meta charset="utf-8">'
                    '<meta name="color-scheme" content="light dark"><body style="display:flex;'
                    f'flex-wrap:wrap;gap:4px;align-items:flex-start">{frames}',
                    encoding="utf-8",
                )
                tab.goto(sheet.as_uri())  # only then, frames have forced colours
                tab.evaluate(_FIT)
                tab.screenshot(path=folder / f"{name}-{look}-{width}.png", full_page=True)
            context.close()
    sheet.unlink(missing_ok=True)


def main(folder: Path, names: list[str]) -> None:
    """Draw the named views; without names, all."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=find_chromium(), args=list(BROWSER_ARGUMENTS)
        )
        draw(browser, folder, list(drawn(names)))
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
