"""Checks that answer the questions of the assistant: real processes, and bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddt_notebook.assistant import checks
from ddt_notebook.assistant.checks import answers_of_run
from ddt_notebook.assistant.questions import Answer, Question, about, find, questions
from ddt_notebook.assistant.wording import sentence
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.host.session import Session, active
from ddt_notebook.model import Cell, Fact, RankError, RankReport, Snapshot
from ddt_notebook.preflight import versions
from ddt_notebook.preflight.processes import Ended

#: What gloo raises with GLOO_SOCKET_IFNAME=eth99.
NO_INTERFACE = (
    "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] "
    "ifa != nullptr. Unable to find address for: eth99"
)


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(2, hang_after=0.3, timeout=5.0) as running:
        yield running
    active.keep(None)


def name_of(answer: Answer, question: Question) -> str:
    """The name of the choice; empty for a check without a result."""
    return "" if answer.choice is None else question.choices[answer.choice].name


def kind_of(answer: Answer) -> str:
    assert answer.seen is not None
    return answer.seen.kind


def said(answer: Answer) -> str:
    assert answer.seen is not None
    return sentence(answer.seen)


def test_every_named_check_exists_and_every_check_is_named() -> None:
    every = [*questions(), about("A.1"), about("D.2.1")]
    assert {question.check for question in every} - {""} == checks.NAMES


def test_before_any_run_only_checks_of_the_machine_are_offered() -> None:
    assert checks.last_run() is None
    offered = {q.id for q in questions() if checks.offer(q)}
    assert offered == {"stage", "group"}
    with pytest.raises(ValueError, match="no check can answer this question"):
        checks.check(find("alone"))


def test_the_check_of_a_group_that_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes form it in tests/unit/test_doctor.py, where one group cannot be formed, too."""
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(checks, "form_group", lambda *group: asked.append(group))
    question = find("group")
    assert "2 fresh processes form a group (gloo)" in checks.offer(question)
    steps: list[str] = []
    answer = checks.check(question, steps.append)
    assert name_of(answer, question) == "yes"
    assert kind_of(answer) == "group-works"
    assert steps == ["forming a group of 2 processes …"]
    assert asked == [("gloo", 2)]


def test_the_check_of_a_group_that_does_not_form(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Ended(1, "", f"Traceback (most recent call last):\n{NO_INTERFACE}\n")
    monkeypatch.setattr(checks, "form_group", lambda *_: ended)
    answer = checks.check(find("group"))
    assert kind_of(answer) == "group-failed"
    assert name_of(answer, find("group")) == "no"
    assert "eth99" in said(answer)
    monkeypatch.setattr(checks, "read_versions", lambda: ({"torch": "2"}, Ended(0, "", "")))
    setup = about("B.1")
    assert name_of(checks.check(setup), setup) == "yes"


def test_the_check_reports_that_torch_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Ended(1, "", "ImportError: libcudart.so.13: cannot open shared object file\n")
    monkeypatch.setattr(checks, "read_versions", lambda: ({}, ended))
    stage = find("stage")
    answer = checks.check(stage)
    assert name_of(answer, stage) == "import"
    assert kind_of(answer) == "import-failed"
    assert "libcudart" in said(answer)


def test_the_check_reports_a_group_that_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "run_together", lambda *_: [Ended(None, "", "")] * 2)
    hang = about("B.2")
    assert kind_of(checks.check(find("group"))) == "group-timed-out"
    monkeypatch.setattr(checks, "read_versions", lambda: ({"torch": "2"}, Ended(0, "", "")))
    assert name_of(checks.check(hang), hang) == "yes"


def test_the_check_repeats_a_hang(session: Session) -> None:
    session.run("steps = 0")
    session.run("dist.all_reduce(torch.ones(1)) if rank == 0 else None")
    shows, hang, slow = find("shows"), about("D.2.1"), about("D.2.3")
    offered = checks.offer(shows)
    assert "run the last cell once more on 2 fresh ranks after 1 earlier cell" in offered
    assert "for at most 10 s" in offered
    answer = checks.check(shows)
    assert name_of(answer, shows) == "hang"
    assert name_of(checks.check(hang), hang) == "yes"
    assert name_of(checks.check(slow), slow) == "no"
    assert active.get() is session
    assert session.alive


