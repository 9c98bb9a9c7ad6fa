"""The pages of ``%ddt_explain`` and ``ddt.taxonomy()``."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

import ddt_notebook as ddt
from ddt_notebook.diagnosis.compare_runs import SingleRank, compare
from ddt_notebook.faults import card, cards
from ddt_notebook.faults.search import search
from ddt_notebook.model import Report
from ddt_notebook.symptoms import UnknownSymptom, symptoms
from ddt_notebook.views import code_diff
from ddt_notebook.views.comparison import ComparisonView, SingleRankView
from ddt_notebook.views.explain import CardView, ExplanationView, HitsView
from ddt_notebook.views.report import show
from ddt_notebook.views.taxonomy import TaxonomyView

from .builders import hang_finding
from .test_html import KEPT, parsed

CARD = "collective-under-rank-condition"
HOSTILE = "<script>alert(1)</script> & \x1b[31m <img src=x onerror=alert(1)>" + " y" * 300


def fits(text: str) -> bool:
    """Whether a text is 80 columns wide; addresses and code are not broken."""
    return all(len(line) <= 80 or "http" in line or "    " in line for line in text.splitlines())


def test_the_taxonomy_as_tree_table_and_figure() -> None:
    view = ddt.taxonomy()
    assert isinstance(view, TaxonomyView)
    text = repr(view)
    assert "taxonomy of 637 faults in distributed training · 4 stages, 27 named symptoms" in text
    assert "  D  57.3%  training & evaluation" in text
    assert re.search(r"D\.2\.1 +hang +44 +\d+ cards?", text)
    assert fits(text)
    page = parsed(view.to_html())
    assert page.tags <= KEPT | {"style"}
    assert "installation & build failure" in page.text
    frame = view.to_frame()
    assert len(frame) == 30
    assert frame.faults.sum() == 637
    (tree,) = view.to_plotly()["data"]
    assert (
        sum(v for v, parent in zip(tree["values"], tree["parents"], strict=True) if not parent)
        == 637
    )
    for code in "ABCD":
        own = tree["values"][tree["ids"].index(code)]
        below = [v for v, p in zip(tree["values"], tree["parents"], strict=True) if p == code]
        assert sum(below) == own
    assert set(tree["parents"]) - {""} <= set(tree["ids"])
    view.to_figure()
    assert set(view._repr_mimebundle_()) == {
        "text/plain",
        "text/html",
        "application/vnd.plotly.v1+json",
    }
    assert json.loads(json.dumps(view.to_json()))["stages"][3]["faults"] == 365


@pytest.mark.parametrize("code", [symptom.code for symptom in symptoms()])
def test_every_symptom_has_a_page(code: str) -> None:
    view = ddt.taxonomy(code)
    assert isinstance(view, ExplanationView)
    assert code in repr(view)
    assert fits(repr(view))
    assert parsed(view.to_html()).tags <= KEPT | {"style"}
    assert view.to_json()["code"] == code
    assert len(view.to_frame()) == len(view.to_json()["fixes"])


@pytest.mark.parametrize("name", [one.id for one in cards()])
def test_every_card_has_a_page(name: str) -> None:
    view = ddt.explain(name)
    assert isinstance(view, CardView)
    text = repr(view)
    one = card(name)
    assert f"\n  {name}: " in text
    for reference in one.references:
        assert reference.url in text
    assert fits(text)
    page = parsed(view.to_html())
    assert page.tags <= KEPT | {"style"}
    for said in (one.title, one.sees, one.why, one.cluster):
        assert said.replace("`", "") in page.text.replace("`", "")
    plain = json.loads(json.dumps(view.to_json()))
    assert plain["symptoms"] == list(one.symptoms)


def test_a_card_page_escapes_what_it_shows() -> None:
    hostile = dataclasses.replace(card(CARD), sees=HOSTILE, fixed=HOSTILE, apart={"x": HOSTILE})
    html = CardView(hostile).to_html()
    assert "<script>" not in html
    assert "<img" not in html
    assert "\x1b" not in html
    assert "\x1b" not in CardView(hostile).to_text()


def test_a_diff_shows_changed_lines_with_little_context() -> None:
    before = "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\nf = 6\ng = 7"
    after = before.replace("a = 1", "a = 0") + "\nh = 8"
    assert code_diff.lines(before, after, 1) == [
        "- a = 1",
        "+ a = 0",
        "  b = 2",
        "…",
        "  g = 7",
        "+ h = 8",
    ]
    assert "<b>+ a = 0</b>" in code_diff.as_html(before, after)
    assert code_diff.lines(before, before) == []


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("hang", "D.2.1"),
        ("memory issue", "D.1.2"),
        ("collective under a condition on the rank", CARD),
        ("loop ends by the clock", "loop-ends-by-clock"),
    ],
)
def test_a_search_lists_the_best_result_first(words: str, first: str) -> None:
    assert search(words)[0].name == first


def test_a_search_for_a_message_finds_its_cards() -> None:
    message = card(CARD).nccl[0]
    assert CARD in [hit.name for hit in search(f"RuntimeError: {message}17, OpType=ALLREDUCE", 50)]


def test_several_hits_are_a_list_and_one_clear_hit_is_its_page() -> None:
    several = ddt.explain("hang")
    assert isinstance(several, HitsView)
    assert "%ddt_explain D.2.1\n       hang (a symptom of the study)" in repr(several)
    assert fits(repr(several))
    assert parsed(several.to_html()).tags <= KEPT | {"style"}
    assert len(several.to_frame()) == len(several.hits)
    assert isinstance(ddt.explain(" d.2.1 "), ExplanationView)
    assert isinstance(ddt.explain(), TaxonomyView)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("my job was killed", "kernel-oom"),
        ("every gpu prints the same thing", "prints-on-every-rank"),
        ("connection refused between two machines", "master-unreachable"),
        ("how do i set master address", "c10d-environment"),
        ("validation result differs with more gpus", "metric-not-reduced"),
    ],
)
def test_the_words_of_a_newcomer_find_cards_and_messages(query: str, expected: str) -> None:
    page = ddt.explain(query)
    assert isinstance(page, HitsView)
    assert expected in [hit.name for hit in page.hits]


def test_a_known_message_comes_before_pages_with_its_words() -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    page = ddt.explain(text)
    assert isinstance(page, HitsView)
    assert [hit.name for hit in page.hits][:2] == ["out-of-memory", "cuda-oom"]
    assert "is not known" not in repr(page)


def test_an_error_that_the_catalogue_does_not_have_is_called_unknown() -> None:
    page = ddt.explain("RuntimeError: the batch sampler of rank 3 hangs in the clouds")
    assert isinstance(page, HitsView)
    assert "is not known" in repr(page)
    assert "is not known" not in repr(ddt.explain("the batch sampler of rank 3 hangs"))


@pytest.mark.parametrize("query", ["D.9.9", "B", "zebra", "?", "<>"])
def test_an_unknown_name_is_reported(query: str) -> None:
    with pytest.raises(UnknownSymptom):
        ddt.explain(query)


def test_a_misspelt_message_is_shown_and_misspelt_words_are_set_right() -> None:
    assert "nccl-shm: " in repr(ddt.explain("nccl-shn"))
    with pytest.raises(UnknownSymptom, match=r"\(did you mean 'deadlock in barrier'\?\)"):
        ddt.explain("deadlok in barier")


def test_a_log_is_diagnosed_as_a_whole() -> None:
    watchdog = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=158"
    assert "nccl-watchdog-timeout: " in repr(ddt.explain(watchdog))
    log = f"step 1\nstep 2\n[rank1] {watchdog}\n[rank0]: StopIteration"
    assert repr(ddt.explain(log)) == repr(ddt.diagnose_text(log))


def test_a_lesson_of_part_e_is_named_with_its_cards() -> None:
    with pytest.raises(
        ddt.UnknownSymptom, match=r"E\.9-out-of-memory\.ipynb; see %ddt_explain out"
    ):
        ddt.explain("e.9")
    with pytest.raises(ddt.UnknownSymptom):
        ddt.explain("E.99")


def test_a_comparison_shows_itself() -> None:
    before = show(Report(ok=False, findings=[hang_finding(title=HOSTILE)]))
    for after in (show(Report(ok=True, checked="all agree")), before):
        view = ComparisonView(compare(before, after), before, after)
        assert repr(view).startswith("gone · " if after.ok else "same · ")
        page = parsed(view.to_html())
        assert page.tags <= KEPT | {"style"}
        assert "\x1b" not in page.text


@pytest.mark.parametrize("verdict", ["also", "called", "several", "otherwise", "endless", "well"])
def test_a_single_rank_check_shows_itself(verdict: str) -> None:
    view = SingleRankView(SingleRank(verdict, HOSTILE, ""), 4)  # type: ignore[arg-type]
    assert repr(view).startswith("single-rank check · ")
    assert "the cell" not in repr(view)  # it may have been a script
    page = parsed(view.to_html())
    assert page.tags <= KEPT | {"style"}
    assert "\x1b" not in page.text


def test_of_many_pages_the_best_are_described_and_the_others_named():
    page = ddt.explain("hang")
    assert isinstance(page, HitsView)
    names = [hit.name for hit in page.hits]
    assert len(names) > 10
    text, drawn = page.to_text(), page.to_html()
    assert all(name in text and name in drawn for name in names)
    assert text.count("%ddt_explain ") == 7  # six pages, and how to see the others
    assert {hit.kind for hit in page.hits[:6]} == {"symptom", "card", "message"}
