"""The pictures of broken runs on the exported page: wide and narrow, light and dark.

The runs are those of the guide's gallery. The page needs no JupyterLab.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from html import escape
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from ddt_notebook.model import Snapshot
from ddt_notebook.views import exported_page

SCREENSHOTS = os.environ.get("DDT_SCREENSHOTS")
SHOWN = (("light", 1200), ("dark", 400))


def runs(root: Path) -> dict[str, Snapshot]:
    """The broken runs of the gallery, whose views say most, and one of 64 ranks."""
    sys.path.insert(0, str(root / "docs"))
    try:
        gallery = importlib.import_module("gallery")
    finally:
        sys.path.remove(str(root / "docs"))
    found = {picture["name"]: gallery.snapshot(picture, "broken") for picture in gallery.pictures()}
    return found | {"many": many(found["timeline"])}


def many(run: Snapshot) -> Snapshot:
    """The same run as if 64 ranks had made it; rank 1 stays the late one."""
    ranks = range(64)
    first, late = run.ranks[0], run.ranks[1]
    members = tuple(ranks)
    reports = tuple(
        replace(
            source := late if rank == 1 else first,
            rank=rank,
            calls=tuple(replace(call, members=members) for call in source.calls),
        )
        for rank in ranks
    )
    timelines = tuple(replace(run.timeline[rank == 1], rank=rank) for rank in ranks)
    memories = tuple(replace(run.memory[rank == 1], rank=rank) for rank in ranks)
    performances = tuple(replace(run.performance[rank == 1], rank=rank) for rank in ranks)
    return replace(
        run,
        ranks=reports,
        timeline=timelines,
        memory=memories,
        performance=performances,
        world_size=len(ranks),
    )


def test_a_frame_without_scripts_shows_the_same(
    browser: Browser, root: Path, tmp_path: Path
) -> None:
    """As in Colab's frame and in VS Code: of no origin, without scripts, and without a network."""
    views = [html for run in runs(root).values() for _, html in exported_page.parts(run)]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    frames = "".join(f'<iframe sandbox srcdoc="{escape(head + html)}"></iframe>' for html in views)
    plain = "".join(f"<div>{html}</div>" for html in views)
    file = tmp_path / "frames.html"
    file.write_text(f'<!DOCTYPE html><meta charset="utf-8">{frames}{plain}', encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1200, "height": 800})
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(file.as_uri())
    tab.add_style_tag(content="iframe{width:1184px;height:2000px;border:0}")
    beside = [block.inner_text().split() for block in tab.locator("body > div").all()]
    inside = [frame.locator("body").inner_text().split() for frame in tab.frames[1:]]
    assert len(views) > 10
    assert inside == beside
    assert said == []
    tab.close()


def test_pages_are_accessible_and_fit_wide_and_narrow(
    browser: Browser, root: Path, tmp_path: Path
) -> None:
    for name, run in runs(root).items():
        page = tmp_path / f"{name}.html"
        page.write_text(exported_page.page(run), encoding="utf-8")
        context = browser.new_context(bypass_csp=True)  # the page forbids scripts; axe is one
        tab = context.new_page()
        tab.goto(page.as_uri())
        for scheme, width in SHOWN:
            tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            tab.set_viewport_size({"width": width, "height": 800})
            found = Axe().run(tab, options={"resultTypes": ["violations"]})
            seen = [
                f"{rule['id']}: {node['html'][:200]}"
                for rule in found.response["violations"]
                for node in rule["nodes"]
            ]
            assert seen == [], f"{name}, {width} pixels wide"
            # parts may scroll, the page does not
            wider = tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wider <= 0, f"{name}, {width} pixels wide"
            for one in (width, 1000, 760):  # between both, tables give way, too
                tab.set_viewport_size({"width": one, "height": 800})
                scrolls = "s => s.filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
                assert tab.locator("section").evaluate_all(scrolls) == [], f"{name}, {one}"
            tab.set_viewport_size({"width": width, "height": 800})
            if name == "hang":  # also on a narrow page: where the ranks parted
                last = tab.get_by_text("never entered", exact=True)
                box = last.bounding_box()
                assert box
                assert box["x"] + box["width"] <= width
            if SCREENSHOTS:
                path = Path(SCREENSHOTS) / f"picture-{name}-{scheme}-{width}.png"
                tab.screenshot(path=path, full_page=True)
        context.close()