def test_the_check_shows_whether_one_rank_alone_fails(session: Session) -> None:
    session.run("y = 1 / (world_size - 2)")
    alone = find("alone")
    answer = checks.check(alone)
    assert name_of(answer, alone) == "no"
    session.run("1 / 0")
    answer = checks.check(alone)
    assert name_of(answer, alone) == "yes"
    assert kind_of(answer) == "fails-alone"
    assert "ZeroDivisionError" in said(answer)


def test_a_healthy_run_answers_no_question_about_a_symptom(session: Session) -> None:
    session.run("x = torch.ones(1); dist.all_reduce(x)")
    shows, wrong = find("shows"), find("wrong")
    assert "up to 3 more times, each time on 2 fresh ranks" in checks.offer(shows)
    steps: list[str] = []
    answer = checks.check(shows, steps.append)
    assert answer.choice is None
    assert kind_of(answer) == "ran-well"
    assert said(answer) == "in 3 runs the cell ended, and no rank failed"
    assert len(steps) == 3
    assert kind_of(checks.check(wrong)) == "nothing-found"
    assert not checks.offer(find("alone"))


def test_the_check_reports_variables_that_only_the_session_has(session: Session) -> None:
    session.push(pushed=2)
    session.run("pushed + 1; dist.all_reduce(torch.ones(1)) if rank == 0 else None")
    shows = find("shows")
    answer = checks.check(shows)
    assert name_of(answer, shows) == "hang"
    session.pushed.forget()  # as if it had been too large to be kept
    answer = checks.check(shows)
    assert answer.choice is None
    assert kind_of(answer) == "needs-variables"


def test_the_check_of_a_cell_that_takes_too_long(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.run("import time; time.sleep(0.1)")
    monkeypatch.setattr("ddt_notebook.host.rerun.limit_of", lambda snapshot: 0.05)
    answer = checks.check(find("first"))
    assert answer.choice is None
    assert kind_of(answer) == "still-running"


def test_the_error_of_the_last_run(session: Session) -> None:
    message = find("message")
    session.run("torch.ones(2, 3) @ torch.ones(2, 3)")
    assert "read the error of the last run: RuntimeError" in checks.offer(message)
    answer = checks.check(message)
    assert answer.choice == message.choice_for("D.1.5")
    assert kind_of(answer) == "finding"


def test_a_finding_of_the_check_answers_the_question(session: Session) -> None:
    session.run(
        "loss = torch.tensor([float(rank + 1)])\n"
        "if rank == 0:\n"
        "    handle = dist.all_reduce(loss, async_op=True)\n"
        "print('loss', loss.item())\n"
    )
    wrong = find("wrong")
    answer = checks.check(wrong)
    assert answer.choice == wrong.choice_for("D.2.4")
    assert answer.seen is not None
    assert answer.seen.values["symptom"] == "D.2.4"


def test_the_last_run_is_checked_after_the_session_was_stopped() -> None:
    with Session(2, hang_after=0.3) as session:
        session.run("1 / 0")
    assert active.get() is None
    shows = find("shows")
    try:
        assert checks.last_run() is not None
        answer = checks.check(shows)
        assert name_of(answer, shows) == "error"
    finally:
        active.keep(None)


def test_the_check_reports_that_ranks_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RankError(type="ValueError", message="x")
    failed = Snapshot(
        cell=Cell(number=1, source="x"),
        outcome="failed",
        ranks=(RankReport(rank=0, state="raised", error=error),),
        world_size=100_000,
    )
    run = RunResult(False, {}, {}, failed, 1.0)
    monkeypatch.setattr(checks, "last_run", lambda: run)
    answer = checks.check(find("shows"))
    assert answer.choice is None
    assert kind_of(answer) == "test-not-started"


# -- in the questionnaire --------------------------------------------------------------------------


def test_a_check_answers_and_is_offered_once() -> None:
    asked = answers_of_run(None)
    question = asked.question
    assert question is not None
    assert asked.can_check(question)
    answered = asked.checked_with(Answer(question.id, 2, "run", Fact(kind="hung")))
    assert answered.question != question
    assert answered.asked == 0
    assert answered.checked == 1
    untold = asked.checked_with(Answer(question.id, None, "check", Fact(kind="ran-well")))
    assert untold.question == question
    assert not untold.can_check(question)
    assert untold.answered(1).probabilities == asked.answered(1).probabilities
