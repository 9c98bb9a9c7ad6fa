"""A run as one HTML page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Call, Cell, RankError, RankReport, Snapshot
from ddt_notebook.model.memory import RankMemory
from ddt_notebook.views import exported_page, viewer_data
from ddt_notebook.views.registry import below_diagnosis

FIXTURE = Path(__file__).parent.parent / "fixtures" / "one-rank-skips-all-reduce.ddt.json"
HOSTILE = "</style><script>alert(1)</script><img src=http://example.org/x onerror=alert(2)>"
#: Attributes that make a page fetch something.
FETCHES = {"src", "srcset", "background", "action", "data", "poster"}


class Page(HTMLParser):
    """Elements, attributes and headings of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.headings: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1] == "h2":
            self.headings.append(data)
            self.elements.append("")


def test_the_page_has_the_diagnosis_and_the_recorded_views(tmp_path: Path) -> None:
    snapshot = replace(Snapshot.load(FIXTURE), memory=(RankMemory(rank=0, rss_bytes=5_000_000),))
    written = ddt.export_report(snapshot, tmp_path / "report.html")
    text = written.read_text(encoding="utf-8")
    recorded = [view.name for view in below_diagnosis() if view.is_in(snapshot)]
    assert Page(text).headings == [
        "Diagnosis",
        "Explore the timeline",
        *map(str.capitalize, recorded),
    ]
    assert {"memory", "collectives", "timeline"} <= set(recorded)
    assert not {"placement", "partition", "parity"} & set(recorded)
    assert "rank 1 never entered all_reduce" in text
    assert "5.0 MB" in text


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    error = RankError(type="ValueError", message=HOSTILE, traceback=HOSTILE)
    snapshot = Snapshot(
        cell=Cell(number=1, source=HOSTILE),
        outcome="failed",
        ranks=(RankReport(rank=0, state="raised", error=error),),
        device=HOSTILE,
        torch_version=HOSTILE,
        notes=(HOSTILE,),
    )
    text = exported_page.page(snapshot)
    page = Page(text)
    assert "script-src 'none'" in text
    assert not {"script", "img", "link", "iframe", "object"} & set(page.elements)
    assert not FETCHES & page.attributes
    assert not {name for name in page.attributes if name.startswith("on")}
    assert not re.search(r"url\(|@import", text)
    assert "default-src 'none'" in text


def test_the_page_allows_the_viewer_and_no_other_script() -> None:
    snapshot = Snapshot.load(FIXTURE)
    text = exported_page.page(snapshot)
    data, script = re.findall(r"<script([^>]*)>(.*?)</script>", text, flags=re.DOTALL)
    assert data[0] == ' type="text/plain" id="ddt-viewer-data"'
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", data[1])
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in text
    assert "<!--" not in script[1]
    assert text.count("</script") == 2
    assert '<section id="ddt-viewer" hidden>' in text, "nothing of it is shown without scripts"


def test_the_page_of_a_long_run_is_small() -> None:
    """Short events become one; the long ones, and how many there are, stay."""
    calls, many = 1000, tuple(range(16))
    reports = tuple(
        RankReport(
            rank=rank,
            calls=tuple(
                Call(
                    index=number,
                    op="all_reduce",
                    members=many,
                    sequence=number + 1,
                    entered_s=number / 1e3 + (rank * 7919 + number * 104729) % 997 / 1e6,
                    left_s=(number + 1) / 1e3 if number % 250 else number / 1e3 + 0.4,
                )
                for number in range(calls)
            ),
        )
        for rank in many
    )
    run = Snapshot(cell=Cell(number=1, source=""), ranks=reports, world_size=16)
    whole, small = viewer_data.encode(run, 10**9), viewer_data.encode(run, 9_000)
    assert len(small) <= 9_000 < len(whole)
    raw = zlib.decompress(base64.b64decode(small))
    header = json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])
    assert "are shown as one" in header["notes"][0]
    assert header["calls"] >= calls / 250, "the long ones are there"


def test_the_viewer_names_the_hosts_of_ranks_if_there_are_several() -> None:
    def hosts(*names: str) -> list[str]:
        times = {"entered_s": 1.0, "left_s": 2.0}
        call = Call(index=0, op="all_reduce", members=(0, 1), sequence=1, **times)
        reports = tuple(
            RankReport(rank=rank, host=name, calls=(call,)) for rank, name in enumerate(names)
        )
        run = Snapshot(cell=Cell(number=1, source=""), ranks=reports, world_size=2)
        raw = zlib.decompress(base64.b64decode(viewer_data.encode(run)))
        header = json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])
        return [lane["host"] for lane in header["lanes"]]

    assert hosts("nodeA.example", "nodeB.example") == ["nodeA", "nodeB"]
    assert hosts("nodeA", "nodeA") == ["", ""]


def test_a_session_that_has_run_nothing_is_refused(tmp_path: Path) -> None:
    class Fresh:
        last_run = None

    with pytest.raises(ValueError, match="has not run a cell"):
        ddt.export_report(Fresh(), tmp_path / "report.html")  # type: ignore[arg-type]
    assert not (tmp_path / "report.html").exists()


def test_the_timeline_says_why_a_lane_is_empty(root: Path) -> None:
    for name, said in (
        ("hang-broken", ["rank 2 finished the cell: no more is drawn there"]),
        (
            "parity-broken",
            ["the work between collectives was not recorded: %%ddt_debug records it"],
        ),
        ("timeline-healthy", []),
    ):
        run = Snapshot.load(root / f"docs/gallery/{name}.ddt.json")
        raw = zlib.decompress(base64.b64decode(viewer_data.encode(run)))
        header = json.loads(raw[4 : 4 + int.from_bytes(raw[:4], "little")])
        assert header["notes"] == said
