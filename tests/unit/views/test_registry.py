"""The registry of views, and the places that read it."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ddt_notebook as ddt
from ddt_notebook.classroom.grade import Grade
from ddt_notebook.faults.search import Hit
from ddt_notebook.model import Cell, RankReport, Snapshot
from ddt_notebook.model.preflight import Preflight
from ddt_notebook.server import render
from ddt_notebook.views import exported_page, html
from ddt_notebook.views.explain import HitsView
from ddt_notebook.views.flags import Flag
from ddt_notebook.views.preflight import PreflightView
from ddt_notebook.views.registry import VIEWS, View
from ddt_notebook.views.run_view import RunView

FIXTURE = Path(__file__).parents[2] / "fixtures" / "one-rank-skips-all-reduce.ddt.json"
NOTHING = Snapshot(cell=Cell(number=1, source=""))
each_view = pytest.mark.parametrize("view", VIEWS.values(), ids=lambda view: view.name)


def documented(function: Any) -> set[str]:
    """The columns that a docstring lists."""
    items = re.findall(r"^ *- (``.*?):", inspect.getdoc(function) or "", re.MULTILINE | re.DOTALL)
    return {name for item in items for name in re.findall(r"``([^`]*)``", item)}


@each_view
def test_an_entry_fits_its_class(view: View) -> None:
    shown = view.of(NOTHING)
    assert shown.name == view.name
    assert hasattr(NOTHING, view.needs)
    assert repr(shown) == shown.to_text()
    plain = shown.to_json()
    assert plain["view"] == view.name
    assert isinstance(plain["rows"], list)


@each_view
def test_every_column_is_documented(view: View) -> None:
    shown = view.of(Snapshot.load(FIXTURE))
    columns = set(shown.to_frame().columns)
    assert columns == set(shown.columns) == documented(shown.to_frame)
    assert documented(getattr(ddt, view.name)) == columns


@pytest.mark.parametrize(
    "shown",
    [
        ddt.taxonomy(),
        ddt.taxonomy("D.2.1"),
        ddt.estimate(1_000_000),
        HitsView("hang", [Hit("card", "rank-silent", "a rank is silent", 1.0)]),
        PreflightView(Preflight(machine="here", checks=())),
        Grade("any", (), world_size=2, seconds=1.0),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_every_column_of_other_views_is_documented(shown: Any) -> None:
    assert documented(shown.to_frame) == set(shown.to_frame().columns)


@each_view
def test_a_view_without_records_says_what_to_do(view: View) -> None:
    assert bool(view.missing(NOTHING)) is not view.is_in(NOTHING)
    ran = replace(NOTHING, ranks=(RankReport(rank=0, state="finished"),))
    assert ("%%ddt_debug" in view.missing(ran)) is view.asks_ranks


@pytest.mark.parametrize("origin", ["job", "dumps"])
@pytest.mark.parametrize("view", [v for v in VIEWS.values() if v.asks_ranks], ids=lambda v: v.name)
def test_a_view_that_a_job_did_not_record_is_not_shown_as_healthy(view: View, origin: Any) -> None:
    hung = replace(NOTHING, origin=origin, ranks=(RankReport(rank=0, state="blocked"),))
    for given in (hung, ddt.diagnose(hung)):
        with pytest.raises(ValueError, match=view.name) as refused:
            getattr(ddt, view.name)(given)
        assert "%%ddt" not in str(refused.value)


class ToyView(RunView):
    """A view that is only in this test."""

    name = "toy"
    columns = ("rank",)

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.flags = [Flag("warning", "a toy is here")]

    def _healthy(self) -> str:
        return "no toy is here"

    def _text(self) -> list[str]:
        return ["  the toy"]

    def _html(self) -> list[html.Markup]:
        return [html.line("the toy")]

    def _records(self) -> list[dict[str, Any]]:
        return [{"rank": report.rank} for report in self.snapshot.ranks]

    def to_frame(self) -> Any:
        """Frame.

        - ``rank``: global rank
        """
        return super().to_frame()


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> View:
    """A view that is added as CONTRIBUTING says: its module, and an entry."""
    module = ModuleType("ddt_notebook.views.toy")
    module.ToyView = ToyView  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = View(name="toy", label="Toy", shows="a toy", view_class="toy:ToyView")
    monkeypatch.setitem(VIEWS, "toy", entry)
    return entry


def test_a_new_view_appears_everywhere(toy: View, monkeypatch: pytest.MonkeyPatch) -> None:
    from ddt_notebook.widgets import pages

    snapshot = Snapshot.load(FIXTURE)
    function = ddt.__getattr__("toy")
    monkeypatch.delitem(vars(ddt), "toy")
    assert function.__doc__.startswith("Show a toy.")
    assert "the toy" in repr(function(snapshot))
    assert "the toy" in exported_page.page(snapshot)
    title, page = render(FIXTURE.read_text())[0][-1]
    assert title == "toy · ▲ a toy is here"
    assert "the toy" in page
    monkeypatch.setattr(pages.active, "last_run", lambda: type("Run", (), {"snapshot": snapshot}))
    assert "the toy" in pages.answer("toy")["html"]
