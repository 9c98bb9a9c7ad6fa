"""The choice of the next question: few questions, the right symptom, tolerance of mistakes."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

import pytest

from ddt_notebook.assistant.checks import answers_of_run
from ddt_notebook.assistant.questions import (
    MOST,
    Answer,
    Question,
    Questionnaire,
    find,
    questions,
)
from ddt_notebook.assistant.state import start
from ddt_notebook.assistant.view import AssistantView
from ddt_notebook.assistant.wording import OBSERVATIONS, sentence
from ddt_notebook.model import Cell, Fact, RankError, RankReport, Snapshot
from ddt_notebook.model.training import OptimizerTraining, RankTraining
from ddt_notebook.symptoms import loader as study


@cache
def state(answers: tuple[Answer, ...]) -> tuple[str | None, Question | None]:
    questionnaire = Questionnaire(answers)
    return questionnaire.conclusion, questionnaire.question


def walk(code: str, mistaken: float, chance: random.Random) -> tuple[str, int]:
    """Answer like a user with this symptom; return the conclusion and the number of answers."""
    answers: tuple[Answer, ...] = ()
    while True:
        conclusion, asked = state(answers)
        if conclusion is not None:
            return conclusion, len(answers)
        assert asked is not None
        (choice,) = chance.choices(range(len(asked.choices)), asked.likelihoods[code])
        if chance.random() < mistaken:
            choice = chance.choice([c for c in range(len(asked.choices)) if c != choice])
        answers = (*answers, Answer(asked.id, choice))


def simulate(mistaken: float) -> tuple[float, float, int]:
    """Share of right conclusions, questions on average and at most, over the study's faults."""
    chance = random.Random(17)
    ends = [
        (symptom.code, *walk(symptom.code, mistaken, chance))
        for symptom in study.symptoms()
        for _ in range(symptom.faults)
    ]
    right = sum(code == found for code, found, _ in ends) / len(ends)
    asked = [count for *_, count in ends]
    return right, sum(asked) / len(asked), max(asked)


def test_true_answers_lead_to_the_symptom_in_few_questions() -> None:
    right, average, most = simulate(0)
    assert right > 0.99
    assert average <= 4
    assert most <= MOST


def test_one_wrong_answer_in_ten_is_tolerated() -> None:
    right, _, most = simulate(0.1)
    assert right >= 0.7
    assert most <= MOST


def test_every_question_is_about_known_symptoms() -> None:
    codes = {symptom.code for symptom in study.symptoms()}
    for question in questions():
        assert set(question.likelihoods) == codes
        assert all(abs(sum(row) - 1) < 1e-9 for row in question.likelihoods.values())
        assert not question.after or find(question.after)


def test_a_question_that_an_answer_rules_out_is_not_asked() -> None:
    wrong, message = find("wrong"), find("message")
    shows = find("shows")
    for choice in range(len(shows.choices)):
        questionnaire = Questionnaire((Answer("shows", choice),))
        asked = set()
        while (question := questionnaire.question) is not None:
            asked.add(question.id)
            questionnaire = questionnaire.answered(None)
        assert (wrong.id in asked) <= (choice in wrong.after_choices)
        assert (message.id in asked) <= (choice in message.after_choices)
    assert {q.after for q in questions() if q.after_choices} <= {q.id for q in questions()}


def test_questions_end_for_a_user_who_knows_no_answer() -> None:
    questionnaire = Questionnaire()
    while questionnaire.question is not None:
        questionnaire = questionnaire.answered(None)
    assert questionnaire.asked <= MOST
    assert questionnaire.conclusion == "B.1", "the most frequent symptom of the study"


def test_an_answer_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no answer 9; there are 6"):
        Questionnaire().answered(8)


def test_no_question_about_an_error_before_one_was_seen() -> None:
    first = Questionnaire().question
    assert first is not None
    assert first.id in ("stage", "shows")


# -- what a run answers by itself ------------------------------------------------------------------


def snapshot(**changes: object) -> Snapshot:
    return Snapshot(cell=Cell(number=1, source="x"), **changes)  # type: ignore[arg-type]


