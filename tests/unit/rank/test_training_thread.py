"""Which thread of a process of a job is recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ddt_notebook.rank.training_thread import TrainingThread


class Recorded(TrainingThread):
    """Records a thread that has done nothing but form groups."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = lambda left: None
        self.has_begun = self.is_in_call = lambda: False


def on_thread(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def test_it_moves_while_the_recorded_thread_waits() -> None:
    recorded = Recorded()
    found: list[object] = []
    on_thread(lambda: found.append((recorded.moves(), recorded.is_current))).join()
    assert found == [(True, True)]


@pytest.mark.parametrize("begun", [False, True])
def test_it_stays_beside_a_thread_that_is_at_work(begun: bool) -> None:
    recorded, answers = Recorded(), []
    recorded.has_begun = lambda: begun
    over = []

    def ask() -> None:
        answers.append(recorded.moves())
        over.append(True)

    thread = on_thread(ask)
    while not over:  # busy in a line of its own
        pass
    thread.join()
    # now it waits, and ranks that differ in when they were asked must not differ in the answer
    on_thread(lambda: answers.append(recorded.moves())).join()
    assert answers == [False, False]
    assert recorded.is_current


def test_it_moves_from_a_thread_that_has_ended_and_not_from_one_that_trains() -> None:
    recorded = Recorded()
    on_thread(recorded.follow).join()
    recorded.has_begun = lambda: True
    assert recorded.moves()
    answers: list[bool] = []
    on_thread(lambda: answers.append(recorded.moves())).join()
    assert answers == [False]


def test_a_session_records_its_main_thread() -> None:
    recorded = TrainingThread()
    answers: list[bool] = []
    on_thread(lambda: answers.append(recorded.moves())).join()
    assert answers == [False]


def test_the_main_thread_is_recorded_again_unless_a_call_is_open() -> None:
    recorded, release = Recorded(), threading.Event()
    followed = threading.Event()

    def train() -> None:
        recorded.moves()
        followed.set()
        release.wait()

    thread = on_thread(train)
    followed.wait()
    in_call = [True]
    recorded.has_begun, recorded.is_in_call = lambda: True, lambda: in_call[0]
    assert not recorded.moves()
    in_call[0] = False
    assert recorded.moves()
    assert recorded.is_current
    release.set()
    thread.join()


def test_a_training_function_has_a_thread_of_its_own() -> None:
    recorded, ends = Recorded(), []
    recorded.ended = ends.append

    def fail() -> None:
        raise ValueError("bad batch")

    assert recorded.run(lambda: 3) == 3
    with pytest.raises(ValueError, match="bad batch"):
        recorded.run(fail)
    assert ends[0] is None
    assert isinstance(ends[1], ValueError)
