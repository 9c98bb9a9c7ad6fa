"""How fast the interactive timeline draws and pans 64 ranks with 100,000 events each.

In headless Chromium, from the moment at which the page was read to the first picture: the script is
compiled, the data unpacked and drawn. A page that ddt_notebook writes holds less: at most 1.5 MB.
"""

from __future__ import annotations

import base64
import json
import statistics
import tempfile
import zlib
from pathlib import Path

import numpy as np
import psutil
from playwright.sync_api import Page, sync_playwright

from ddt_notebook.views import viewer, viewer_data
from tests.browser.server import BROWSER_ARGUMENTS, find_chromium

from .common import Figure, median_of

RANKS, EVENTS, CALLS = 64, 100_000, 20_000
DRAWN_S, FRAMES_PER_S = 1.0, 30.0
#: How often the picture is zoomed by 2 before it is moved.
ZOOMS = (1, 6, 12)
#: Runs the script, and says after how many milliseconds there was a picture.
_SHOW = """source => new Promise(done => {
  const begun = performance.now();
  const script = document.createElement('script');
  script.type = 'module';
  script.textContent = source;
  document.body.append(script);
  const look = () => requestAnimationFrame(
    document.querySelector('.ddt-viewer-range')?.textContent
      ? () => done(performance.now() - begun)
      : look);
  look();
})"""
#: Moves the picture in each frame for two seconds, there and back.
_PAN = """() => new Promise(done => {
  const chart = document.querySelector('.ddt-viewer-chart');
  let [frames, begun, last] = [0, performance.now(), 0];
  const step = now => {
    frames += 1;
    const by = frames % 60 < 30 ? 8 : -8;
    chart.dispatchEvent(new WheelEvent('wheel', {deltaX: by, cancelable: true}));
    last = performance.now();
    last - begun < 2000 ? requestAnimationFrame(step) : done([frames, (last - begun) / 1000]);
  };
  requestAnimationFrame(step);
})"""


def measure() -> list[Figure]:
    chromium = find_chromium()
    if chromium is None:
        return []
    data = packed()
    what = f"viewer with {RANKS} × {EVENTS:,} events"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        file = Path(folder) / "page.html"
        file.write_text(
            f'<!DOCTYPE html><meta charset="utf-8"><main><section id="ddt-viewer" hidden>'
            f'</section></main><script type="text/plain" id="ddt-viewer-data">{data}</script>',
            encoding="utf-8",
        )
        browser = started.chromium.launch(executable_path=chromium, args=BROWSER_ARGUMENTS)
        tab = browser.new_page(viewport={"width": 1400, "height": 900})
        used_s: list[float] = []
        took, note = median_of(lambda: _drawn_s(tab, file, used_s), 3)
        note += f", {statistics.median(used_s):.2f} s of processor time"
        figures = [Figure(f"{what}: first picture", took, DRAWN_S, "s", note=note)]
        for zooms in ZOOMS:
            tab.get_by_role("button", name="whole").click()
            for _ in range(zooms):
                tab.get_by_role("button", name="show a shorter stretch").click()
            shown = tab.locator(".ddt-viewer-range").inner_text()
            before = _processor_s()
            frames, took_s = tab.evaluate(_PAN)
            used = 1000 * (_processor_s() - before) / frames
            name = f"{what}: processor time of a frame while {shown} move"
            note = f"{frames / took_s:.0f} frames a second"
            figures.append(Figure(name, used, 1000 / FRAMES_PER_S, "ms", note=note))
        browser.close()
    return figures


def _processor_s() -> float:
    """What the processes that draw pages have used."""
    used = 0.0
    for process in psutil.Process().children(recursive=True):
        if "--type=renderer" in process.cmdline():
            times = process.cpu_times()
            used += times.user + times.system
    return used


def _drawn_s(tab: Page, file: Path, used_s: list[float]) -> float:
    tab.goto(file.as_uri())
    before = _processor_s()
    took = float(tab.evaluate(_SHOW, viewer.source())) / 1e3
    used_s.append(_processor_s() - before)
    return took


def packed() -> str:
    """A timeline in the form that the viewer reads, with lengths that differ at random."""
    random = np.random.default_rng(0)
    own = EVENTS - CALLS
    length = 10 * own
    header = {
        "unit": 1,
        "length": length,
        "kinds": viewer_data.KINDS,
        "names": [*viewer_data.KINDS, "all_reduce (250000 × float32)"],
        "groups": [{"name": "0", "text": "group 0", "ranks": list(range(RANKS))}],
        "places": [],
        "calls": CALLS,
        "steps": list(range(0, length, 10_000)),
        "notes": [],
        "lanes": [{"rank": rank, "work": own, "calls": CALLS} for rank in range(RANKS)],
    }
    head = json.dumps(header).encode()
    packer = zlib.compressobj(1)
    parts = [packer.compress(len(head).to_bytes(4, "little") + head)]

    def column(numbers: object) -> None:
        found = np.asarray(numbers, dtype="<u4")
        width = (int(found.max()).bit_length() + 7) // 8
        raw = found.view(np.uint8).reshape(-1, 4).T[:width]
        parts.append(packer.compress(bytes([width]) + raw.tobytes()))

    def track(count: int, every: int, kinds: object, of: object, *, wait: bool = False) -> None:
        lengths = random.integers(1, every, count)
        column(np.full(count, every))
        column(lengths)
        column(lengths // 2 if wait else np.zeros(count))
        column(kinds)
        column(np.zeros(count))
        column(of)

    numbers = np.arange(CALLS)
    for numbers_of_calls in (np.full(CALLS, len(viewer_data.KINDS)), np.zeros(CALLS), numbers + 1):
        column(numbers_of_calls)
    for constant in (0, RANKS, 1, 0):
        column(np.full(CALLS, constant))
    for _ in range(RANKS):
        kinds = random.integers(1, 6, own)
        track(own, 10, kinds, kinds)
        track(CALLS, length // CALLS, np.full(CALLS, 7), numbers, wait=True)
    return base64.b64encode(b"".join([*parts, packer.flush()])).decode()


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
