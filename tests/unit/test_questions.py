"""Ranks of a running job answer, or the snapshot says why they do not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

import ddt_notebook as ddt
from ddt_notebook.jobs import questions
from ddt_notebook.jobs.questions import ask_running
from ddt_notebook.model import Cell, Observation, RankReport, Snapshot
from ddt_notebook.model.memory import RankMemory
from ddt_notebook.model.observation import add_observations
from ddt_notebook.model.parity import ParityItem, RankParity
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition
from ddt_notebook.model.running import AskedRunning, Unanswered
from ddt_notebook.wire.messages import AskRunning, Failed, Message, RunningAnswer


@dataclass(eq=False)
class Rank:
    """A rank whose optimizer steps once for each question."""

    rank: int
    steps: int = 10
    per_question: int = 1
    stepping: bool = False
    is_here: bool = True
    gone_s: float | None = None
    silent: bool = False
    silent_s: float = 0.0
    refuses: bool = False
    value: str = "1"
    running: RunningAnswer | Failed | None = None
    read_at: list[int] = field(default_factory=list)
    wanted: int | None = None

    def connect(self) -> bool:
        return True

    def parity(self) -> Observation:
        self.read_at.append(self.steps)
        item = ParityItem(name="model.weight", role="parameter", value=self.value)
        return Observation(rank=self.rank, parity=RankParity(rank=self.rank, items=(item,)))

    def ask(self, message: Message) -> None:
        assert isinstance(message, AskRunning)
        self.running = None
        if self.silent:
            return
        if self.refuses:
            self.running = Failed(error="a monitor does not answer AskRunning")
            return
        observed = None
        if message.at_step is not None:
            if self.steps < message.at_step <= self.steps + self.per_question:
                self.wanted = message.at_step
            elif self.wanted == message.at_step:
                observed = self.parity()
        elif "parity" in message.probes:
            observed = self.parity()
        elif message.probes:
            observed = Observation(rank=self.rank, memory=RankMemory(rank=self.rank))
        answer = RunningAnswer(observed=observed, steps=self.steps, stepping=self.stepping)
        self.steps += self.per_question
        self.running = answer


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit_s in {
        "_LIMIT_S": 0.05,
        "_STEP_LIMIT_S": 0.5,
        "_STEP_EVERY_S": 0.001,
        "_AHEAD_S": 0.004,
    }.items():
        monkeypatch.setattr(questions, name, limit_s)


def asked(*ranks: Rank, stands: bool = False) -> tuple[dict[int, Observation], AskedRunning]:
    return ask_running(ranks, lambda limit_s: None, stands=stands)


def reasons(found: AskedRunning) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {one.what: (one.why, one.ranks) for one in found.unanswered}


def test_running_ranks_are_compared_at_the_same_step() -> None:
    seen, found = asked(Rank(0), Rank(1, steps=11))
    assert found.step is not None
    assert not found.unanswered
    assert [one.parity is not None for one in seen.values()] == [True, True]


def test_ranks_that_do_not_step_are_not_compared() -> None:
    seen, found = asked(Rank(0, per_question=0), Rank(1, per_question=0))
    assert reasons(found) == {"parity": ("no step", (0, 1))}
    assert found.step is None
    assert [one.memory is not None for one in seen.values()] == [True, True]


def test_ranks_of_a_hung_job_are_compared_as_they_stand() -> None:
    ranks = [Rank(0, per_question=0), Rank(1, per_question=0, value="2")]
    seen, found = asked(*ranks, stands=True)
    assert (found.step, found.stood) == (10, True)
    assert [rank.read_at for rank in ranks] == [[10], [10]]
    snapshot = add_observations(Snapshot(cell=Cell(number=1, source="")), seen, {})
    assert [flag.kind for flag in ddt.parity(replace(snapshot, running=found)).flags]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (Rank(1, per_question=0, steps=11), ("apart", (0, 1))),
        (Rank(1, per_question=0, stepping=True), ("in step", (1,))),
    ],
)
def test_ranks_that_wait_at_different_places_are_not_compared(
    second: Rank, why: tuple[str, object]
) -> None:
    seen, found = asked(Rank(0, per_question=0), second, stands=True)
    assert reasons(found) == {"parity": why}
    assert all(one.parity is None for one in seen.values())


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (Rank(1, silent=True), "silent"),
        (Rank(1, silent_s=2.0), "silent"),
        (Rank(1, is_here=False), "elsewhere"),
        (Rank(1, refuses=True), "error"),
    ],
)
def test_a_rank_that_cannot_answer_is_named(second: Rank, why: str) -> None:
    seen, found = asked(Rank(0), second)
    assert set(seen) == {0}
    missing = reasons(found)
    assert {missing[name] for name in ("placement", "memory", "partition")} == {(why, (1,))}


def test_a_rank_that_has_ended_is_not_asked() -> None:
    seen, found = asked(Rank(0, gone_s=1.0))
    assert not seen
    assert not found.unanswered


def test_the_first_ranks_of_a_large_job_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_MOST_RANKS", 2)
    seen, found = asked(*(Rank(number, per_question=0) for number in range(5)), stands=True)
    assert set(seen) == {0, 1}
    assert reasons(found)["memory"] == ("left out", (2, 3, 4))


def running_snapshot(*unanswered: Unanswered) -> Snapshot:
    """Two ranks that were asked at different moments of an epoch."""
    loaders = [
        LoaderPartition(
            name="loader",
            dataset="TensorDataset",
            dataset_size=100,
            sampler="DistributedSampler",
            replicas=2,
            replica=rank,
            indexed=True,
            epochs=(Epoch(number=1, batches=3 + rank, samples=30 + 10 * rank),),
        )
        for rank in (0, 1)
    ]
    return Snapshot(
        cell=Cell(number=1, source="", file="/train.py"),
        outcome="interrupted",
        origin="job",
        ranks=tuple(RankReport(rank=rank, state="running") for rank in (0, 1)),
        world_size=2,
        partition=tuple(RankPartition(rank=x.replica or 0, loaders=(x,)) for x in loaders),
        memory=(
            RankMemory(rank=0, parts={"parameters": 10**3}),
            RankMemory(rank=1, parts={"parameters": 10**3, "gradients": 10**9}),
        ),
        running=AskedRunning(unanswered=unanswered),
    )


def test_differences_of_the_moment_are_not_flagged() -> None:
    snapshot = running_snapshot()
    assert ddt.partition(snapshot).flags == []
    assert ddt.memory(snapshot).flags == []
    ended = replace(snapshot, running=None)
    assert ddt.partition(ended).flags
    assert ddt.memory(ended).flags


def test_observations_of_running_ranks_do_not_change_the_diagnosis() -> None:
    snapshot = running_snapshot()
    nothing = replace(snapshot, partition=(), memory=())
    assert ddt.diagnose(snapshot).findings == ddt.diagnose(nothing).findings
    assert ddt.diagnose(snapshot).hints == ddt.diagnose(nothing).hints


@pytest.mark.parametrize("why", ["silent", "elsewhere", "left out", "error", "no step", "apart"])
def test_a_view_says_why_it_has_no_data(why: str) -> None:
    parity, memory = (
        Unanswered(what=what, ranks=(0, 1), why=why, detail="<b>x</b>")  # type: ignore[arg-type]
        for what in ("parity", "memory")
    )
    snapshot = running_snapshot(parity, memory)
    with pytest.raises(ValueError, match="parity"):
        ddt.parity(snapshot)
    shown = ddt.memory(snapshot)
    assert "<b>x" not in shown.to_html()
    assert len(str(shown)) > len(str(ddt.memory(running_snapshot())))


def test_a_snapshot_of_a_running_job_survives_a_trip_through_json() -> None:
    snapshot = running_snapshot(Unanswered(what="parity", ranks=(0, 1), why="no step"))
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
