"""Checks that answer the guided tree's questions: real processes, bounded, and honest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ddt_notebook import inquiry
from ddt_notebook.diagnosis.known import begin
from ddt_notebook.diagnosis.tree import NO, YES, Answer, Question, about, find, questions
from ddt_notebook.host import active
from ddt_notebook.host.session import Session
from ddt_notebook.model import Cell, RankError, RankReport, Snapshot
from ddt_notebook.preflight import versions
from ddt_notebook.preflight.processes import Ended


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(2, hang_after=0.3, timeout=5.0) as running:
        yield running
    active.keep(None)


def text_of(answer: Answer, question: Question) -> str:
    return "" if answer.choice is None else question.choices[answer.choice]


def test_every_named_probe_exists_and_every_probe_is_named() -> None:
    every = [*questions(), about("A.1"), about("D.2.1")]
    assert {question.probe for question in every} - {""} == inquiry.PROBES


def test_nothing_has_run() -> None:
    assert inquiry.last_snapshot(None) is None
    offered = {q.id for q in questions() if inquiry.offer(q, None)}
    assert offered == {"stage", "group"}
    with pytest.raises(ValueError, match="no check answers this question"):
        inquiry.check(find("alone"), None)


def test_a_group_that_can_be_formed() -> None:
    question = find("group")
    assert "2 fresh processes form a group (gloo)" in inquiry.offer(question, None)
    told: list[str] = []
    answer = inquiry.check(question, None, told.append)
    assert text_of(answer, question) == "yes"
    assert answer.told_by.startswith("2 processes formed a group")
    assert told == ["forming a group of 2 processes …"]


def test_a_group_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth99")
    answer = inquiry.check(find("group"), None)
    assert answer.choice == 0
    assert "eth99" in answer.told_by
    setup = about("B.1")
    assert text_of(inquiry.check(setup, None), setup) == YES


def test_torch_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Ended(1, "", "ImportError: libcudart.so.13: cannot open shared object file\n")
    monkeypatch.setattr(inquiry, "read_versions", lambda: ({}, ended))
    stage = find("stage")
    answer = inquiry.check(stage, None)
    assert text_of(answer, stage) == "importing a package failed"
    assert "libcudart" in answer.told_by


def test_processes_that_form_no_group_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "run_together", lambda *_: [Ended(None, "", "")] * 2)
    hang = about("B.2")
    assert text_of(inquiry.check(find("group"), None), find("group")).startswith("no")
    monkeypatch.setattr(inquiry, "read_versions", lambda: ({"torch": "2"}, Ended(0, "", "")))
    assert text_of(inquiry.check(hang, None), hang) == YES


def test_a_hang_is_seen_again(session: Session) -> None:
    session.run("steps = 0")
    session.run("dist.all_reduce(torch.ones(1)) if rank == 0 else None")
    shows, hang, slow = find("shows"), about("D.2.1"), about("D.2.3")
    offered = inquiry.offer(shows, session)
    assert "run the last cell once more on 2 fresh ranks after 1 earlier cell" in offered
    assert "for at most 10 s" in offered
    answer = inquiry.check(shows, session)
    assert text_of(answer, shows) == "nothing moves on, or a time limit passes"
    assert text_of(inquiry.check(hang, session), hang) == YES
    assert text_of(inquiry.check(slow, session), slow) == NO
    assert active.get() is session
    assert session.alive


def test_several_ranks_only(session: Session) -> None:
    session.run("y = 1 / (world_size - 2)")
    alone = find("alone")
    answer = inquiry.check(alone, session)
    assert text_of(answer, alone) == "no, with several processes only"
    session.run("1 / 0")
    answer = inquiry.check(alone, session)
    assert text_of(answer, alone) == "yes"
    assert "ZeroDivisionError" in answer.told_by


def test_a_healthy_run_says_nothing_but_that(session: Session) -> None:
    session.run("x = torch.ones(1); dist.all_reduce(x)")
    shows, wrong = find("shows"), find("wrong")
    assert "up to 3 times more, each time on 2 fresh ranks" in inquiry.offer(shows, session)
    told: list[str] = []
    answer = inquiry.check(shows, session, told.append)
    assert answer.choice is None
    assert "3 runs: the cell came to its end" in answer.told_by
    assert len(told) == 3
    assert inquiry.check(wrong, session).told_by == "nothing stood out"
    assert not inquiry.offer(find("alone"), session)


def test_variables_that_only_the_session_has(session: Session) -> None:
    session.push(pushed=2)
    session.run("pushed + 1; dist.all_reduce(torch.ones(1)) if rank == 0 else None")
    shows = find("shows")
    answer = inquiry.check(shows, session)
    assert text_of(answer, shows) == "nothing moves on, or a time limit passes"
    session.pushed.forget()  # as if it had been too large to be kept
    answer = inquiry.check(shows, session)
    assert answer.choice is None
    assert "variables that only the session has" in answer.told_by


def test_a_cell_that_takes_too_long(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    session.run("import time; time.sleep(0.1)")
    monkeypatch.setattr("ddt_notebook.host.single_rank.limit_of", lambda snapshot: 0.05)
    answer = inquiry.check(find("first"), session)
    assert answer.choice is None
    assert "when its time was over" in answer.told_by


def test_the_error_of_the_last_run(session: Session) -> None:
    message = find("message")
    session.run("torch.ones(2, 3) @ torch.ones(2, 3)")
    assert "read the error of the last run: RuntimeError" in inquiry.offer(message, session)
    answer = inquiry.check(message, session)
    assert text_of(answer, message) == "shapes, sizes or types of tensors"


def test_what_stands_out_answers_what_is_wrong(session: Session) -> None:
    session.run(
        "loss = torch.tensor([float(rank + 1)])\n"
        "if rank == 0:\n"
        "    handle = dist.all_reduce(loss, async_op=True)\n"
        "print('loss', loss.item())\n"
    )
    wrong = find("wrong")
    answer = inquiry.check(wrong, session)
    assert text_of(answer, wrong).startswith("a value on the way")
    assert answer.told_by.startswith("D.2.4: ")


def test_after_the_session_was_stopped() -> None:
    with Session(2, hang_after=0.3) as session:
        session.run("1 / 0")
    assert active.get() is None
    shows = find("shows")
    try:
        assert inquiry.last_snapshot(None) is not None
        answer = inquiry.check(shows, None)
        assert text_of(answer, shows) == "an error message or a traceback"
    finally:
        active.keep(None)


def test_ranks_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RankError(type="ValueError", message="x")
    failed = Snapshot(
        cell=Cell(number=1, source="x"),
        outcome="failed",
        ranks=(RankReport(rank=0, state="raised", error=error),),
        world_size=100_000,
    )
    monkeypatch.setattr(inquiry, "last_snapshot", lambda session: failed)
    answer = inquiry.check(find("shows"), None)
    assert answer.choice is None
    assert answer.told_by.startswith("the test run could not begin: ")


# -- in the interview ------------------------------------------------------------------------------


def test_a_check_answers_is_undone_and_is_offered_once() -> None:
    asked = begin(None)
    question = asked.question
    assert question is not None
    assert asked.can_check(question)
    answered = asked.observed(Answer(question.id, 2, "seen"))
    assert answered.question != question
    assert answered.asked == 0
    assert answered.without_last() == asked
    assert answered.restarted() == asked
    untold = asked.observed(Answer(question.id, None, "it works here"))
    assert untold.question == question
    assert not untold.can_check(question)
    assert untold.answered(1).beliefs == asked.answered(1).beliefs
