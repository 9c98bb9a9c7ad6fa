"""The steps of the assistant, without anything that draws them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ddt_notebook.assistant.checks import answers_of_run
from ddt_notebook.assistant.questions import Answer, Questionnaire
from ddt_notebook.assistant.state import QUESTIONS, State, start
from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.faults import card
from ddt_notebook.model import Cell, Fact, Snapshot
from ddt_notebook.symptoms import loader as taxonomy

HANG = replace(conclude("D.2.1", "late", cause="wait-cycle", ranks=[1]), title="a hang")
SLOW = replace(conclude("D.2.3", "late", cause="straggler-compute", ranks=[2]), title="slow")
HINT = replace(
    conclude("D.2.3", "late", cause="small-buckets", confidence="possible"), title="buckets"
)


def of_findings() -> State:
    return start([HANG, SLOW, HINT])


def state_at(symptom: str) -> State:
    """Answers every question as a person would whose job shows this symptom."""
    asked = start()
    while asked.question is not None:
        asked = asked.chosen(asked.question.choice_for(symptom))
    return asked


def test_the_assistant_begins_at_the_first_finding() -> None:
    begun = of_findings()
    assert begun.at == "finding"
    assert begun.finding is HANG
    assert begun.question is None
    assert begun.path == (
        ("stage", "training & evaluation"),
        ("symptom", "hang D.2.1"),
        ("fault", "wait-cycle"),
    )
    assert begun.choices == (SLOW.title, HINT.title, QUESTIONS)
    assert begun.views == ("stacks", "collectives")
    assert begun.fixes == tuple(HANG.fixes)


def test_the_choice_of_another_finding_can_be_undone() -> None:
    hint = of_findings().chosen(1)
    assert hint.finding is HINT
    assert hint.choices == (HANG.title, SLOW.title, QUESTIONS)
    assert hint.undone() == of_findings()
    assert hint.chosen(0).finding is HANG


def test_without_findings_the_assistant_asks() -> None:
    begun = start()
    assert begun.at == "question"
    assert begun.question is not None
    assert begun.choices == tuple(choice.text for choice in begun.question.choices)
    assert begun.path == begun.views == begun.fixes == ()
    assert begun.symptom is None
    assert begun.fixed_cell(None) is None


def test_questions_can_be_answered_although_there_is_a_finding() -> None:
    known = Questionnaire((Answer("shows", 2, "run", Fact(kind="hung")),))
    asked = start([HANG], known).chosen(0)
    assert asked.at == "question"
    assert asked.finding is None
    assert asked.questionnaire is known
    assert start([HANG], known, ask=True) == start([HANG], known).chosen(0)


def test_a_fault_that_the_user_ruled_out_is_the_last_choice() -> None:
    found = conclude("D.2.1", "late", cause="collective-under-rank-condition", ranks=[1])
    known = answers_of_run(Snapshot(cell=Cell(number=1, source=""), outcome="hung", world_size=2))
    asked = start([found], known).chosen(0)
    while asked.question is not None:
        asked = asked.chosen(asked.question.choice_for("D.2.1"))
    *others, last = asked.choices
    assert last == "a collective under a condition on the rank (you ruled it out)"
    assert not any("ruled it out" in other for other in others)
    assert asked.chosen(len(others)).cause == "collective-under-rank-condition"
    assert asked.restarted().finding is found
    assert "a collective under a condition on the rank" in state_at("D.2.1").choices


@pytest.mark.parametrize("symptom", [s.code for s in taxonomy.symptoms() if s.title != "others"])
def test_choices_lead_from_the_stage_through_the_symptom_to_the_fault(symptom: str) -> None:
    at_symptom = state_at(symptom)
    assert at_symptom.at == "symptom"
    code = at_symptom.symptom
    assert code is not None
    assert at_symptom.path[1][1].endswith(code)
    assert [fix.share for fix in at_symptom.fixes] == [p.share for p in taxonomy.fixes(code)]
    for number, title in enumerate(at_symptom.choices):
        at_fault = at_symptom.chosen(number)
        assert at_fault.at == "fault"
        assert card(at_fault.cause).title == title
        assert at_fault.fixes[0].advice
        assert at_fault.choices == ()
        example = at_fault.fixed_cell(None)
        assert example is not None
        assert not example.own
        assert example.after == card(at_fault.cause).fixed


def test_every_step_can_be_undone() -> None:
    states = [of_findings()]
    states.append(states[-1].chosen(2))
    states.append(states[-1].chosen(0))
    states.append(states[-1].unknown())
    question = states[-1].question
    assert question is not None
    states.append(states[-1].checked(Answer(question.id, 0, seen=Fact(kind="hung"))))
    assert states[-1].questionnaire.answers[-1].source == "check"
    for now, before in zip(states[:0:-1], states[-2::-1], strict=True):
        assert now.undone() == before
    assert states[0].undone() == states[0]
    assert states[-1].restarted() == states[0]
    assert states[0].restarted() == states[0]


def test_the_next_step_closes_an_open_view() -> None:
    opened = of_findings().with_opened("stacks")
    assert opened.opened == "stacks"
    assert opened.undone().opened == ""
    assert opened.restarted() == of_findings()
    following = opened.chosen(0)
    assert following.opened == ""
    assert following.undone().opened == "stacks"


def test_choices_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no answer 4; there are 3"):
        of_findings().chosen(3)
    with pytest.raises(ValueError, match="there is no answer 0"):
        of_findings().chosen(-1)
    with pytest.raises(ValueError, match="there is no question"):
        of_findings().unknown()
    with pytest.raises(ValueError, match="there is nothing to choose here"):
        state_at("D.2.1").chosen(0).chosen(0)


def test_the_assistant_begins_at_the_finding_of_a_real_run(root: Path) -> None:
    snapshot = Snapshot.load(root / "tests" / "fixtures" / "barrier-on-one-rank.ddt.json")
    report = diagnose(snapshot)
    begun = start([*report.findings, *report.hints], answers_of_run(snapshot))
    assert begun.finding == report.findings[0]
    assert begun.path[-1] == ("fault", "collective-under-rank-condition")
    cell = begun.fixed_cell(snapshot)
    assert cell is not None, "the change can be derived from this cell"
    assert cell.own
    assert (cell.found, cell.remaining) == (1, ())
    with_another = start([SLOW, *report.findings], answers_of_run(snapshot)).chosen(0)
    other = with_another.fixed_cell(snapshot)
    assert other is not None
    assert (other.found, other.remaining) == (2, ("slow",)), "it leaves the other finding"
    assert cell.before == snapshot.cell.source
    assert cell.after not in (snapshot.cell.source, card(begun.cause).fixed)
    example = begun.fixed_cell(None)
    assert example is not None, "without the run there is the example of the card"
    assert not example.own


def test_without_a_card_there_is_nothing_to_fix() -> None:
    assert start([conclude("D.1.11", "late", ranks=[0])]).fixed_cell(None) is None
