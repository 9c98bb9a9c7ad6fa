"""Placement, partition and parity drawn from snapshots, without a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Cell, RankReport, Snapshot
from ddt_notebook.model.agreements import RankAgreements
from ddt_notebook.model.parity import ParityItem, RankParity, ValueDifference
from ddt_notebook.model.partition import (
    Epoch,
    LoaderPartition,
    ModelShard,
    RankPartition,
    of_all_stages,
    pack_indices,
)
from ddt_notebook.model.placement import (
    Accelerator,
    PlacedObject,
    RankPlacement,
    TensorPlacement,
)
from ddt_notebook.views import registry
from ddt_notebook.views.displayable import Displayable

HOSTILE = ("<script>alert(1)</script>", "x" * 10_000, "🦄\u202egpj.exe\x1b[31m\x00", "a\nb|c`d", "")
VIEWS: tuple[Callable[..., Displayable], ...] = (ddt.placement, ddt.partition, ddt.parity)


def tensor(name: str, device: str = "cpu", **changes: object) -> TensorPlacement:
    given: dict[str, object] = {
        "role": "parameter",
        "dtype": "float32",
        "shape": (10, 10),
        "bytes": 400,
    }
    return TensorPlacement(name=name, device=device, **(given | changes))  # type: ignore[arg-type]


def model(*tensors: TensorPlacement, **changes: object) -> PlacedObject:
    given: dict[str, object] = {"name": "model", "type": "Net", "wrapper": "DDP", "trained": True}
    size = sum(t.bytes for t in tensors)
    return PlacedObject(kind="module", tensors=tensors, bytes=size, **(given | changes))  # type: ignore[arg-type]


def indices(*numbers: int) -> str:
    bits = sum(1 << number for number in numbers)
    return pack_indices(bits.to_bytes(max(numbers) // 8 + 1, "little"))


def loader(*numbers: int, batches: int = 5, **changes: object) -> LoaderPartition:
    epoch = Epoch(number=1, batches=batches, samples=len(numbers), first=numbers[:8])
    given: dict[str, object] = {
        "name": "loader",
        "dataset": "Data",
        "dataset_size": 128,
        "epochs": (epoch,),
        "sampler": "DistributedSampler",
        "handed_out": indices(*numbers),
    }
    return LoaderPartition(**(given | changes))  # type: ignore[arg-type]


def snapshot(world_size: int, name: str = "model", tensors: int = 12) -> Snapshot:
    """Ranks that differ in something of each kind."""
    placement, partition, parity = [], [], []
    for rank in range(world_size):
        names = [f"{name}{at // 2}.weight{at % 2}" for at in range(tensors)]
        module = model(*(tensor(n, f"cuda:{rank % 8}") for n in names), name=name, type=name)
        state = tensor(f"{name}.step", role="state", dtype=name, placements=name, mesh=name)
        placement.append(
            RankPlacement(
                rank=rank,
                objects=(
                    module,
                    PlacedObject(name=f"{name}o", kind="optimizer", type=name, tensors=(state,)),
                    PlacedObject(name=f"{name}t", kind="tensor", type="", tensors=(tensor(""),)),
                ),
                accelerators=(Accelerator(device="cuda:0", identity=str(rank % 3), name=name),),
            )
        )
        mine = [n % 128 for n in range(2 * rank, 2 * rank + 3)]
        shard = ModelShard(
            name=name,
            wrapper="FSDP2",
            parameters=100,
            local_parameters=rank,
            local_bytes=4 * rank,
            placements=(name,),
            mesh=name,
        )
        partition.append(
            RankPartition(
                rank=rank,
                loaders=(loader(*mine, name=name, batches=rank, dataset=name, sampler=name),),
                shards=(shard,),
            )
        )
        difference = ValueDifference(
            name=names[0],
            reference=0,
            first=(3, 4),
            here="1",
            there=name,
            largest=0.5,
            count=7,
            elements=100,
        )
        items = [
            ParityItem(name=n, role="parameter", value=f"{rank // 60:016x}", kind="float32 10×10")
            for n in names
        ]
        items.append(ParityItem(name=f"{name}.lr[0]", role="setting", value=f"{name}{rank % 3}"))
        parity.append(
            RankParity(rank=rank, items=tuple(items), differences=(difference,) if rank else ())
        )
    return Snapshot(
        cell=Cell(number=3, source="pass"),
        world_size=world_size,
        created="2026-11-20T20:01:08+00:00",
        placement=tuple(placement),
        partition=tuple(partition),
        parity=tuple(parity),
    )


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("world_size", [1, 2, 64])
@pytest.mark.parametrize("name", ["model", *HOSTILE])
def test_views_are_drawn_for_any_names_and_numbers_of_ranks(
    view: Callable[..., Displayable], world_size: int, name: str
) -> None:
    seen = snapshot(world_size, name)
    shown = view(seen)
    text, html = shown.to_text(), shown.to_html()
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 120
    assert len(html) < 400_000
    assert "<script" not in html
    assert not set("\x00\x1b\u202e").intersection(text + html)
    assert html == view(Snapshot.from_json(seen.to_json())).to_html()
    assert "after cell[3]" in text
    assert "2026-11-20 20:01:08" in text
    assert len(shown.to_frame())  # type: ignore[attr-defined]


@pytest.mark.parametrize("view", VIEWS)
def test_ranks_without_objects_are_drawn(view: Callable[..., Displayable]) -> None:
    cell = Cell(number=1, source="")
    nothing = Snapshot(cell=cell, world_size=2)
    empty = replace(
        nothing,
        placement=tuple(RankPlacement(rank=rank) for rank in range(2)),
        partition=tuple(RankPartition(rank=rank) for rank in range(2)),
        parity=tuple(RankParity(rank=rank) for rank in range(2)),
    )
    for seen in (nothing, empty):
        shown = view(seen)
        assert len(shown.to_text().splitlines()) == 2
        assert " ok · " in shown.to_text()
        assert len(shown.to_frame()) == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("view", VIEWS)
def test_large_models_on_many_ranks_are_drawn_small(view: Callable[..., Displayable]) -> None:
    seen = snapshot(64, tensors=1000)
    shown = view(seen)
    html, text = shown.to_html(), shown.to_text()
    assert len(html) < 400_000
    assert len(text) < 10_000


def test_ranks_that_differ_only_in_their_gpu_share_a_row() -> None:
    ranks = tuple(
        RankPlacement(
            rank=rank,
            objects=(model(tensor("fc.weight", f"cuda:{rank}")),),
            accelerators=(Accelerator(device=f"cuda:{rank}", identity=str(rank)),),
        )
        for rank in range(4)
    )
    shown = ddt.placement(Snapshot(cell=Cell(number=1, source=""), placement=ranks))
    assert not shown.flags
    assert (
        "model · Net in DDP · ranks 0-3 · cuda:0, cuda:1, cuda:2, cuda:3 · 400 B each"
        in " ".join(str(shown).split())
    )


def placed(
    *objects: PlacedObject, ranks: int = 2, accelerators: int = 0, hosts: Sequence[str] = ()
) -> list[str]:
    gpus = tuple(Accelerator(device=f"cuda:{at}", identity=str(at)) for at in range(accelerators))
    seen = tuple(
        RankPlacement(rank=rank, objects=objects, accelerators=gpus) for rank in range(ranks)
    )
    reports = tuple(RankReport(rank=rank, host=host) for rank, host in enumerate(hosts))
    view = ddt.placement(Snapshot(cell=Cell(number=1, source=""), ranks=reports, placement=seen))
    return [f"{flag.kind}: {flag.text}" for flag in view.flags]


def test_flags_of_placement() -> None:
    split = model(tensor("fc.weight", "cuda:0"), tensor("fc.bias", "cpu"))
    assert placed(split) == [
        "error: model.fc has its tensors on different devices: weight on cuda:0, bias on cpu"
    ]
    left = model(tensor("a.weight", "cuda:0"), tensor("b.weight", "cpu"))
    assert placed(left) == ["error: model is on cuda:0, but b.weight stayed on cpu"]
    whole = model(tensor("a.weight", "cuda:0"))
    shared, idle = placed(whole, ranks=2, accelerators=2)
    assert shared.startswith(
        "warning: ranks 0 and 1 share one GPU (cuda:0): give each rank its own"
    )
    assert idle == "hint: cuda:1 is there, but no rank uses it"
    assert placed(whole, ranks=2, accelerators=2, hosts=("a", "b")) == [
        "hint: cuda:1 on a, cuda:1 on b are there, but no rank uses them"
    ]
    alone = model(tensor("a.weight"), wrapper="", stepped_alone=True)
    (text,) = placed(alone)
    assert text.startswith("warning: model is trained but not wrapped in DDP or FSDP: each rank")
    assert not placed(alone, ranks=1)
    assert not placed(replace(alone, stepped_alone=False))
    assert not placed(replace(alone, wrapper="FSDP2"))


def divided(*loaders: LoaderPartition) -> list[str]:
    seen = tuple(RankPartition(rank=rank, loaders=(x,)) for rank, x in enumerate(loaders))
    cell = Cell(number=1, source="")
    view = ddt.partition(Snapshot(cell=cell, partition=seen, world_size=len(loaders)))
    return [f"{flag.kind}: {flag.text}" for flag in view.flags]


def test_flags_of_partition() -> None:
    assert not divided(loader(*range(64)), loader(*range(64, 128)))
    (text,) = divided(loader(*range(64)), loader(*range(60, 128)))
    assert text.startswith("warning: 4 samples of loader went to more than one rank (index 60, 61")
    assert text.endswith("give the loader a DistributedSampler")
    short = loader(*range(64, 120), drop_last=True)
    (text,) = divided(loader(*range(64)), short)
    assert text.startswith("hint: 8 samples of loader went to no rank (index 120, 121, 122")
    assert text.endswith("127, …): drop_last leaves them out")
    uneven = divided(loader(*range(64)), loader(*range(64, 128), batches=1))
    assert [text.partition(":")[2].partition(":")[0] for text in uneven] == [
        " loader gave rank 1 1 batch and rank 0 5"
    ]
    # each client of federated learning has its own number; nobody waited in the loop
    assert uneven[0].startswith("hint:")
    whole = loader(*range(64), dataset_size=64)
    assert divided(whole, whole)[0].startswith(
        "warning: ranks 0 and 1 each got the same 64 samples"
    )
    whole = replace(whole, epochs=tuple(replace(one, trained=5) for one in whole.epochs))
    (text,) = divided(whole, whole)
    assert text.startswith("hint: ranks 0 and 1 each got the same 64 samples of loader, and")
    again = replace(loader(*range(64), dataset_size=64, sampler="RepeatAugSampler"), repeated=3)
    assert divided(again, again)[0].endswith("RepeatAugSampler gives them so")
    some = loader(*range(30), dataset_size=64, sampler="RepeatAugSampler")
    assert divided(some, some)[-1].startswith("hint: ranks 0 and 1 each got the same 30 samples")
    every = loader(*range(64), dataset_size=64, sampler="RepeatAugSampler")
    assert divided(every, every)[0].startswith("warning: ranks 0 and 1 each got the same 64")
    own = {"replicas": 2, "dataset_size": 128, "sampler": "RepeatAugSampler"}
    texts = divided(loader(*range(64), replica=0, **own), loader(*range(60, 120), replica=1, **own))
    assert [text.partition("): ")[2] for text in texts if "): " in text] == [
        "RepeatAugSampler gives them so",
        "RepeatAugSampler leaves them out",
    ], texts
    settings = {"replicas": 4, "dataset_size": 128}
    both = loader(*range(64), replica=0, **settings), loader(*range(64), replica=0, **settings)
    assert divided(*both)[-1].startswith(
        "warning: the samplers of loader on ranks 0 and 1 all use rank 0 of 4"
    )
    settings = {"replicas": 2, "dataset_size": 128}
    halves = [
        loader(*range(64 * part, 64 * part + 64), replica=part, **settings) for part in (0, 1)
    ]
    (text,) = divided(*halves, *halves)
    assert text.startswith("hint: 128 samples of loader went to more than one rank")


def test_padding_is_not_an_overlap() -> None:
    settings = {"dataset_size": 5, "replicas": 2}
    assert not divided(
        loader(0, 2, 4, replica=0, **settings), loader(1, 3, 0, replica=1, **settings)
    )


def test_padding_of_whole_batches_is_not_an_overlap() -> None:
    def settings(rank: int, padding: int) -> dict[str, object]:
        return {"dataset_size": 13, "replicas": 2, "replica": rank, "padding": padding}

    def texts(padding: int) -> list[str]:
        mine = (*range(4), 8, 9, 10, 11), (*range(4, 8), 12, 0, 1, 2)
        return divided(*(loader(*one, **settings(rank, padding)) for rank, one in enumerate(mine)))

    assert not texts(3)
    (text,) = texts(2)
    assert text.startswith("warning: 3 samples of loader went to more than one rank (index 0, 1, 2")
    assert "DistributedSampler" not in text


def test_gaps_of_a_subset_have_no_known_indices() -> None:
    settings = {"replicas": 2, "dataset_size": 8, "universe": 6, "subset_size": 6}
    found = divided(
        loader(0, 1, replica=0, subset=1, **settings), loader(0, 5, replica=1, subset=2, **settings)
    )
    gaps = [text for text in found if "went to no rank" in text]
    assert len(gaps) == 1
    assert "index" not in gaps[0]


def test_parts_of_different_orders_overlap_and_leave_gaps() -> None:
    settings = {"replicas": 2, "dataset_size": 8, "shuffles": True}
    overlap, gap = divided(
        loader(0, 1, 2, 3, replica=0, **settings), loader(2, 3, 4, 5, replica=1, **settings)
    )
    assert gap == "warning: 2 samples of loader went to no rank (index 6, 7)"
    assert overlap.startswith("warning: 2 samples of loader went to more than one rank")
    assert "the same seed" in overlap


def _orders(*passes: Epoch, trains: bool = False) -> list[str]:
    """What is flagged of a loader that shuffles, beside one that trains."""
    shown = loader(*range(8), shuffles=True, epochs=passes, dataset_size=8, name="shown")
    trained = loader(*range(8), dataset_size=8, epochs=(replace(passes[-1], trained=2),))
    seen = RankPartition(rank=0, loaders=(shown, trained) if trains else (shown,))
    view = ddt.partition(Snapshot(cell=Cell(number=1, source=""), partition=(seen,), world_size=1))
    return [flag.text for flag in view.flags]


def test_only_the_order_of_training_epochs_has_to_change() -> None:
    order = Epoch(number=1, batches=2, samples=8, first=tuple(range(8)))
    training = replace(order, trained=2)
    assert _orders(training, training)
    assert _orders(replace(training, complete=False), training), "left early, but trained"
    assert _orders(order, order), "nothing trained: the loop may only inspect the order"
    assert not _orders(order, order, trains=True), "an evaluation beside the training"
    peeked = replace(order, batches=1, samples=4, first=tuple(range(4)), complete=False)
    assert not _orders(peeked, training)


def _passes(*batches: int, broken_off: bool = False, joined: bool = False) -> LoaderPartition:
    """A loader with these batches in each epoch, the last of which may have been broken off."""
    epochs = tuple(
        Epoch(number=at, in_cell=at, batches=n, samples=n, joined=joined)
        for at, n in enumerate(batches, 1)
    )
    if broken_off:
        epochs = (*epochs[:-1], replace(epochs[-1], complete=False, broken_off=True))
    return loader(0, epochs=epochs, dataset_size=None, handed_out="")


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [
        # a hang in the last epoch: the epochs before decide
        ((_passes(5, 5, 3, broken_off=True), _passes(4, 4, 4)), "rank 1 4 batches and rank 0 5 in"),
        # ranks that have got to different epochs
        ((_passes(5, 3, broken_off=True), _passes(4, 4, 1, broken_off=True)), "and rank 0 5 in"),
        # in the only epoch: more than another rank had in total, or nothing is reported
        ((_passes(5, broken_off=True), _passes(4)), "rank 1 4 batches and rank 0 5: with"),
        ((_passes(4, broken_off=True), _passes(4)), ""),
        ((_passes(3, broken_off=True), _passes(4)), ""),
        ((_passes(3, broken_off=True), _passes(2, broken_off=True)), ""),
        ((_passes(2, broken_off=True), _passes(4), _passes(5)), "rank 1 4 batches and rank 2 5"),
        # the last complete one decides, if no other did
        ((_passes(3, 4), _passes(4, 4)), ""),
        ((_passes(3, 4, 2, broken_off=True), _passes(4, 4, 4)), ""),
        ((_passes(5, joined=True), _passes(4, joined=True)), ""),
        ((_passes(5, joined=True), _passes(4)), "rank 1 4 batches and rank 0 5"),
    ],
)
def test_which_epochs_show_that_batches_are_uneven(
    ranks: tuple[LoaderPartition, ...], shown: str
) -> None:
    texts = divided(*ranks)
    assert len(texts) == bool(shown), texts
    assert all(shown in text for text in texts)


def test_shards_are_drawn_with_their_places_on_the_mesh() -> None:
    """Also of a run that recorded no devices; ranks with the same part share a strip."""
    partition = tuple(
        RankPartition(
            rank=rank,
            shards=(
                ModelShard(
                    name="model",
                    wrapper="FSDP2",
                    parameters=56,
                    local_parameters=28,
                    local_bytes=112,
                    mesh="copy=2, shard=2",
                    placements=("Replicate(), Shard(0)", "Replicate(), Shard(1)"),
                    coordinate=divmod(rank, 2),
                    slots=((100,) * 28 + (0,) * 28)[:: 1 - 2 * (rank % 2)],
                ),
            ),
        )
        for rank in range(4)
    )
    run = Snapshot(cell=Cell(number=1, source="pass"), world_size=4, partition=partition)
    assert registry.VIEWS["placement"].is_in(run)
    view = ddt.placement(run)
    first, second = "█" * 28, "░" * 28
    assert f"ranks 0, 2 shard 0  │{first}{second}│" in str(view)
    assert f"ranks 1, 3 shard 1  │{second}{first}│" in str(view)
    assert "together they hold it 2 times" in str(view)
    assert "Replicate(), Shard(0); Replicate(), Shard(1)" in view.to_html()
    for said in ("ranks 1, 3 shard 1", first + second, "devices are recorded in a run with"):
        assert said in view.to_html()
    assert "│" not in str(ddt.partition(run))
    assert "by host" not in str(view)
    # copies lie on both hosts, or each host lacks what the other one has
    for hosts, said in (
        ("aabb", "by host: a and b hold all of it each"),
        ("abab", "by host: a and b hold 50.0% of it each"),
        ("aaab", "by host: a holds all of it; b holds 50.0% of it"),
    ):
        ranks = tuple(RankReport(rank=rank, host=host) for rank, host in enumerate(hosts))
        there = ddt.placement(replace(run, ranks=ranks))
        assert said in str(there)
        assert said in there.to_html()
    job = replace(run, origin="job")
    assert "1 sharded object" in str(ddt.placement(job))
    assert "%%ddt_debug" not in str(ddt.placement(job))


def test_stages_of_a_pipeline_hold_parts_of_one_model() -> None:
    """A stage knows its own parameters only: 14 in the first, and 42 in the second."""
    held = {
        rank: ModelShard(
            name="model",
            wrapper="Megatron-core",
            parameters=size,
            local_parameters=size,
            local_bytes=4 * size,
            mesh="pipeline=2, data=2",
            coordinate=(rank // 2, rank % 2),
            slots=(100,) * 56,
        )
        for rank, size in enumerate((14, 14, 42, 42))
    }
    partition = tuple(RankPartition(rank=rank, shards=(one,)) for rank, one in held.items())
    run = Snapshot(cell=Cell(number=1, source="pass"), world_size=4, partition=partition)
    text = str(ddt.placement(run))
    assert f"│{'█' * 14}{'░' * 42}│" in text
    assert f"│{'░' * 14}{'█' * 42}│" in text
    assert "56 parameters" in text
    assert "25.0%" in text
    # without one of the stages, nobody knows how large the whole is
    alone = of_all_stages({rank: held[rank] for rank in (0, 1)})
    assert alone == {rank: held[rank] for rank in (0, 1)}


def test_ranks_at_one_place_of_the_data_axis_read_the_same() -> None:
    """Four ranks, of which two each hold parts of one model."""

    def flags(*parts: range) -> list[str]:
        partition = tuple(
            RankPartition(rank=rank, loaders=(loader(*part, sampler=""),))
            for rank, part in enumerate(parts)
        )
        axes = tuple(
            RankAgreements(
                rank=rank,
                framework="megatron-core",
                axes={"data": (rank // 2, 2), "tensor": (rank % 2, 2)},
            )
            for rank in range(4)
        )
        run = Snapshot(
            cell=Cell(number=1, source="pass"), world_size=4, partition=partition, agreements=axes
        )
        return [flag.text for flag in ddt.partition(run).flags]

    first, second = range(64), range(64, 128)
    assert flags(first, first, second, second) == []
    found = flags(first, first, first, first)
    assert any("ranks 0 and 2 each got the same" in text for text in found)


def test_old_snapshots_load_without_newer_observations() -> None:
    plain = Snapshot(cell=Cell(number=1, source="")).to_json()
    assert not {"placement", "partition", "parity"} & set(plain)
    assert Snapshot.from_json(plain).parity == ()


def strips(*parts: range | list[int], size: int | None = 8, **changes: object) -> list[str]:
    """What the strips show: how many ranks read each sample, then a strip for ranks that agree."""
    ranks = tuple(
        RankPartition(rank=rank, loaders=(loader(*part, dataset_size=size, **changes),))
        for rank, part in enumerate(parts)
    )
    seen = Snapshot(cell=Cell(number=1, source=""), world_size=len(parts), partition=ranks)
    text = str(ddt.partition(seen))
    return [line.split("│")[1] for line in text.splitlines() if line.endswith("│")]


def test_strips_show_where_in_the_data_each_rank_read() -> None:
    assert strips(range(5), range(3, 7)) == ["111++110", "█████   ", "   ████ "]
    assert strips(range(0, 8, 2), range(1, 8, 2)) == ["11111111", "█ █ █ █ ", " █ █ █ █"]


def test_a_slot_of_several_samples_shows_the_share_that_was_read() -> None:
    marks, both = strips(range(0, 560, 2), range(1, 560, 2), size=560)
    assert set(marks) == {"1"}
    assert both == "▒" * 56
    assert strips(range(300), range(300, 559), size=560)[0] == "1" * 55 + "0"


def test_ranks_that_read_the_same_share_a_strip() -> None:
    assert strips(*[range(8)] * 63, range(4)) == ["++++++++", "████████", "████    "]


def test_padding_and_a_dropped_rest_are_not_flagged() -> None:
    assert strips([0, 2, 4], [1, 3, 0], size=5, replicas=2)[0] == "11111"
    assert strips([0, 2], [1, 3], dataset="Subset", universe=4)[0] == "1111    "


def test_there_are_no_strips_where_nothing_can_be_compared() -> None:
    assert strips(range(8)) == []
    assert strips(range(4), range(4, 8), indexed=False) == []
    assert strips(range(4), range(4, 8), size=None) == []


def grid(*devices: dict[str, int], present: tuple[str, ...] = ()) -> list[list[str]]:
    """The rows of the grid of ranks and devices, for what each rank holds on each device."""
    ranks = tuple(
        RankPlacement(
            rank=rank,
            objects=(model(*(tensor(d, d, bytes=size) for d, size in held.items())),),
            accelerators=tuple(Accelerator(device=d, identity=d) for d in present),
        )
        for rank, held in enumerate(devices)
    )
    seen = Snapshot(cell=Cell(number=1, source=""), world_size=len(ranks), placement=ranks)
    lines = [line.split() for line in str(ddt.placement(seen)).splitlines()]
    start = next((at for at, line in enumerate(lines) if line[:1] == ["rank"]), None)
    if start is None:
        return []
    stop = next(at for at, line in enumerate(lines) if line[:2] == ["bytes", "on"])  # the legend
    return lines[start:stop]


def test_a_grid_shows_how_much_each_rank_holds_on_each_device() -> None:
    assert grid({"cuda:0": 800}, {"cuda:0": 800}, {"cpu": 1, "cuda:1": 400}) == [
        ["rank", "cpu", "cuda:0", "cuda:1"],
        ["0,", "1", "·", "█", "800", "B", "·"],
        ["2", "▁", "1", "B", "·", "▄", "400", "B"],
    ]


def test_the_grid_shows_a_device_that_no_rank_uses() -> None:
    present = ("cuda:0", "cuda:1")
    assert grid({"cuda:0": 8}, {"cuda:0": 8}, present=present) == [
        ["rank", "cuda:0", "cuda:1"],
        ["0,", "1", "█", "8", "B", "·"],
    ]
    assert grid({"cpu": 8}, {"cpu": 8}) == []


def test_many_devices_have_numbers_only() -> None:
    rows = grid(*({f"cuda:{rank}": 8, "cpu": 4} for rank in range(12)))
    assert rows[0] == ["rank", "cpu", *map(str, range(12))]
    assert rows[3] == ["2", "▄", "·", "·", "█", *["·"] * 9]
