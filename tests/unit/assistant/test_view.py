"""The assistant as text and as HTML: the same content, readable untrusted, no foreign markup."""

from __future__ import annotations

import re

import pytest

from ddt_notebook.assistant.checks import answers_of_run
from ddt_notebook.assistant.questions import Answer, Questionnaire
from ddt_notebook.assistant.state import State, start
from ddt_notebook.assistant.view import AssistantView, FixedCellView
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.model import Fact
from ddt_notebook.views.displayable import Message

from ..views.builders import hang, hang_finding
from ..views.test_html import HOSTILE, KEPT, hostile, parsed

SLOW = conclude("D.2.3", "late", cause="straggler-compute", ranks=[2])
CARD = "collective-under-rank-condition"


def asked(*choices: int) -> State:
    made = start()
    for choice in choices:
        made = made.chosen(choice)
    return made


def at_symptom() -> State:
    made = start()
    while made.question is not None:
        made = made.chosen(made.question.choice_for("D.2.1"))
    return made


def at_fault() -> State:
    found = at_symptom()
    return found.chosen(found.choices.index("a collective under a condition on the rank"))


def words_of(text: str) -> str:
    return " ".join(text.replace("`", "").split())


STANDS = {
    "finding": lambda: start([hang_finding(cause=CARD), SLOW], answers_of_run(hang())),
    "question": lambda: asked(4),
    "symptom": at_symptom,
    "fault": at_fault,
}


@pytest.mark.parametrize("stand", STANDS)
def test_text_html_and_json_say_the_same(stand: str) -> None:
    state = STANDS[stand]()
    assert state.at == stand
    snapshot = hang() if stand == "finding" else None
    view = AssistantView(state, snapshot=snapshot, before=Message("all is well so far"))
    html, plain = parsed(view.to_html()), words_of(view.to_text())
    texts = [*state.choices, "all is well so far"]
    texts += [part for answer in view.answers for part in answer]
    texts += [f"%ddt_show {name}" for name in state.views]
    for fix in state.fixes[:6]:
        texts += [fix.pattern, fix.advice]
    texts += [name for what, name in state.path if what != "stage"]
    texts += [view.lesson or "", "undo"]
    for expected in texts:
        assert words_of(expected) in plain, expected
        assert words_of(expected) in words_of(html.text), expected
    assert html.tags <= KEPT | {"style", "ol"}
    assert html.attributes <= {"class", "style"}
    assert max(map(len, view.to_text().splitlines())) <= 80
    assert view.to_html() == view.to_html()
    plain_data = view.to_json()
    assert plain_data["choices"] == list(state.choices)
    assert plain_data["path"] == dict(state.path)
    assert (plain_data["question"] is None) is (stand != "question")


def test_the_columns_have_the_content_of_the_whole_view() -> None:
    state = STANDS["finding"]()
    view = AssistantView(state, snapshot=hang(), opened=Message("opened"))
    assert "training & evaluation" in parsed(view.path_html()).text
    assert "→ 6          dist.all_reduce(loss)" in parsed(view.middle_html()).text
    assert "11%, 5 of 44 hangs in the study" in parsed(view.changes_html()).text
    assert "opened" in parsed(view.opened_html()).text
    assert "opened" in view.to_text()
    assert "opened" in view.to_html()


def test_a_check_is_offered_in_words() -> None:
    view = AssistantView(asked(4), offer="run the last cell once more")
    for shown in (view.to_text(), view.to_html()):
        assert "run the last cell once more" in " ".join(shown.split())
    assert view.to_json()["check"] == "run the last cell once more"
    assert "probable so far" in parsed(view.changes_html()).text


def test_observations_are_not_counted_as_questions() -> None:
    one_step = Fact(kind="steps-before-failure", values={"steps": 1})
    seen = Questionnaire(
        (
            Answer("formed", 0, "run", Fact(kind="group-formed")),
            Answer("stage", 4, "run", Fact(kind="steps-taken")),
            Answer("shows", 2, "run", Fact(kind="hung")),
            Answer("first", 1, "run", one_step),
        )
    )
    assert seen.question is None
    expected = "no question was needed: the last run shows hang D.2.1"
    shown = AssistantView(start(questionnaire=seen))
    assert expected in words_of(shown.to_text())
    assert expected in words_of(parsed(shown.to_html()).text)
    assert "100%" not in shown.to_text() + parsed(shown.to_html()).text


def test_questions_and_checks_are_counted() -> None:
    checked = start().chosen(4)
    while checked.question is not None:
        choice = checked.question.choice_for("D.2.1")
        answer = Answer(checked.question.id, choice, seen=Fact(kind="hung"))
        checked = checked.checked(answer)
    count = len(checked.questionnaire.answers) - 1
    checks = "1 check" if count == 1 else f"{count} checks"
    title = AssistantView(checked).title()
    assert title.startswith(f"after 1 question and {checks}: hang D.2.1, with a probability of ")
    assert "100%" not in title


def test_the_view_names_whose_cell_is_repaired() -> None:
    example = AssistantView(at_fault())
    assert "gives an example (not your cell), repaired" in words_of(example.to_text())
    cell = example.fixed_cell
    assert cell is not None
    view = FixedCellView(cell)
    for shown in (view.to_text(), parsed(view.to_html()).text):
        assert words_of(shown).startswith("an example (not your cell), repaired: a collective")
    assert "+ " in view.to_text()


def test_hostile_text_stays_text() -> None:
    snapshot, finding = hostile()
    view = AssistantView(start([finding, finding]), snapshot=snapshot, opened=Message(HOSTILE))
    shown = (view.to_html(), view.path_html(), view.middle_html(), view.opened_html())
    for html in shown:
        page = parsed(html)
        assert page.tags <= KEPT | {"style", "ol"}
        assert "\x1b" not in html
    assert "<script>alert(1)</script>" in parsed(view.to_html()).text


def test_literal_colours_only_outside_the_style_sheet() -> None:
    for make in STANDS.values():
        body = re.sub(r"<style>.*?</style>", "", AssistantView(make()).to_html())
        assert "var(" not in body
