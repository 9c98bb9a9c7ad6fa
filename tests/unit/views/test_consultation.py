"""The assistant as text and as HTML: the same content, readable untrusted, no foreign markup."""

from __future__ import annotations

import re

import pytest

from ddt_notebook.diagnosis import consultation as steps
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.consultation import Consultation
from ddt_notebook.diagnosis.known import begin
from ddt_notebook.diagnosis.tree import Answer, Interview
from ddt_notebook.model import Cell, Place, Snapshot
from ddt_notebook.views.bundle import Message
from ddt_notebook.views.consultation import ConsultationView, RepairView
from ddt_notebook.views.interview import InterviewView

from .builders import crash, hang, hang_finding
from .test_html import HOSTILE, KEPT, parsed

SLOW = conclude("D.2.3", "late", cause="straggler-compute", ranks=[2])
CARD = "collective-under-rank-condition"


def asked(*choices: int) -> Consultation:
    made = steps.begin()
    for choice in choices:
        made = made.chosen(choice)
    return made


def at_symptom() -> Consultation:
    made = steps.begin()
    while made.question is not None:
        chances = made.question.truths["D.2.1"]
        made = made.chosen(chances.index(max(chances)))
    return made


def at_fault() -> Consultation:
    found = at_symptom()
    return found.chosen(found.choices.index("a collective under a condition on the rank"))


def words_of(text: str) -> str:
    return " ".join(text.replace("`", "").split())


STANDS = {
    "finding": lambda: steps.begin([hang_finding(cause=CARD), SLOW], begin(hang())),
    "question": lambda: asked(4),
    "symptom": at_symptom,
    "fault": at_fault,
}


@pytest.mark.parametrize("stand", STANDS)
def test_text_html_and_json_say_the_same(stand: str) -> None:
    consultation = STANDS[stand]()
    assert consultation.stand == stand
    snapshot = hang() if stand == "finding" else None
    view = ConsultationView(consultation, snapshot=snapshot, before=Message("all is well so far"))
    html, plain = parsed(view.to_html()), words_of(view.to_text())
    told = [*consultation.choices, "all is well so far"]
    told += [part for answer in view.answers for part in answer]
    told += [f"%ddt_show {name}" for name in consultation.views]
    for fix in consultation.fixes[:6]:
        told += [fix.pattern, fix.advice]
    told += [name for what, name in consultation.steps if what != "stage"]
    told += [view.lesson or "", "undo"]
    for expected in told:
        assert words_of(expected) in plain, expected
        assert words_of(expected) in words_of(html.text), expected
    assert html.tags <= KEPT | {"style", "ol"}
    assert html.attributes <= {"class", "style"}
    assert max(map(len, view.to_text().splitlines())) <= 80
    assert view.to_html() == view.to_html()
    plain_data = view.to_json()
    assert plain_data["choices"] == list(consultation.choices)
    assert plain_data["path"] == dict(consultation.steps)
    assert (plain_data["question"] is None) is (stand != "question")


def test_the_columns_hold_what_the_whole_holds() -> None:
    consultation = STANDS["finding"]()
    view = ConsultationView(consultation, snapshot=hang(), detail=Message("opened"))
    assert "training & evaluation" in parsed(view.path_html()).text
    assert "→ 6          dist.all_reduce(loss)" in parsed(view.middle_html()).text
    assert "11%, 5 of 44 hangs in the study" in parsed(view.changes_html()).text
    assert "opened" in parsed(view.detail_html()).text
    assert "opened" in view.to_text()
    assert "opened" in view.to_html()


def test_a_check_is_offered_in_words() -> None:
    view = ConsultationView(asked(4), offer="run the last cell once more")
    for shown in (view.to_text(), view.to_html()):
        assert "run the last cell once more" in " ".join(shown.split())
    assert view.to_json()["check"] == "run the last cell once more"
    assert "likely so far" in parsed(view.changes_html()).text


def test_what_was_seen_needed_no_question_and_is_not_counted_as_one() -> None:
    seen = Interview(
        (
            Answer("formed", 0, "the session formed it"),
            Answer("stage", 4, "optimizers took steps in the last run"),
            Answer("shows", 2, "the last run hung"),
            Answer("first", 1, "optimizers had taken up to 1 step"),
        )
    )
    assert seen.question is None
    expected = "no question was needed: the last run shows hang D.2.1"
    for shown in (InterviewView(seen), ConsultationView(steps.begin(interview=seen))):
        assert expected in words_of(shown.to_text())
        assert expected in words_of(parsed(shown.to_html()).text)
        assert "100%" not in shown.to_text() + parsed(shown.to_html()).text


def test_questions_and_checks_are_counted() -> None:
    checked = steps.begin().chosen(4)
    while checked.question is not None:
        chances = checked.question.truths["D.2.1"]
        checked = checked.observed(Answer(checked.question.id, chances.index(max(chances)), "seen"))
    count = len(checked.interview.answers) - 1
    checks = "1 check" if count == 1 else f"{count} checks"
    title = InterviewView(checked.interview).title()
    assert title.startswith(f"after 1 question and {checks}: hang D.2.1, as likely as ")
    assert "100%" not in title


def test_it_is_said_whose_cell_is_repaired() -> None:
    example = ConsultationView(at_fault())
    assert "gives an example (not your cell), repaired" in words_of(example.to_text())
    repair = example.repair
    assert repair is not None
    view = RepairView(repair)
    for shown in (view.to_text(), parsed(view.to_html()).text):
        assert words_of(shown).startswith("an example (not your cell), repaired: a collective")
    assert "+ " in view.to_text()


def test_hostile_text_stays_text() -> None:
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
    view = ConsultationView(
        steps.begin([finding, finding]), snapshot=snapshot, detail=Message(HOSTILE)
    )
    shown = (view.to_html(), view.path_html(), view.middle_html(), view.detail_html())
    for html in shown:
        page = parsed(html)
        assert page.tags <= KEPT | {"style", "ol"}
        assert "\x1b" not in html
    assert "<script>alert(1)</script>" in parsed(view.to_html()).text


def test_literal_colours_only_outside_the_style_sheet() -> None:
    for make in STANDS.values():
        body = re.sub(r"<style>.*?</style>", "", ConsultationView(make()).to_html())
        assert "var(" not in body
