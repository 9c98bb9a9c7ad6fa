"""Ranks may hold different parts of one model: its views then flag no difference as wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Call, Cell, RankReport, Snapshot
from ddt_notebook.model.collective import Shape
from ddt_notebook.model.parity import ParityItem, ParityRole, RankParity
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition, pack_indices
from ddt_notebook.model.placement import PlacedObject, RankPlacement, TensorPlacement
from ddt_notebook.model.training import ModelTraining, OptimizerTraining, RankTraining

BOTH = ("hint", "hint")
SHAPES = ((16, 8), (16,))


def sent(op: str, *shapes: Shape) -> Call:
    kind = "p2p" if op in ("send", "recv") else "collective"
    return Call(index=0, op=op, kind=kind, members=(0, 1), shapes=shapes, dtypes=("float32",))


def unwrapped(*calls: Call, framework: str = "") -> Snapshot:
    """A run with an unwrapped model that has other values on each rank."""

    def parameter(at: int) -> TensorPlacement:
        return TensorPlacement(
            name=f"{at}.w", role="parameter", device="cpu", dtype="float32", shape=SHAPES[at]
        )

    model = PlacedObject(
        name="model",
        kind="module",
        type="Net",
        trained=True,
        stepped_alone=True,
        tensors=(parameter(0), parameter(1)),
    )
    return Snapshot(
        cell=Cell(number=1, source=""),
        world_size=2,
        framework=framework,
        ranks=tuple(RankReport(rank=rank, calls=calls) for rank in (0, 1)),
        placement=tuple(RankPlacement(rank=rank, objects=(model,)) for rank in (0, 1)),
        parity=tuple(
            RankParity(
                rank=rank,
                items=(
                    ParityItem(
                        name="model.0.w", role="parameter", value=str(rank), kind="float32 16×8"
                    ),
                    ParityItem(name="model.1.w", role="parameter", value="0", kind="float32 16"),
                ),
            )
            for rank in (0, 1)
        ),
    )


def flags(*calls: Call) -> tuple[str, ...]:
    """What placement and parity flag of such a model."""
    snapshot = unwrapped(*calls)
    (placed,), (differs,) = ddt.placement(snapshot).flags, ddt.parity(snapshot).flags
    return placed.kind, differs.kind


@pytest.mark.parametrize(
    "calls",
    [(sent("send", (4, 8)), sent("recv", (4, 8))), (sent("all_reduce", (4, 8)),)],
    ids=["stages of a pipeline", "tensor parallelism"],
)
def test_ranks_that_pass_activations_hold_parts_of_a_model(calls: tuple[Call, ...]) -> None:
    assert flags(*calls) == BOTH


@pytest.mark.parametrize(
    ("calls", "placed"),
    [
        ((), "warning"),
        ((sent("all_reduce", (1,)),), "warning"),
        # the program may average the gradients itself: then a missing wrapper is no fault
        ((sent("all_reduce", SHAPES[0]), sent("all_reduce", SHAPES[1])), "hint"),
        ((sent("all_reduce", (16 * 8 + 16,)),), "hint"),
        ((sent("all_gather", (64, 2)),), "warning"),
    ],
    ids=["nothing", "a metric", "gradients", "gradients in a bucket", "predictions"],
)
def test_whole_models_that_differ_are_flagged(calls: tuple[Call, ...], placed: str) -> None:
    assert flags(*calls) == (placed, "warning")


def test_horovod_averages_without_a_wrapper() -> None:
    gradients = [sent("allreduce", shape) for shape in SHAPES]
    assert ddt.placement(unwrapped(*gradients, framework="horovod")).flags == []
    (flag,) = ddt.placement(unwrapped(framework="horovod")).flags
    assert flag.kind == "warning"


def _stepped_alike(
    role: ParityRole, name: str, *, steps: int, equal: bool, hook: bool = False
) -> str:
    """The kind of flag for a tensor that differs beside a parameter, after optimizer steps."""
    items = (
        ParityItem(name="model.w", role="parameter", value="0"),
        ParityItem(name=name, role=role, value="0"),
    )
    other = tuple(replace(one, value="1") for one in items)
    parities = (
        RankParity(rank=0, items=items, wrapped=("model",) if hook else ()),
        RankParity(
            rank=1,
            items=(items[0] if equal else other[0], other[1]),
            wrapped=("model",) if hook else (),
        ),
    )
    training = tuple(
        RankTraining(
            rank=rank,
            optimizers=(OptimizerTraining(name="optimizer", kind="Muon", steps=steps),),
            models=(ModelTraining(name="model", communication_hook=hook),),
        )
        for rank in (0, 1)
    )
    snapshot = Snapshot(
        cell=Cell(number=1, source=""), world_size=2, parity=parities, training=training
    )
    return next(f.kind for f in ddt.parity(snapshot).flags if name in f.text)


def test_an_optimizer_may_divide_its_work_among_the_ranks() -> None:
    """Muon and hand-written ZeRO keep each state on one rank, and the parameters agree."""
    state = "optimizer.state.model.w.momentum_buffer"
    assert _stepped_alike("state", state, steps=3, equal=True) == "hint"
    assert _stepped_alike("gradient", "model.w.grad", steps=3, equal=True) == "hint"
    # restored on one rank only, and not stepped yet: the next step parts the copies
    assert _stepped_alike("state", state, steps=0, equal=True) == "warning"
    assert _stepped_alike("state", state, steps=3, equal=False) == "warning"
    assert _stepped_alike("gradient", "model.w.grad", steps=3, equal=False) == "warning"


def test_a_communication_hook_may_leave_gradients_unequal() -> None:
    """post_localSGD_hook averages in subgroups."""
    assert _stepped_alike("gradient", "model.w.grad", steps=3, equal=True, hook=True) == "hint"


def _differing(*ranks: dict[str, ParityRole]) -> list[str]:
    parities = tuple(
        RankParity(
            rank=rank,
            items=tuple(ParityItem(name=n, role=role, value="0") for n, role in items.items()),
        )
        for rank, items in enumerate(ranks)
    )
    snapshot = Snapshot(cell=Cell(number=1, source=""), world_size=len(ranks), parity=parities)
    return [flag.text for flag in ddt.parity(snapshot).flags]


def test_a_missing_gradient_of_a_parameter_of_another_rank_is_not_flagged() -> None:
    def stage(at: int) -> dict[str, ParityRole]:
        return {
            f"model.{at}.w": "parameter",
            f"model.{at}.w.grad": "gradient",
            f"optimizer.state.model.{at}.w.exp_avg": "state",
        }

    assert not _differing(stage(0), stage(1))
    gradient, state = _differing(stage(0), {"model.0.w": "parameter"})
    assert gradient.startswith("model.0.w.grad ")
    assert state.startswith("optimizer.state.model.0.w.exp_avg ")
    unknown: dict[str, ParityRole] = {"optimizer.state.group 0[0].exp_avg": "state"}
    assert _differing(unknown, {})


@pytest.mark.parametrize(
    ("calls", "wrapper", "kind"),
    [
        ((sent("all_reduce", (4, 8)),), "", "hint"),  # tensor parallelism
        ((sent("send", (4, 8)), sent("recv", (4, 8))), "", "hint"),  # stages of a pipeline
        ((), "", "hint"),  # each rank trains a model of its own
        ((sent("all_reduce", SHAPES[0]), sent("all_reduce", SHAPES[1])), "", "warning"),
        ((sent("all_reduce", (4, 8)),), "DDP", "warning"),
    ],
)
@pytest.mark.parametrize("trained", [2, 0])  # in a loop over the loader, and by next()
def test_ranks_with_parts_of_a_model_train_on_the_same_samples(
    calls: tuple[Call, ...], wrapper: str, kind: str, trained: int
) -> None:
    passed = Epoch(number=1, run=1, batches=2, samples=8, first=tuple(range(8)), trained=trained)
    loader = LoaderPartition(
        name="loader",
        dataset="TensorDataset",
        dataset_size=8,
        universe=8,
        sampler="DistributedSampler",
        replicas=1,
        replica=0,
        epochs=(passed,),
        handed_out=pack_indices(b"\xff"),
    )
    optimizer = OptimizerTraining(name="o", wrapper=wrapper, steps=2, shapes={"16×8": 1, "16": 1})
    snapshot = Snapshot(
        cell=Cell(number=1, source=""),
        world_size=2,
        ranks=tuple(RankReport(rank=rank, calls=calls) for rank in (0, 1)),
        partition=tuple(RankPartition(rank=rank, run=1, loaders=(loader,)) for rank in (0, 1)),
        training=tuple(RankTraining(rank=rank, optimizers=(optimizer,)) for rank in (0, 1)),
    )
    flags = [f for f in ddt.partition(snapshot).flags if "each got the same" in f.text]
    assert [flag.kind for flag in flags] == [kind]


@pytest.mark.parametrize("role", ["parameter", "setting"])
def test_parity_claims_no_parameters_that_were_not_compared(role: ParityRole) -> None:
    """A wrapper that divides parameters leaves settings to compare."""
    item = ParityItem(name="engine.training", role=role, value="True")
    snapshot = Snapshot(
        cell=Cell(number=1, source=""),
        parity=tuple(RankParity(rank=at, items=(item,)) for at in (0, 1)),
    )
    said = ddt.parity(snapshot).to_text()
    assert "the ranks agree on 1 thing" in said
    assert ("parameters" in said) is (role == "parameter")
    assert "optimizer" not in said


def test_parity_counts_only_what_several_ranks_hold() -> None:
    def item(name: str, part: str = "", value: str = "1") -> ParityItem:
        return ParityItem(name=name, role="parameter", value=value, part=part)

    def snapshot(differing: str) -> Snapshot:
        return Snapshot(
            cell=Cell(number=1, source=""),
            parity=tuple(
                RankParity(rank=at, items=(item("m.a", f"{at} of 2"), item("m.b", "all", value)))
                for at, value in enumerate(("1", differing))
            ),
        )

    assert "the ranks agree on 1 thing: parameters" in ddt.parity(snapshot("1")).to_text()
    (flag,) = ddt.parity(snapshot("2")).flags
    assert flag.text.startswith("m.b")


@pytest.mark.parametrize("part", ["", "tensor 0"])
def test_ranks_that_hold_one_known_part_do_not_each_hold_another(part: str) -> None:
    snapshot = unwrapped(sent("send", (2, 8)))
    parity = tuple(
        replace(one, items=(one.items[0], replace(one.items[1], part=part)))
        for one in snapshot.parity
    )
    (flag,) = ddt.parity(replace(snapshot, parity=parity)).flags
    assert flag.kind == "hint"
    assert ("may hold a part" in flag.text) is (not part)
