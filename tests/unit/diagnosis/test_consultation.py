"""The assistant's steps, without anything that draws them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddt_notebook.diagnosis import consultation as steps
from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.consultation import QUESTIONS, Consultation
from ddt_notebook.diagnosis.known import begin
from ddt_notebook.diagnosis.tree import Answer, Interview
from ddt_notebook.faults import card
from ddt_notebook.model import Cell, Snapshot
from ddt_notebook.symptoms import loader as taxonomy

HANG = conclude("D.2.1", "late", cause="wait-cycle", ranks=[1])
SLOW = conclude("D.2.3", "late", cause="straggler-compute", ranks=[2])
HINT = conclude("D.2.3", "late", cause="small-buckets", confidence="possible")


def of_findings() -> Consultation:
    return steps.begin([HANG, SLOW, HINT])


def told(symptom: str) -> Consultation:
    """Answers every question as a person would whose job shows this symptom."""
    asked = steps.begin()
    while asked.question is not None:
        chances = asked.question.truths[symptom]
        asked = asked.chosen(chances.index(max(chances)))
    return asked


def test_begins_at_the_first_finding() -> None:
    begun = of_findings()
    assert begun.stand == "finding"
    assert begun.finding is HANG
    assert begun.question is None
    assert begun.steps == (
        ("stage", "training & evaluation"),
        ("symptom", "hang D.2.1"),
        ("fault", "wait-cycle"),
    )
    assert begun.choices == (SLOW.title, HINT.title, QUESTIONS)
    assert begun.views == ("stacks", "collectives")
    assert begun.fixes == tuple(HANG.fixes)


def test_another_finding_can_be_taken_and_left_again() -> None:
    hint = of_findings().chosen(1)
    assert hint.finding is HINT
    assert hint.choices == (HANG.title, SLOW.title, QUESTIONS)
    assert hint.undone() == of_findings()
    assert hint.chosen(0).finding is HANG


def test_without_findings_it_asks() -> None:
    begun = steps.begin()
    assert begun.stand == "question"
    assert begun.question is not None
    assert begun.choices == begun.question.choices
    assert begun.steps == begun.views == begun.fixes == ()
    assert begun.symptom is None
    assert begun.repair(None) is None


def test_questions_can_be_gone_through_although_something_was_found() -> None:
    known = Interview((Answer("shows", 2, "the last run hung"),))
    asked = steps.begin([HANG], known).chosen(0)
    assert asked.stand == "question"
    assert asked.finding is None
    assert asked.interview is known
    assert steps.begin([HANG], known, ask=True) == steps.begin([HANG], known).chosen(0)


def test_a_fault_that_it_is_not_comes_last_among_those_of_the_symptom() -> None:
    found = conclude("D.2.1", "late", cause="collective-under-rank-condition", ranks=[1])
    known = begin(Snapshot(cell=Cell(number=1, source=""), outcome="hung", world_size=2))
    asked = steps.begin([found], known).chosen(0)
    while asked.question is not None:
        chances = asked.question.truths["D.2.1"]
        asked = asked.chosen(chances.index(max(chances)))
    *others, last = asked.choices
    assert last == "a collective under a condition on the rank (rejected)"
    assert not any("rejected" in other for other in others)
    assert asked.chosen(len(others)).cause == "collective-under-rank-condition"
    assert asked.restarted().finding is found
    assert "a collective under a condition on the rank" in told("D.2.1").choices


@pytest.mark.parametrize("symptom", [s.code for s in taxonomy.symptoms() if s.title != "others"])
def test_from_the_stage_over_the_symptom_to_the_fault(symptom: str) -> None:
    at_symptom = told(symptom)
    assert at_symptom.stand == "symptom"
    code = at_symptom.symptom
    assert code is not None
    assert at_symptom.steps[1][1].endswith(code)
    assert [fix.share for fix in at_symptom.fixes] == [p.share for p in taxonomy.fixes(code)]
    for number, title in enumerate(at_symptom.choices):
        at_fault = at_symptom.chosen(number)
        assert at_fault.stand == "fault"
        assert card(at_fault.cause).title == title
        assert at_fault.fixes[0].advice
        assert at_fault.choices == ()
        example = at_fault.repair(None)
        assert example is not None
        assert not example.derived
        assert example.after == card(at_fault.cause).fixed


def test_every_step_can_be_taken_back() -> None:
    states = [of_findings()]
    states.append(states[-1].chosen(2))
    states.append(states[-1].chosen(0))
    states.append(states[-1].unknown())
    question = states[-1].question
    assert question is not None
    states.append(states[-1].observed(Answer(question.id, 0, "seen in the last run")))
    assert states[-1].interview.answers[-1].told_by == "seen in the last run"
    for now, before in zip(states[:0:-1], states[-2::-1], strict=True):
        assert now.undone() == before
    assert states[0].undone() == states[0]
    assert states[-1].restarted() == states[0]
    assert states[0].restarted() == states[0]


def test_what_is_open_is_closed_by_the_next_step() -> None:
    opened = of_findings().looking_at("stacks")
    assert opened.detail == "stacks"
    assert opened.undone().detail == ""
    assert opened.restarted() == of_findings()
    following = opened.chosen(0)
    assert following.detail == ""
    assert following.undone().detail == "stacks"


def test_steps_that_there_are_not() -> None:
    with pytest.raises(ValueError, match="there is no answer 4; there are 3"):
        of_findings().chosen(3)
    with pytest.raises(ValueError, match="there is no answer 0"):
        of_findings().chosen(-1)
    with pytest.raises(ValueError, match="nothing is asked"):
        of_findings().unknown()
    with pytest.raises(ValueError, match="there is no answer 1; nothing is asked"):
        told("D.2.1").chosen(0).chosen(0)


def test_a_real_run_begins_at_what_was_found(root: Path) -> None:
    snapshot = Snapshot.load(root / "tests" / "fixtures" / "barrier-on-one-rank.ddt.json")
    report = diagnose(snapshot)
    begun = steps.begin([*report.findings, *report.hints], begin(snapshot))
    assert begun.finding == report.findings[0]
    assert begun.steps[-1] == ("fault", "collective-under-rank-condition")
    repair = begun.repair(snapshot)
    assert repair is not None, "the change can be derived from this cell"
    assert repair.derived
    assert repair.before == snapshot.cell.source
    assert repair.after not in (snapshot.cell.source, card(begun.cause).fixed)
    example = begun.repair(None)
    assert example is not None, "without the run there is the example of the card"
    assert not example.derived


def test_without_a_card_there_is_nothing_to_repair() -> None:
    assert steps.begin([conclude("D.1.11", "late", ranks=[0])]).repair(None) is None
