"""How data was divided: faults, and programs that must stay quiet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Cell, RankReport, Report, Snapshot
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition, pack_indices
from ddt_notebook.model.training import ModelTraining, OptimizerTraining, RankTraining
from ddt_notebook.program.orders_of_sets import orders_of_sets
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program

from .builders import CELL, all_reduce, at, call, facts, rank

SOURCE = "loader = make()\nfor batch in loader:\n    step(batch)"
SIZE = 24


def packed(indices: list[int]) -> str:
    bits = sum(1 << index for index in set(indices))
    return pack_indices(bits.to_bytes(SIZE, "little"))


def epoch(indices: list[int], **fields: Any) -> Epoch:
    values = {
        "number": 1,
        "run": 1,
        "batches": 4,
        "samples": len(indices),
        "first": tuple(indices),
        "content": tuple(1000 + index for index in indices),
        "trained": 4,
        "where": at(2),
    }
    return Epoch(**{**values, **fields})


def loader(indices: list[int], *, epochs: tuple[Epoch, ...] = (), **fields: Any) -> LoaderPartition:
    values = {
        "name": "loader",
        "dataset": "TensorDataset",
        "dataset_size": SIZE,
        "universe": SIZE,
        "sampler": "SequentialSampler",
        "batch_size": 4,
        "epochs": epochs or (epoch(indices),),
        "handed_out": packed(indices),
    }
    return LoaderPartition(**{**values, **fields})


def scene(
    *loaders: LoaderPartition,
    source: str = SOURCE,
    optimizers: int = 1,
    steps: int = 4,
    ddp: bool = True,
) -> Snapshot:
    """One loader for each rank, which all train a model in DDP."""
    members = tuple(range(len(loaders)))
    model = ModelTraining(name="model", members=members, forwards=4)
    training = RankTraining(
        rank=0,
        backwards=4,
        models=(model,) if ddp else (),
        optimizers=(OptimizerTraining(name="o", steps=steps),) * optimizers,
    )
    return Snapshot(
        cell=Cell(number=CELL, source=source),
        ranks=tuple(RankReport(rank=r) for r in members),
        groups={"0": members},
        world_size=len(members),
        partition=tuple(
            RankPartition(rank=r, run=1, loaders=(one,)) for r, one in enumerate(loaders)
        ),
        training=tuple(replace(training, rank=r) for r in members),
    )


def causes(report: Report) -> list[tuple[str | None, list[int]]]:
    data = {
        *("no-distributed-sampler", "sampler-for-wrong-rank", "shard-gaps", "shard-overlap"),
        *("sampler-seeded-by-rank", "split-differs"),
        *("iterable-not-sharded", "set-epoch-forgotten", "no-batches-on-a-rank"),
    }
    return [(f.cause, f.ranks) for f in report.findings if f.cause in data]


ALL = list(range(SIZE))
EVEN, ODD = ALL[::2], ALL[1::2]


def sampled(indices: list[int], replica: int, replicas: int = 2, **fields: Any) -> LoaderPartition:
    values = {"sampler": "DistributedSampler", "replica": replica, "replicas": replicas, **fields}
    return loader(indices, **values)


def shuffled(*orders: list[int], **fields: Any) -> LoaderPartition:
    """A loader with one epoch for each order."""
    common = {"sampler_epoch": 0, **fields}
    epochs = tuple(epoch(order, number=n, **common) for n, order in enumerate(orders, 1))
    return sampled(orders[-1], 0, shuffles=True, epochs=epochs)


@pytest.mark.parametrize(("expected", "told"), [(4, True), (5, False), (None, False)])
def test_a_pass_that_took_all_batches_is_whole(expected: int | None, told: bool) -> None:
    """An endless generator around a loader never asks for the end."""
    orders = (ALL, ALL[::-1])
    parts = [
        loader(order, epochs=(epoch(order, complete=False),), expected_batches=expected)
        for order in orders
    ]
    report = diagnose(scene(*parts))
    assert causes(report) == ([("no-distributed-sampler", [0, 1])] if told else [])


class TestSamplersThatDisagree:
    def test_seeds(self) -> None:
        mixed = [sampled(EVEN, 0, shuffles=True, seed=1), sampled(ALL[1::3] * 1, 1, shuffles=True)]
        by_seed = scene(mixed[0], replace(mixed[1], seed=2))
        (finding,) = diagnose(by_seed).findings
        assert (finding.cause, finding.ranks) == ("sampler-seeded-by-rank", [0, 1])
        assert facts(finding)["sampler-seeds"].values == {"seeds": (1, 2)}
        assert finding.places[0].line == 2

    @pytest.mark.parametrize(
        "fields",
        [
            {"shuffles": False, "seed": 2},  # the seed is not used
            {"shuffles": True, "seed": 1},
            {"shuffles": True, "seed": None},  # an unknown sampler
        ],
    )
    def test_seeds_without_effect(self, fields: dict[str, Any]) -> None:
        one = {**fields, "seed": fields["seed"] and 1}
        assert causes(diagnose(scene(sampled(EVEN, 0, **one), sampled(ODD, 1, **fields)))) == []

    @pytest.mark.parametrize(
        ("second", "fields", "named"),
        [
            (ALL[::3], {}, True),
            (ODD, {}, False),  # orders that fit together, whatever the numbers say
            (ALL[::3], {"sampler_epoch": 2}, False),
            (ALL[::3], {"in_cell": 2}, False),  # another pass
            (ALL[::3], {"sampler_epoch": None}, False),  # a sampler without epochs
        ],
    )
    def test_epochs(self, second: list[int], fields: dict[str, Any], named: bool) -> None:
        """Only some ranks called set_epoch, so that each deals out parts of another order."""
        common = {"sampler": "ElasticSampler", "shuffles": True, "seed": 0}
        last = epoch(second, **{"sampler_epoch": 0, "in_cell": 3, **fields})
        parts = [
            sampled(EVEN, 0, epochs=(epoch(EVEN, sampler_epoch=2, in_cell=3),), **common),
            sampled(second, 1, epochs=(last,), **common),
        ]
        source = SOURCE + "\nif rank == 0:\n    sampler.set_epoch(2)"
        report = diagnose(scene(*parts, source=source))
        assert causes(report) == ([("sampler-seeded-by-rank", [0, 1])] if named else [])
        if named:
            (finding,) = report.findings
            known = facts(finding)
            assert known["sampler-epochs"].values == {"epochs": (2, 0)}
            assert known["epoch-set-at"].place.line == 5  # type: ignore[union-attr]
            assert "set_epoch" in finding.fixes[0].advice

    def test_the_line_that_seeded_the_samplers(self) -> None:
        parts = [
            sampled(EVEN, 0, shuffles=True, seed=1, seeded_at=at(1)),
            sampled(ODD, 1, shuffles=True, seed=2, seeded_at=at(1)),
        ]
        (finding,) = diagnose(scene(*parts)).findings
        seeded = facts(finding)["seeded-at"]
        assert seeded.place is not None
        assert (seeded.place.line, seeded.ranks) == (1, (0, 1))
        assert "seeded-at" not in facts(
            diagnose(scene(parts[0], replace(parts[1], seeded_at=None))).findings[0]
        )

    @pytest.mark.parametrize(
        ("held", "named"),
        [
            ((tuple(range(20)), tuple(range(20))), True),  # another order
            ((tuple(range(20)), tuple(range(10, 30))), True),  # another selection
            ((tuple(range(20)), tuple(range(18, 38))), False),  # may be a coincidence
            ((tuple(range(20)), tuple(range(20, 40))), False),  # each rank has its own
        ],
    )
    def test_data_in_another_order(self, held: tuple[tuple[int, ...], ...], named: bool) -> None:
        parts = [
            sampled(part, r, held_order=r, held=mine)
            for r, (part, mine) in enumerate(zip((EVEN, ODD), held, strict=True))
        ]
        report = diagnose(scene(*parts))
        assert causes(report) == ([("split-differs", [0, 1])] if named else [])
        if named:
            assert "sort" in report.findings[0].fixes[0].advice
        alike = [replace(one, held_order=1) for one in parts]
        assert causes(diagnose(scene(*alike))) == []
        drawn = [replace(one, held_repeated=12) for one in parts]  # from a small range
        assert causes(diagnose(scene(*drawn))) == []
        unknown = [replace(parts[0], held_order=None), parts[1]]
        assert causes(diagnose(scene(*unknown))) == []

    def test_data_of_another_size(self) -> None:
        held = (tuple(range(20)), tuple(range(2, 20)))
        parts = [
            sampled(part, r, held_order=r, held=held[r], universe=SIZE - r, dataset_size=SIZE - r)
            for r, part in enumerate((EVEN, ODD))
        ]
        (finding,) = diagnose(scene(*parts)).findings
        assert (finding.cause, finding.ranks) == ("split-differs", [0, 1])
        assert facts(finding)["held-sizes"].values == {"sizes": (24, 23)}
        elsewhere = [parts[0], replace(parts[1], made_at=at(1))]  # another loader of the program
        assert causes(diagnose(scene(*elsewhere))) == []

    @pytest.mark.parametrize(("other", "named"), [(range(10, 30), True), (range(20, 40), False)])
    def test_an_evaluation_of_other_data_on_each_rank(self, other: range, named: bool) -> None:
        held = (tuple(range(20)), tuple(other))
        trained = [sampled(part, r, name="train") for r, part in enumerate((EVEN, ODD))]
        evaluated = [
            sampled(
                part, r, name="test", held_order=r, held=held[r], epochs=(epoch(part, trained=0),)
            )
            for r, part in enumerate((EVEN, ODD))
        ]
        made = scene(*trained)
        both = replace(
            made,
            partition=tuple(
                replace(one, loaders=(*one.loaders, evaluated[one.rank])) for one in made.partition
            ),
        )
        found = [(one.cause, one.values.get("loader")) for one in diagnose(both).findings]
        assert found == ([("split-differs", "test")] if named else [])

    @pytest.mark.parametrize(
        ("second", "fields", "named"),
        [
            ([*range(6), *range(13, 24, 2)], {}, True),  # ranks have another order
            (ODD, {}, False),
            ([0, *ODD[1:]], {"padding": 1}, False),  # evened out
            ([*range(6), *range(13, 24, 2)], {"repeated": 9}, False),  # with replacement
            ([*range(6), *range(13, 24, 2)], {"with_replacement": True}, False),
            ([*range(6), *range(13, 24, 2)], {"replica": 0}, False),  # another fault
        ],
    )
    def test_parts_of_other_orders(
        self, second: list[int], fields: dict[str, Any], named: bool
    ) -> None:
        source = f"{SOURCE}\nclass Own(Sampler):\n    def __iter__(self):\n        ..."
        both = {"sampler": "BatchSamplerShard", "seed": None, "padding": 0}
        parts = [
            replace(sampled(part, r), **both | fields | {"replica": fields.get("replica", r)})
            for r, part in enumerate((EVEN, second))
        ]
        report = diagnose(scene(*parts, source=source))
        found = [one for one in report.findings if one.cause == "sampler-seeded-by-rank"]
        assert len(found) == named, report
        if named:
            place = facts(found[0])["own-order"].place
            assert place is not None
            assert place.line == 5

    def split(self, *digests: int, size: int = 12, evaluated: list[int] | None = None) -> Report:
        place = at(1)
        parts = [
            sampled(part, r, subset=digest, subset_size=size, universe=size, split_at=place)
            for r, (part, digest) in enumerate(zip((EVEN[:6], ODD[:6]), digests, strict=True))
        ]
        made = scene(*parts)
        if evaluated is None:
            return diagnose(made)
        held_back = loader(evaluated, name="test", epochs=(epoch(evaluated, trained=0),))
        return diagnose(
            replace(
                made,
                partition=tuple(
                    replace(p, loaders=(*p.loaders, held_back)) for p in made.partition
                ),
            )
        )

    def test_splits(self) -> None:
        report = self.split(1, 2, evaluated=[0, 2, 23])
        (finding,) = [f for f in report.findings if f.cause == "split-differs"]
        assert (finding.ranks, finding.confidence) == ([0, 1], "certain")
        assert facts(finding)["trained-and-evaluated"].values == {"samples": 2}
        split = facts(finding)["split-at"].place
        assert split is not None
        assert split.line == 1

    def test_equal_splits_and_parts_by_rank(self) -> None:
        assert causes(self.split(1, 1)) == []
        by_hand = [loader(part, subset=at, subset_size=12) for at, part in enumerate((EVEN, ODD))]
        assert causes(diagnose(scene(*by_hand))) == []
        own = [
            sampled(part, 0, 1, subset=at, subset_size=12) for at, part in enumerate((EVEN, ODD))
        ]
        assert "split-differs" not in dict(causes(diagnose(scene(*own))))


class TestWholeDataEverywhere:
    def test_is_found_with_the_line_of_the_loop(self) -> None:
        (finding,) = diagnose(scene(loader(ALL), loader(ALL[::-1]))).findings
        assert (finding.cause, finding.ranks) == ("no-distributed-sampler", [0, 1])
        assert (finding.symptom, finding.confidence) == ("D.2.2", "likely")
        assert finding.kind == "same-samples"
        assert finding.values == {"loader": "loader", "samples": 24}
        place = finding.places[1]
        assert (place.cell, place.line, place.role) == (CELL, 2, "loops")

    @pytest.mark.parametrize(("second", "told"), [(0b11, True), (0b1100, False)])
    def test_is_found_if_all_train_on_the_same_half_of_the_batches(
        self, second: int, told: bool
    ) -> None:
        """A loop may count its steps for divided data, and leave out the batches that follow."""
        parts = [
            loader(ALL, epochs=(epoch(ALL, trained=2, trained_first=bits),), made_at=at(1))
            for bits in (0b11, second)
        ]
        report = diagnose(scene(*parts))
        assert causes(report) == [("no-distributed-sampler", [0, 1])] * told
        if told:
            assert facts(report.findings[0])["undivided-loader"].place.line == 1

    def test_is_not_reported_for_files_of_their_own(self) -> None:
        other = epoch(ALL[:-1], content=())
        own = loader(ALL[:-1], epochs=(other,), dataset_size=SIZE - 1, universe=SIZE - 1)
        assert not causes(diagnose(scene(loader(ALL, epochs=(epoch(ALL, content=()),)), own)))

    def test_of_an_unfinished_loop_is_a_hint(self) -> None:
        parts = [
            loader(order[:20], epochs=(epoch(order[:20], complete=False),))
            for order in (ALL[:22], [*ALL[1:22], 0])
        ]
        report = diagnose(scene(*parts))
        assert not report.findings
        assert [hint.cause for hint in report.hints] == ["no-distributed-sampler"]

    @pytest.mark.parametrize(
        "fields",
        [
            {"epochs": (epoch(ALL, trained=0),)},
            {"epochs": (epoch(ALL, trained=2),)},  # each rank takes every second batch
            {"epochs": (epoch(ALL, run=0),)},
            {"with_replacement": True},
            {"repeated": 3},
        ],
        ids=["evaluation", "round robin", "earlier run", "replacement", "repeated"],
    )
    def test_is_legal(self, fields: dict[str, Any]) -> None:
        assert not causes(diagnose(scene(*(loader(ALL, **fields) for _ in range(2)))))

    @pytest.mark.parametrize(
        "part",
        [
            "batch[rank::world_size]",
            "batch.chunk(world_size)[rank]",
            "batch.narrow(0, first, size)",
            "batch[first : first + size]",
            "[x[dist.get_rank() * 4 :] for x in batch]",
        ],
    )
    def test_is_legal_where_each_rank_takes_its_part_of_a_batch(self, part: str) -> None:
        source = f"first = rank * size\nfor batch in loader:\n    mine = {part}\n    step(mine)"
        assert not causes(diagnose(scene(loader(ALL), loader(ALL), source=source)))

    def test_is_decided_by_what_the_model_was_given(self) -> None:
        def found(*given: tuple[int, ...]) -> list[tuple[str | None, list[int]]]:
            one_run = scene(loader(ALL), loader(ALL), source="for x in loader: step(x[rank:])")
            trainings = [
                replace(one, models=(replace(one.models[0], first_inputs=inputs),))
                for one, inputs in zip(one_run.training, given, strict=True)
            ]
            return causes(diagnose(replace(one_run, training=tuple(trainings))))

        assert found((1, 2, 3), (1, 2, 3)) == [("no-distributed-sampler", [0, 1])]
        assert found((1, 2, 3), (4, 5, 6)) == []

    def test_is_legal_where_the_model_is_not_shared(self) -> None:
        assert not causes(diagnose(scene(loader(ALL), loader(ALL), ddp=False)))

    def test_is_legal_where_the_same_index_is_other_data(self) -> None:
        other = epoch(ALL, content=tuple(range(SIZE)))
        assert not causes(diagnose(scene(loader(ALL), loader(ALL, epochs=(other,)))))


class TestSamplers:
    def test_that_take_all_ranks_for_one(self) -> None:
        found = causes(diagnose(scene(*(sampled(EVEN, 0) for _ in range(2)))))
        assert found == [("sampler-for-wrong-rank", [1])]

    def test_that_divide_for_more_ranks_than_there_are(self) -> None:
        parts = [sampled(ALL[r::4], r, 4) for r in range(2)]
        assert causes(diagnose(scene(*parts))) == [("sampler-for-wrong-rank", [0, 1])]

    def test_one_part_for_each_tensor_parallel_group(self) -> None:
        """A mesh by hand: ranks 0 and 1 divide the model, and so do ranks 2 and 3."""
        half = list(range(12)), list(range(12, 24))
        run = scene(*(sampled(half[r // 2], r // 2) for r in range(4)))
        assert [cause for cause, _ in causes(diagnose(run))] == ["sampler-for-wrong-rank"]
        groups = ((0, 1), (0, 1), (2, 3), (2, 3))
        ranks = tuple(
            rank(r, all_reduce(1, group=str(1 + r // 2), members=groups[r])) for r in range(4)
        )
        assert not causes(diagnose(replace(run, ranks=ranks)))

    @pytest.mark.parametrize(("shape", "team"), [((1,), False), ((), False), ((8,), True)])
    def test_ranks_that_sum_the_norm_of_their_parts_are_no_replicas(
        self, shape: tuple[int, ...], team: bool
    ) -> None:
        """Tensor parallelism sums the squares of the gradients over the parts of the model."""
        source = f"{SOURCE}\nnorm = sum(p.grad.pow(2).sum() for p in parts)\nall_reduce(norm)"
        run = scene(*(loader(list(range(SIZE))) for _ in range(2)), source=source, ddp=False)
        calls = all_reduce(5, members=(0, 1), shapes=(shape,))
        run = replace(run, ranks=tuple(rank(r, calls) for r in (0, 1)))
        assert bool(causes(diagnose(run))) is team

    def test_that_fit_are_silent(self) -> None:
        assert not causes(diagnose(scene(sampled(EVEN, 0), sampled(ODD, 1))))


class TestShards:
    def test_that_overlap(self) -> None:
        parts = [loader(part, made_at=at(1)) for part in (ALL[:10], ALL[8:16], ALL[16:])]
        report = diagnose(scene(*parts))
        assert causes(report) == [("shard-overlap", [0, 1])]
        made = facts(report.findings[0])["loader-made"].place
        assert made is not None
        assert made.line == 1

    @staticmethod
    def left_early(indices: list[int], batches: int, **fields: Any) -> LoaderPartition:
        epochs = fields.pop("epochs", (epoch(indices, complete=False),))
        return loader(indices, epochs=epochs, expected_batches=batches, **fields)

    def test_that_overlap_are_found_in_an_unfinished_loop(self) -> None:
        parts = [self.left_early([9, 2, 3, 4, 5, 6, 7, 8], 3), self.left_early(ALL[6:16], 3)]
        assert causes(diagnose(scene(*parts))) == [("shard-overlap", [0, 1])]

    def test_that_hardly_overlap_may_be_evened_out(self) -> None:
        parts = [self.left_early(ALL[:11], 3), self.left_early(ALL[10:20], 3)]
        assert not causes(diagnose(scene(*parts)))

    @pytest.mark.parametrize(
        "parts",
        [
            ([5, 11, 2, 20, 14, 8, 3, 17], [3, 8, 1, 19, 22, 10, 14, 5]),
            (ALL[:14], ALL[6:20]),
        ],
        ids=["reach further than they are long", "all share one part"],
    )
    def test_of_an_unfinished_loop_need_not_be_ranges(self, parts: tuple[list[int], ...]) -> None:
        batches = 5 if len(parts[0]) > 8 else 3
        assert not causes(diagnose(scene(*(self.left_early(part, batches) for part in parts))))

    def test_that_move_from_epoch_to_epoch_are_drawn(self) -> None:
        epochs = (epoch(ALL[20:]), epoch(ALL[:10], number=2, complete=False))
        parts = [self.left_early(ALL[:10], 3, epochs=epochs), self.left_early(ALL[4:14], 3)]
        assert not causes(diagnose(scene(*parts)))

    def test_that_are_evened_out_by_hand_are_legal(self) -> None:
        indices = [*ALL[:23], 0]
        parts = [loader(indices[r::2], dataset_size=23, universe=23) for r in range(2)]
        assert not causes(diagnose(scene(*parts)))

    def test_that_a_sampler_evens_out_by_batches_are_legal(self) -> None:
        parts = [
            loader(indices, sampler="BatchSamplerShard", epochs=(epoch(indices, batches=3),))
            for indices in (ALL[:12], [*ALL[12:20], *ALL[:4]])
        ]
        parts = [replace(part, dataset_size=20, universe=20) for part in parts]
        assert not causes(diagnose(scene(*parts)))

    def test_that_leave_samples_between_them(self) -> None:
        found = causes(diagnose(scene(loader(ALL[:10]), loader(ALL[12:]))))
        assert found == [("shard-gaps", [0, 1])]

    def test_that_lose_the_remainder(self) -> None:
        parts = [loader(ALL[r * 7 : (r + 1) * 7]) for r in range(3)]
        odd = diagnose(scene(*(replace(part, dataset_size=22, universe=22) for part in parts)))
        assert causes(odd) == [("shard-gaps", [0, 1, 2])]

    def test_of_what_was_split_off_are_legal(self) -> None:
        report = diagnose(scene(loader(ALL[0:16:2]), loader(ALL[1:16:2])))
        assert not causes(report)
        assert [hint.cause for hint in report.hints] == ["shard-gaps"]

    def test_of_a_random_part_are_legal(self) -> None:
        kept = [0, 1, 3, 4, 7, 8, 11, 13, 14, 17, 20, 23]
        report = diagnose(scene(loader(kept[::2]), loader(kept[1::2])))
        assert not causes(report)
        assert not report.hints

    def test_with_drop_last_are_legal(self) -> None:
        parts = [loader(ALL[r * 8 : r * 8 + 7], drop_last=True) for r in range(3)]
        assert not causes(diagnose(scene(*parts)))


@pytest.mark.parametrize(
    ("size", "line", "told"), [(SIZE - 4, 2, True), (SIZE, 2, False), (SIZE - 4, 3, False)]
)
def test_divided_data_sets_of_other_sizes(size: int, line: int, told: bool) -> None:
    """Loaders of two lines need not be one loader."""
    fewer = sampled(
        ODD[:10],
        1,
        dataset_size=size,
        universe=size,
        made_at=at(1),
        epochs=(epoch(ODD[:10], where=at(line)),),
    )
    report = diagnose(scene(sampled(EVEN, 0, made_at=at(1)), fewer))
    kinds = [finding.kind for finding in report.findings]
    assert ("data-sizes-differ" in kinds) is told


@pytest.mark.parametrize(("value", "pattern", "told"), [(3, 9, True), (2, 9, False), (3, 8, False)])
def test_the_same_samples_with_other_labels(value: int, pattern: int, told: bool) -> None:
    """Values that are equal at other places may be noise, or belong to other samples."""
    source = f"{SOURCE}\nlabels = set(names)\nnumbers = list(labels)\n"
    mine = sampled(EVEN, 0, held_values={"labels": 2}, held_patterns={"labels": 9})
    theirs = sampled(ODD, 1, held_values={"labels": value}, held_patterns={"labels": pattern})
    report = diagnose(scene(mine, theirs, source=source))
    assert causes(report) == ([("split-differs", [0, 1])] if told else [])
    if told:
        place = facts(report.findings[0])["order-of-set"].place
        assert place is not None
        assert place.line == 5


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("kinds = set(names)\nnumbers = sorted(kinds)", []),
        ("kinds = {}\nnumbers = list(kinds)", []),
        ("kinds = set()\nkinds = kinds | set(row)\nnumbers = dict(enumerate(kinds))", [3]),
        ("numbers = [k for k in {'a', 'b'}]", [1]),
        ("kinds = set(names)\nkinds = sorted(kinds)\nnumbers = list(kinds)", []),
    ],
)
def test_lines_that_take_the_order_of_a_set(source: str, lines: list[int]) -> None:
    program = Program([Document("train.py", source)], 2)
    assert [place.line for place in orders_of_sets(program)] == lines


class TestStreams:
    @staticmethod
    def stream(*content: int, **fields: Any) -> LoaderPartition:
        one_epoch = epoch([], content=content, samples=16, **fields)
        return loader([], indexed=False, epochs=(one_epoch,), dataset_size=None, universe=None)

    def test_that_are_equal(self) -> None:
        equal = self.stream(*range(16))
        assert causes(diagnose(scene(equal, equal))) == [("iterable-not-sharded", [0, 1])]

    def test_that_differ_are_silent(self) -> None:
        assert not causes(diagnose(scene(self.stream(*range(16)), self.stream(*range(16, 32)))))

    @pytest.mark.parametrize(
        ("reads", "contents", "told"),
        [
            ("return order[self.rank :: self.world]", ((0, 1, 2, 3), (4, 5, 2, 3)), True),
            ("return order[self.rank :: self.world]", ((0, 1, 2, 3), (4, 5, 6, 7)), False),
            # the first shard fills the last rank's share up
            ("return order[self.rank :: self.world]", ((0, 1, 2, 3), (4, 5, 6, 0)), False),
            # no share is chosen by the rank: each draws its own
            ("return draw(order)", ((0, 1, 2, 3), (4, 5, 2, 3)), False),
            # the stream begins again
            ("while True: yield order[self.rank]", ((0, 1, 2, 3), (4, 5, 2, 3)), False),
            ("return cycle(order[self.rank :: self.world])", ((0, 1, 2, 3), (4, 5, 2, 3)), False),
            ("order += order[: self.rank]", ((0, 1, 2, 3), (4, 5, 2, 3)), False),
        ],
    )
    def test_whose_shares_overlap(
        self, reads: str, contents: tuple[tuple[int, ...], ...], told: bool
    ) -> None:
        source = f"{SOURCE}\nclass Shards:\n    def __iter__(self):\n        {reads}"
        shards = (range(4 * at, 4 * at + 4) for part in contents for at in part)
        rows = [sample for shard in shards for sample in shard]
        parts = (self.stream(*rows[:16]), self.stream(*rows[16:]))
        streams = [replace(one, dataset="Shards") for one in parts]
        found = causes(diagnose(scene(*streams, source=source)))
        assert found == ([("shard-overlap", [0, 1])] if told else [])

    def test_of_constant_samples_show_nothing(self) -> None:
        zeros = self.stream(*[0] * 16)
        assert not causes(diagnose(scene(zeros, zeros)))

    @pytest.mark.parametrize(
        ("workers", "heads", "found"),
        [
            (2, (1, 1, 5, 5), True),
            (3, (1, 1, 1, 5, 5, 5), True),
            (2, (1, 2, 5, 6), False),
            (2, (1, 1), False),
            (2, (0, 0, 0, 0), False),
            (0, (1, 1, 5, 5), False),
        ],
    )
    def test_that_each_worker_repeats(
        self, workers: int, heads: tuple[int, ...], found: bool
    ) -> None:
        parts = [
            replace(self.stream(*range(r, r + 16), heads=heads), workers=workers) for r in (0, 99)
        ]
        causes = [f.cause for f in diagnose(scene(*parts)).findings]
        assert ("workers-repeat-stream" in causes) == found


class TestOrder:
    def test_that_never_changes(self) -> None:
        (finding,) = diagnose(scene(shuffled(EVEN, EVEN), shuffled(ODD, ODD))).findings[-1:]
        assert finding.cause == "set-epoch-forgotten"
        assert finding.confidence == "likely"
        assert facts(finding)["sampler-epoch"].values["epochs"] == (0,)

    def test_that_changes_is_silent(self) -> None:
        parts = [shuffled(part, part[::-1]) for part in (EVEN, ODD)]
        assert "set-epoch-forgotten" not in dict(causes(diagnose(scene(*parts))))

    def test_of_several_trainings_is_a_hint(self) -> None:
        report = diagnose(scene(shuffled(EVEN, EVEN), shuffled(ODD, ODD), optimizers=2))
        assert "set-epoch-forgotten" not in dict(causes(report))
        assert "set-epoch-forgotten" in [hint.cause for hint in report.hints]

    def test_in_which_two_optimizers_take_part_as_in_a_gan(self) -> None:
        for steps, confidence in ((8, "likely"), (4, "possible")):
            snapshot = scene(shuffled(EVEN, EVEN), shuffled(ODD, ODD), optimizers=2, steps=steps)
            report = diagnose(snapshot)
            every = [*report.findings, *report.hints]
            (found,) = [one for one in every if one.cause == "set-epoch-forgotten"]
            assert found.confidence == confidence
        other = replace(shuffled(EVEN, EVEN), name="other", shuffles=False)
        parts = tuple(replace(one, loaders=(*one.loaders, other)) for one in snapshot.partition)
        snapshot = replace(
            scene(shuffled(EVEN, EVEN), shuffled(ODD, ODD), optimizers=2, steps=8), partition=parts
        )
        assert "set-epoch-forgotten" in [hint.cause for hint in diagnose(snapshot).hints]

    def test_of_a_librarys_own_sampler_is_a_hint(self) -> None:
        made = "deepspeed/runtime/dataloader.py"
        parts = [replace(shuffled(part, part), sampled_in=made) for part in (EVEN, ODD)]
        report = diagnose(scene(*parts))
        assert "set-epoch-forgotten" not in dict(causes(report))
        assert "set-epoch-forgotten" in [hint.cause for hint in report.hints]

    def test_of_an_evaluation_is_silent(self) -> None:
        parts = [shuffled(part, part, trained=0) for part in (EVEN, ODD)]
        assert not causes(diagnose(scene(*parts)))

    def test_across_cells_needs_a_sampler_whose_epoch_was_never_set(self) -> None:
        def parts(called: bool) -> list[LoaderPartition]:
            return [
                replace(
                    shuffled(part),
                    epochs=(
                        epoch(part, run=0, sampler_epoch=0, epoch_set=called),
                        epoch(part, number=2, sampler_epoch=0, epoch_set=called),
                    ),
                )
                for part in (EVEN, ODD)
            ]

        assert "set-epoch-forgotten" in dict(causes(diagnose(scene(*parts(called=False)))))
        assert "set-epoch-forgotten" not in dict(causes(diagnose(scene(*parts(called=True)))))


def test_a_loader_without_a_whole_batch_is_found() -> None:
    nothing = epoch([], batches=0, samples=0, trained=0)
    parts = [sampled([], r, drop_last=True, epochs=(nothing,)) for r in range(2)]
    found = causes(diagnose(scene(*parts, ddp=False)))
    assert found == [("no-batches-on-a-rank", [0, 1])]


def test_the_gradients_of_a_loop_by_hand_make_a_team() -> None:
    one_run = scene(
        loader(ALL), loader(ALL), source="loader = 1\ndist.all_reduce(p.grad)", ddp=False
    )
    ranks = tuple(rank(r, all_reduce(members=(0, 1)), all_reduce(members=(0, 1))) for r in (0, 1))
    assert causes(diagnose(replace(one_run, ranks=ranks))) == [("no-distributed-sampler", [0, 1])]


def test_the_ranks_between_which_fsdp_scatters_gradients_make_a_team() -> None:
    """Also if the model was a variable of a function, which is gone."""

    def found(
        *groups: tuple[int, ...], also: tuple[Call, ...] = ()
    ) -> list[tuple[str | None, list[int]]]:
        parts = [sampled(ALL[::2], 0), sampled(ALL[::2], 0)]
        made = [call("reduce_scatter_single", members=ranks, caller="FSDP") for ranks in groups]
        made += also
        ranks = tuple(rank(r, *made) for r in (0, 1))
        return causes(diagnose(replace(scene(*parts, ddp=False), ranks=ranks)))

    assert found((0, 1)) == [("sampler-for-wrong-rank", [1])]
    assert not found()
    assert not found((0,), (1,)), "each rank keeps its own"
    exchanged = call("all_to_all_single", members=(0, 1))
    assert not found((0, 1), also=(exchanged,)), "they may compute parts of a sequence"
