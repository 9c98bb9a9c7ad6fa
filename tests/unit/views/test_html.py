import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from ddt_notebook.model import Call, Cell, Finding, Place, RankReport, Report, Snapshot
from ddt_notebook.symptoms import loader as taxonomy
from ddt_notebook.views.displayable import Message
from ddt_notebook.views.explain import ExplanationView
from ddt_notebook.views.html import excerpt, table
from ddt_notebook.views.report import show
from ddt_notebook.views.source_positions import SourceLine
from ddt_notebook.views.stacks import StacksView

from .builders import SOURCE, crash, hang, hang_finding, position

VOID = {"br", "hr", "wbr"}
#: What JupyterLab's sanitizer lets through, of what we use.
KEPT = {"div", "span", "pre", "b", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}
KEPT |= {"details", "summary", "wbr", "samp"}
HOSTILE = "<script>alert(1)</script> <img src=x onerror=alert(1)> \x1b[31m\" ' & 🎉 " + "y" * 10_000


class Balanced(HTMLParser):
    """Collects tags, attributes and visible text; fails on tags that do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def parsed(html: str) -> Balanced:
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert not parser.open
    return parser


def hostile() -> tuple[Snapshot, Finding]:
    """A run and its finding whose texts are markup and control codes."""
    snapshot = Snapshot(
        cell=Cell(number=14, source=f"x = 1\n{HOSTILE}", first_line=2),
        outcome="failed",
        ranks=crash().ranks,
        world_size=4,
    )
    finding = hang_finding(
        title=HOSTILE,
        evidence=[HOSTILE],
        places={
            0: Place(file="cell[14]", line=3, code=HOSTILE),
            1: Place(file=HOSTILE, line=1, code=HOSTILE),
        },
    )
    return snapshot, finding


@pytest.mark.parametrize("world_size", [1, 4, 64])
def test_html_has_only_what_the_sanitizer_keeps(world_size: int) -> None:
    report = Report(ok=False, findings=[hang_finding(world_size)] * 5, hints=[hang_finding()])
    page = parsed(show(report, hang(world_size)).to_html())
    assert page.tags <= KEPT | {"style"}
    assert page.attributes == {"class", "style"}


def test_the_state_is_a_word_and_the_place_is_text() -> None:
    page = parsed(show(Report(ok=False, findings=[hang_finding()]), hang()).to_html())
    for expected in (
        "✖ hang D.2.1",
        "certain",
        "rank 1 never entered",
        "→ 6          dist.all_reduce(loss)   ◀ ranks 0, 2, 3 wait in all_reduce",
        "→ 4      if rank != 1:               ◀ rank 1 finished the cell",
        "5 of 44 hangs in the study",
        "the original errors",
        "----> 6     dist.all_reduce(loss)",
    ):
        assert expected in page.text


def test_literal_colours_only_outside_the_style_sheet() -> None:
    html = show(Report(ok=False, findings=[hang_finding()]), hang()).to_html()
    body = re.sub(r"<style>.*?</style>", "", html)
    assert "var(" not in body
    assert "<style>.ddt-view" in html


def test_hostile_text_stays_text() -> None:
    snapshot, finding = hostile()
    html = show(Report(ok=False, findings=[finding]), snapshot, notes=[HOSTILE]).to_html()
    page = parsed(html)
    assert page.tags <= KEPT | {"style"}
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in html
    assert len(html) < 20_000


def test_the_same_report_gives_the_same_html() -> None:
    report = Report(ok=False, findings=[hang_finding(), hang_finding()])
    assert show(report, hang()).to_html() == show(report, hang()).to_html()


def test_a_healthy_run_is_one_line() -> None:
    page = parsed(show(Report(ok=True, checked="4 ranks agree"), hang()).to_html())
    assert page.text.startswith("✓ ok 4 ranks agree")


def test_a_message_keeps_its_lines() -> None:
    assert "a &lt;b&gt;\nc" in Message("a <b>\nc").to_html()


def test_an_excerpt_leaves_out_distant_lines() -> None:
    lines = [SourceLine(1, "a", "rank 0"), SourceLine(None), SourceLine(90, "b")]
    assert parsed(excerpt(lines)).text.splitlines() == [
        "→    1  a   ◀ rank 0",
        "     ⋮",
        "    90  b",
    ]


def test_stacks_are_grouped() -> None:
    view = StacksView(hang())
    assert repr(view).count("cell[14] line 6   dist.all_reduce(loss)") == 1
    assert "ranks 0, 2 and 3: wait in all_reduce" in repr(view)
    assert "ranks 0, 2 and 3" in parsed(view.to_html()).text


def test_a_rank_that_has_finished_does_not_stand_at_its_last_call() -> None:
    where = position(6, "dist.barrier()")
    done = RankReport(rank=0, position=where, calls=(Call(index=0, op="barrier", where=where),))
    cell = Cell(number=14, source=SOURCE, first_line=2)
    shown = repr(StacksView(Snapshot(cell=cell, ranks=(done,))))
    assert "finished the cell; the last call of torch.distributed was at\n  cell[14] li" in shown
    exited = replace(done, position=position(4, "sys.exit(0)"))
    assert repr(StacksView(Snapshot(cell=cell, ranks=(exited,)))).endswith(
        "finished the cell\n  cell[14] line 4   sys.exit(0)"
    )


def test_an_explanation_shows_the_shares_of_the_study() -> None:
    view = ExplanationView(taxonomy.symptom("D.2.1"), taxonomy.fixes("D.2.1"))
    assert repr(view).startswith("hang D.2.1 · training & evaluation\n")
    assert re.search(r"11%  fix behavior logic\s+5\n", repr(view))
    assert "other patterns" in parsed(view.to_html()).text


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    number, text = "rank 12 +150 ms", "a line of code that may be broken"
    rows = str(table([(number, text)]))
    before = [cell.rpartition("<td")[2] for cell in rows.split("</td>")]
    assert "white-space:nowrap" in before[0]
    assert number in before[0]
    assert "white-space:normal" in before[1]