def test_a_run_answers_questions_with_what_was_observed() -> None:
    assert answers_of_run(None) == Questionnaire()
    hung = answers_of_run(snapshot(outcome="hung"))
    assert [answer.seen for answer in hung.answers] == [
        Fact(kind="group-formed"),
        Fact(kind="hung"),
    ]
    assert {answer.source for answer in hung.answers} == {"run"}
    killed = RankReport(rank=1, state="died", exit_signal=11)
    died = answers_of_run(snapshot(outcome="failed", ranks=(killed,)))
    assert died.answers[-1].question == "shows"
    missing = RankReport(
        rank=0, state="raised", error=RankError(type="ModuleNotFoundError", message="no horovod")
    )
    imported = answers_of_run(snapshot(outcome="failed", ranks=(missing,)))
    assert imported.conclusion == "A.2"
    assert imported.asked == 0


def test_a_healthy_run_points_to_what_a_run_does_not_show() -> None:
    begun = answers_of_run(snapshot(outcome="ok"))
    assert [answer.question for answer in begun.answers] == ["end", "formed"]
    assert set(list(begun.probabilities)[:4]) == {"D.2.2", "D.2.3", "D.2.4", "D.2.5"}
    assert begun.conclusion is None
    assert begun.question == find("shows")
    hangs = begun.answered(2)
    assert next(iter(hangs.probabilities)) == "D.2.1", "a person's word counts for more"


def test_a_failure_after_some_steps_is_one_of_training() -> None:
    stepped = RankTraining(rank=0, optimizers=(OptimizerTraining(name="optimizer", steps=7),))
    begun = answers_of_run(snapshot(outcome="hung", training=(stepped,)))
    assert {answer.question for answer in begun.answers} == {"formed", "stage", "shows", "first"}
    assert begun.conclusion == "D.2.1"
    assert begun.answers[-1].seen == Fact(kind="steps-before-failure", values={"steps": 7})
    once = RankTraining(rank=0, optimizers=(OptimizerTraining(name="optimizer", steps=1),))
    begun = answers_of_run(snapshot(outcome="hung", training=(once,)))
    seen = begun.answers[-1].seen
    assert seen is not None
    assert sentence(seen) == "the optimizers had taken up to 1 step"


def test_a_hint_of_a_run_makes_its_symptom_likelier() -> None:
    plain, hinted = Questionnaire(), Questionnaire(hints=("D.2.3",))
    assert hinted.probabilities["D.2.3"] > 2 * plain.probabilities["D.2.3"]
    shown = AssistantView(start(questionnaire=hinted))
    assert "the last run hints at low efficiency D.2.3" in shown.to_text()
    assert "the last run hints at low efficiency D.2.3" in shown.to_html()


def test_questions_that_only_a_run_answers_are_never_asked() -> None:
    questionnaire = Questionnaire()
    while questionnaire.question is not None:
        assert questionnaire.question.asked
        questionnaire = questionnaire.answered(None)


def test_it_shows_the_question_and_what_is_known() -> None:
    begun = start(questionnaire=answers_of_run(snapshot(outcome="hung")))
    shown = AssistantView(begun)
    assert ("What do you see?", "it hangs, or a timeout expires (the last run hung)") in (
        shown.answers
    )
    assert "How far did the job get?" in shown.to_text()
    assert "%ddt_debug 1" in shown.to_text()
    assert "<ol" in shown.to_html()
    end = begun
    while end.question is not None:
        end = end.chosen(4 if end.question.id == "stage" else 0)
    assert "hang D.2.1" in AssistantView(end).to_text().splitlines()[0]
    assert "D.2.1" in AssistantView(end).to_html()


def test_every_observation_has_a_sentence(root: Path) -> None:
    source = (root / "ddt_notebook" / "assistant" / "checks.py").read_text()
    used = set(re.findall(r'"([a-z]+(?:-[a-z]+)+|raised|killed|hung|finding)"', source))
    assert used == set(OBSERVATIONS)
