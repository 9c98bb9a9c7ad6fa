"""The guided tree: few questions, the right symptom, and room for mistakes."""

from __future__ import annotations

import random
from functools import cache

import pytest

from ddt_notebook.diagnosis.known import begin
from ddt_notebook.diagnosis.tree import MOST, Answer, Interview, Question, find, questions
from ddt_notebook.model import Cell, RankError, RankReport, Snapshot
from ddt_notebook.model.training import OptimizerTraining, RankTraining
from ddt_notebook.symptoms import loader as study
from ddt_notebook.views.interview import InterviewView


@cache
def state(answers: tuple[Answer, ...]) -> tuple[str | None, Question | None]:
    interview = Interview(answers)
    return interview.conclusion, interview.question


def walk(code: str, mistaken: float, chance: random.Random) -> tuple[str, int]:
    """Answer as somebody with this symptom would; what it comes to, and after how many answers."""
    answers: tuple[Answer, ...] = ()
    while True:
        conclusion, asked = state(answers)
        if conclusion is not None:
            return conclusion, len(answers)
        assert asked is not None
        (choice,) = chance.choices(range(len(asked.choices)), asked.truths[code])
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


def test_one_wrong_answer_in_ten_is_borne() -> None:
    right, _, most = simulate(0.1)
    assert right >= 0.7
    assert most <= MOST


def test_every_question_is_about_known_symptoms() -> None:
    codes = {symptom.code for symptom in study.symptoms()}
    for question in questions():
        assert set(question.truths) == codes
        assert all(abs(sum(row) - 1) < 1e-9 for row in question.truths.values())
        assert not question.needs or find(question.needs)


def test_what_makes_no_sense_after_an_answer_is_not_asked() -> None:
    wrong, message = find("wrong"), find("message")
    shows = find("shows")
    for choice in range(len(shows.choices)):
        interview = Interview((Answer("shows", choice),))
        asked = set()
        while (question := interview.question) is not None:
            asked.add(question.id)
            interview = interview.answered(None)
        assert (wrong.id in asked) <= (choice + 1 in wrong.given)
        assert (message.id in asked) <= (choice + 1 in message.given)
    assert {q.needs for q in questions() if q.given} <= {q.id for q in questions()}


def test_somebody_who_knows_nothing_comes_to_an_end() -> None:
    interview = Interview()
    while interview.question is not None:
        interview = interview.answered(None)
    assert interview.asked <= MOST
    assert interview.conclusion == "B.1", "the most frequent symptom of the study"


def test_undo_and_restart() -> None:
    begun = Interview((Answer("stage", 4, "seen in the run"),))
    one = begun.answered(2)
    two = one.answered(0) if one.question else one
    assert two.without_last() == one or two == one
    assert one.without_last() == begun
    assert begun.without_last() == begun
    assert two.restarted() == begun
    assert begun.asked == 0


def test_an_answer_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="there is no answer 9; there are 6"):
        Interview().answered(8)


def test_no_question_about_an_error_before_one_was_seen() -> None:
    first = Interview().question
    assert first is not None
    assert first.id in ("stage", "shows")


# -- what a run answers by itself ------------------------------------------------------------------


def snapshot(**changes: object) -> Snapshot:
    return Snapshot(cell=Cell(number=1, source="x"), **changes)  # type: ignore[arg-type]


def test_a_run_tells_what_was_seen() -> None:
    assert begin(None) == Interview()
    hung = begin(snapshot(outcome="hung"))
    assert [answer.told_by for answer in hung.answers] == [
        "the session formed it",
        "the last run hung",
    ]
    killed = RankReport(rank=1, state="died", exit_signal=11)
    assert begin(snapshot(outcome="failed", ranks=(killed,))).answers[-1].question == "shows"
    missing = RankReport(
        rank=0, state="raised", error=RankError(type="ModuleNotFoundError", message="no horovod")
    )
    imported = begin(snapshot(outcome="failed", ranks=(missing,)))
    assert imported.conclusion == "A.2"
    assert imported.asked == 0


def test_a_healthy_run_points_to_what_a_run_does_not_show() -> None:
    begun = begin(snapshot(outcome="ok"))
    assert [find(answer.question).ask for answer in begun.answers] == [
        "Does it run to its end?",
        "Was the process group formed?",
    ]
    assert set(list(begun.beliefs)[:4]) == {"D.2.2", "D.2.3", "D.2.4", "D.2.5"}
    assert begun.conclusion is None
    assert begun.question == find("shows")
    hangs = begun.answered(2)
    assert next(iter(hangs.beliefs)) == "D.2.1", "a person's word counts for more"


def test_a_failure_after_some_steps() -> None:
    stepped = RankTraining(rank=0, optimizers=(OptimizerTraining(name="optimizer", steps=7),))
    begun = begin(snapshot(outcome="hung", training=(stepped,)))
    assert {answer.question for answer in begun.answers} == {"formed", "stage", "shows", "first"}
    assert begun.conclusion == "D.2.1"
    assert begun.answers[-1].told_by == "optimizers had taken up to 7 steps"
    once = RankTraining(rank=0, optimizers=(OptimizerTraining(name="optimizer", steps=1),))
    begun = begin(snapshot(outcome="hung", training=(once,)))
    assert begun.answers[-1].told_by == "optimizers had taken up to 1 step"


def test_what_a_run_hints_at_is_likelier() -> None:
    plain, hinted = Interview(), Interview(hints=("D.2.3",))
    assert hinted.beliefs["D.2.3"] > 2 * plain.beliefs["D.2.3"]
    shown = InterviewView(hinted)
    assert "hinted at by the last run: low efficiency D.2.3" in shown.to_text()
    assert "hinted at by the last run: low efficiency D.2.3" in shown.to_html()


def test_what_only_a_run_tells_is_never_asked() -> None:
    interview = Interview()
    while interview.question is not None:
        assert interview.question.asked
        interview = interview.answered(None)


def test_it_reads_well() -> None:
    begun = begin(snapshot(outcome="hung"))
    shown = str(InterviewView(begun))
    assert "nothing moves on, or a time limit passes (the last run hung)" in shown
    assert "How far did the job get?" in shown
    assert "%ddt_debug 1" in shown
    end = begun
    while end.question is not None:
        end = end.answered(4 if end.question.id == "stage" else 0)
    assert "hang D.2.1" in str(InterviewView(end)).splitlines()[0]
    assert "<ol" in InterviewView(begun).to_html()
    assert "D.2.1" in InterviewView(end).to_html()
