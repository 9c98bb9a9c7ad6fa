"""Causes of a slow run: a rank that lags, late data, and a busy machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Snapshot
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition
from ddt_notebook.model.performance import RankPerformance
from ddt_notebook.model.stragglers import laggard
from ddt_notebook.model.training import ModelTraining, RankTraining

from .builders import all_reduce, at, call, facts, rank, snapshot

STEPS, STEP_S, LATE_S = 20, 0.01, 0.02


def times(late: float | list[float], steps: int = STEPS) -> list[float]:
    """The times at which a rank that is late by these delays reaches each collective."""
    delays = late if isinstance(late, list) else [late] * steps
    return [STEP_S * n + sum(delays[: n + 1]) for n in range(len(delays))]


def arriving(late: float | list[float], others: int = 1, **fields: Any) -> list[list[Call]]:
    """The calls of the others, who come in time, and of the rank that is late."""
    ends = times(late)
    delays = late if isinstance(late, list) else [late] * STEPS
    early = [end - delay for end, delay in zip(ends, delays, strict=True)]

    def calls(at: list[float]) -> list[Call]:
        return [
            all_reduce(3, entered_s=100 + came, left_s=100 + left, **fields)
            for came, left in zip(at, ends, strict=True)
        ]

    return [calls(early)] * others + [calls(ends)]


def spent(
    cpu: list[float], queued: list[float | None], ran_s: float = 1.0, beside: float = 0.0
) -> dict[str, Any]:
    return {
        "performance": tuple(
            RankPerformance(rank=r, ran_s=ran_s, cpu_s=c, queued_s=q, queued_beside_s=beside)
            for r, (c, q) in enumerate(zip(cpu, queued, strict=True))
        )
    }


def scene(calls: list[list[Call]], **fields: Any) -> Snapshot:
    return snapshot(*(rank(r, *mine) for r, mine in enumerate(calls)), **fields)


def loaders(*waited_s: float, batch: tuple[int, ...] = (8, 8)) -> dict[str, Any]:
    def one(waited: float, samples: int) -> LoaderPartition:
        observed = Epoch(
            number=1, run=1, batches=20, samples=20 * samples, trained=20, waited_s=waited,
            lasted_s=0.6, where=at(2),
        )  # fmt: skip
        return LoaderPartition(name="loader", dataset="Set", epochs=(observed,))

    return {
        "partition": tuple(
            RankPartition(rank=r, run=1, loaders=(one(waited, size),))
            for r, (waited, size) in enumerate(zip(waited_s, batch, strict=True))
        )
    }


SLEEPS = spent([0.1, 0.1], [0.0, 0.0])


class TestLaggard:
    def test_the_laggard_is_the_rank_that_comes_last(self) -> None:
        found = laggard(scene(arriving(LATE_S, others=2)))
        assert found is not None
        assert (found.rank, found.times, found.steps) == (2, STEPS - 1, STEPS)
        # the first step and the longest two are left out
        assert found.held_up_s == pytest.approx((STEPS - 3) * LATE_S)
        assert found.usual_s == pytest.approx(LATE_S)
        assert found.even
        assert found.alone

    def test_buckets_of_one_step_count_as_one_delay(self) -> None:
        def calls(at: float) -> list[Call]:
            return [
                all_reduce(None, entered_s=step + at + n / 1e3, source="flight recorder")
                for step in range(10)
                for n in range(3)
            ]

        found = laggard(scene([calls(0.1), calls(0.2)]))
        assert found is not None
        assert len(found.delays_s) == 9  # without the first step
        assert found.usual_s == pytest.approx(0.102)

    def test_a_rank_that_waits_for_a_message_is_not_the_laggard(self) -> None:
        early, late = arriving(LATE_S)
        received = []
        for one in late:
            begin = (one.entered_s or 0.0) - LATE_S
            received += [call("recv", 2, peer=0, entered_s=begin, left_s=one.entered_s), one]
        found = laggard(scene([early, received]))
        assert found is not None
        assert found.held_up_s == pytest.approx(0.0)

    def test_a_rank_that_left_the_last_collective_late_is_not_the_laggard(self) -> None:
        calls: list[list[Call]] = [[], []]
        for entered in times(LATE_S):
            came = [entered - LATE_S, entered]
            for r in (0, 1):
                left = entered if r == 0 else entered + LATE_S - 1e-3
                calls[r].append(all_reduce(3, entered_s=100 + came[r], left_s=100 + left))
        found = laggard(scene(calls))
        assert found is not None
        assert found.rank == 1
        assert found.usual_s == pytest.approx(0.011)  # it stood there for the other 9 ms

    def test_a_rank_that_is_late_at_a_barrier_is_not_the_laggard(self) -> None:
        entered = times(LATE_S)
        calls = [[call("barrier", entered_s=t + r * LATE_S) for t in entered] for r in range(2)]
        assert laggard(scene(calls)) is None


class TestStragglers:
    def test_a_rank_that_sleeps_is_named(self) -> None:
        (finding,) = diagnose(scene(arriving(LATE_S), **SLEEPS)).findings
        assert (finding.cause, finding.symptom) == ("straggler-compute", "D.2.3")
        assert (finding.ranks, finding.waiting, finding.confidence) == ([1], [0], "likely")
        assert "slept" in facts(finding)
        assert (finding.places[1].cell, finding.places[1].line) == (3, 3)

    def test_a_rank_with_a_line_of_its_own_is_named_with_that_line(self) -> None:
        source = "for i in range(20):\n    if rank == 1:\n        log()\n    dist.all_reduce(x)"
        (finding,) = diagnose(scene(arriving(LATE_S), **SLEEPS, source=source)).findings
        alone = facts(finding)["runs-alone"]
        assert alone.place is not None
        assert (alone.ranks, alone.place.line) == ((1,), 2)

    @pytest.mark.parametrize(
        ("condition", "found"),
        [
            ("rank == world_size - 1", True),
            ("not rank != 1 and rank in (1, 2)", True),
            ("rank == 0", False),
            ("rank == 1 and i > 3", False),
            ("rank", True),
            ("dist.get_rank() == 1", True),
            ("rank // 0", False),
            ("rank ** 99 ** 99 == 1", False),
            ("rank % 2 == 1", True),
        ],
    )
    def test_a_condition_that_only_the_late_rank_meets_is_shown(
        self, condition: str, found: bool
    ) -> None:
        source = f"def step():\n    if {condition}:\n        log()"
        (finding,) = diagnose(scene(arriving(LATE_S), **SLEEPS, source=source)).findings
        assert ("runs-alone" in facts(finding)) == found

    def test_a_rank_that_computes_longer_is_named(self) -> None:
        observed = spent([0.1, 0.45], [0.0, 0.0])
        (finding,) = diagnose(scene(arriving(LATE_S), **observed)).findings
        assert finding.cause == "straggler-compute"
        assert facts(finding)["computed-longer"].values["longer_s"] == pytest.approx(0.35)

    def test_a_rank_whose_data_is_late_is_named(self) -> None:
        observed = loaders(0.01, 0.38)
        (finding,) = diagnose(scene(arriving(LATE_S), **SLEEPS, **observed)).findings
        assert finding.cause == "straggler-data"

    def test_a_rank_with_larger_batches_is_named(self) -> None:
        observed = spent([0.1, 0.4], [0.0, 0.0]) | loaders(0.01, 0.03, batch=(8, 64))
        (finding,) = diagnose(scene(arriving(LATE_S), **observed)).findings
        assert finding.cause == "uneven-batch-sizes"
        larger = facts(finding)["larger-batches"].values
        assert (larger["samples"], larger["others_samples"]) == (64, 8)

    @pytest.mark.parametrize(
        ("late", "observed"),
        [
            (LATE_S, {}),
            (LATE_S, spent([0.1, 0.1], [0.0, 0.35])),
            (LATE_S, spent([0.2, 0.25], [0.0, 0.3])),
            (LATE_S, spent([0.1, 0.1], [None, None])),
            (LATE_S, spent([0.1, 0.1], [0.0, 0.0], beside=0.3)),
            ([0.0] * 9 + [0.5] + [0.0] * 10, SLEEPS),
            ([0.1, *[0.0] * 4] * 4, SLEEPS),
            (0.001, SLEEPS),
            ([0.003, 0.05, 0.004, 0.012] * 5, SLEEPS),
        ],
        ids=[
            *("nothing known", "queued", "queued and slower", "queue not known"),
            *("other threads queued", "once", "each epoch", "short", "unevenly"),
        ],
    )
    def test_late_ranks_without_a_reason_of_their_own_are_not_named(
        self, late: float | list[float], observed: dict[str, Any]
    ) -> None:
        assert not diagnose(scene(arriving(late), **observed)).findings

    def test_delays_of_fewer_than_ten_collectives_are_not_reported(self) -> None:
        assert not diagnose(scene(arriving([LATE_S * 10] * 9), **SLEEPS)).findings


class TestStarving:
    def test_ranks_that_all_wait_for_data_are_found(self) -> None:
        (finding,) = diagnose(scene([[], []], **loaders(0.5, 0.5))).findings
        assert (finding.cause, finding.ranks) == ("dataloader-starves", [0, 1])
        assert finding.values["share"] == pytest.approx(0.833, abs=1e-3)

    @pytest.mark.parametrize("waited_s", [(0.5, 0.1), (0.19, 0.19), (0.35, 0.35)])
    def test_short_waits_for_data_or_waits_of_some_ranks_are_silent(
        self, waited_s: tuple[float, float]
    ) -> None:
        assert not diagnose(scene([[], []], **loaders(*waited_s))).findings


class TestHints:
    @staticmethod
    def hints(scene: Snapshot) -> list[str | None]:
        report = diagnose(scene)
        assert not report.findings
        return [hint.cause for hint in report.hints]

    @staticmethod
    def training(**fields: Any) -> RankTraining:
        return RankTraining(**{"rank": 0, "backwards": 20, "threads": 1, "processors": 2, **fields})

    def trained(self, calls: list[list[Call]], **fields: Any) -> Snapshot:
        each = tuple(replace(self.training(**fields), rank=r) for r in range(2))
        return scene(calls, training=each, **spent([0.1, 0.1], [0.0, 0.0]))

    def test_small_buckets_are_a_hint(self) -> None:
        few = ModelTraining(name="m", members=(0, 1), forwards=9, bucket_cap_mb=0.01, buckets=4)
        assert self.hints(self.trained([[], []], models=(few,))) == []
        many = replace(few, buckets=16)
        assert self.hints(self.trained([[], []], models=(many,))) == ["small-buckets"]
        usual = replace(many, bucket_cap_mb=25.0)
        assert self.hints(self.trained([[], []], models=(usual,))) == []

    def test_oversubscribed_threads_are_a_hint(self) -> None:
        assert self.hints(self.trained([[], []], threads=2)) == ["oversubscribed-threads"]
        assert self.hints(self.trained([[], []], threads=2, processors=4)) == []
        assert self.hints(self.trained([[], []], threads=1, processors=1)) == []

    def test_small_collectives_are_a_hint(self) -> None:
        calls = [all_reduce(3, entered_s=n * 3e-3, left_s=n * 3e-3 + 2e-3) for n in range(200)]
        assert self.hints(self.trained([calls, calls])) == ["small-collectives"]
        assert self.hints(self.trained([calls[:100], calls[:100]])) == []
        large = [replace(one, shapes=((100_000,),)) for one in calls]
        assert self.hints(self.trained([large, large])) == []
