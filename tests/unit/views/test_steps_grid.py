"""The grid of steps and parameters shows where replicas parted."""

from __future__ import annotations

from dataclasses import replace

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Call, Cell, RankReport, Snapshot
from ddt_notebook.model.parity import RankParity
from ddt_notebook.model.training import OptimizerTraining, RankTraining, TrainingState
from ddt_notebook.views import steps_grid
from ddt_notebook.views.steps_grid import STEPS, Grid

from .test_html import HOSTILE, KEPT, parsed

SAMPLED = (0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 50)


def run(
    ranks: int = 4,
    *,
    parted: dict[str, int] | None = None,
    names: tuple[str, ...] = ("model.weight", "model.bias"),
    wrapper: str = "DDP",
    calls: tuple[Call, ...] = (),
) -> Snapshot:
    """The last rank differs in some parameters from a sampled step on."""
    parted = parted or {}
    trainings = [
        RankTraining(
            rank=rank,
            optimizers=(
                OptimizerTraining(
                    name="optimizer",
                    model="model",
                    wrapper=wrapper,
                    steps=50,
                    parameters=len(names),
                    shapes={"64×64": len(names)},
                    watched=names,
                    states=tuple(
                        TrainingState(
                            step=step,
                            values=tuple(
                                1000 * at
                                + step
                                + (rank == ranks - 1 and step >= parted.get(name, 99))
                                for at, name in enumerate(names)
                            ),
                        )
                        for step in SAMPLED
                    ),
                ),
            ),
        )
        for rank in range(ranks)
    ]
    return Snapshot(
        cell=Cell(number=2, source=""),
        ranks=tuple(RankReport(rank=rank, calls=calls) for rank in range(ranks)),
        training=tuple(trainings),
        parity=tuple(RankParity(rank=rank) for rank in range(ranks)),
        world_size=ranks,
    )


def grid(snapshot: Snapshot) -> Grid:
    (found,) = steps_grid.grids(snapshot, {"model.bias": "0.5"})
    return found


def test_replicas_that_agree_are_one_row() -> None:
    (found,) = steps_grid.grids(run(), {})
    assert found.rows == [("model.weight and 1 more", *["="] * STEPS, "")]
    assert "agree at the end" in found.subject
    assert found.head[0] == "before step"
    assert found.head[-2:] == ("end", "by up to")
    assert found.rest == f"and {len(SAMPLED) - STEPS} more steps"


def test_the_first_difference_is_marked_with_rank_and_size() -> None:
    found = grid(run(parted={"model.bias": 4, "model.weight": 6}))
    bias, weight = found.rows  # that which parted first comes first
    assert bias[0] == "model.bias"
    assert bias[-1] == "0.5"
    at = found.head.index("5")  # step 4 had been taken: the parameters are those before step 5
    assert bias[at] == "≠ first"
    assert set(bias[1:at]) == {"="}
    assert set(bias[at + 1 : -1]) == {"≠"}
    assert "≠ first" not in weight
    assert "before step 5, model.bias of rank 3 differs" in found.subject
    assert "equal before step 4" in found.subject


@pytest.mark.parametrize("step", SAMPLED[1:])
def test_the_first_difference_is_among_the_columns(step: int) -> None:
    found = grid(run(parted={"model.bias": step}))
    assert any("≠ first" in row for row in found.rows)


def test_a_difference_that_healed_is_not_marked_as_the_first() -> None:
    healthy, odd = run(), run(parted={"model.bias": 4})
    (first, *others) = odd.training[-1].optimizers
    assert not others
    healed = (*first.states[:-1], healthy.training[0].optimizers[0].states[-1])
    *training, last = odd.training
    mended = replace(last, optimizers=(replace(first, states=healed),))
    found = grid(replace(odd, training=(*training, mended)))
    cells = {cell for row in found.rows for cell in row[1:-1]}
    assert cells == {"=", "≠"}
    assert "they differed meanwhile" in found.subject


def test_stages_of_a_pipeline_are_not_compared() -> None:
    sends = (Call(index=0, op="send", kind="p2p", sequence=1, peer=1, shapes=((64, 64),)),)
    apart = {"model.bias": 0}
    assert steps_grid.grids(run(parted=apart, wrapper="", calls=sends), {}) == []
    assert len(steps_grid.grids(run(parted=apart, wrapper=""), {})) == 1


@pytest.mark.parametrize("ranks", [2, 64])
def test_text_and_html_say_the_same_in_any_size(ranks: int) -> None:
    names = (HOSTILE, *(f"model.block.{at}.weight" for at in range(31)))
    snapshot = run(
        ranks, parted={name: SAMPLED[at % 12] for at, name in enumerate(names)}, names=names
    )
    view = ddt.parity(snapshot)
    text, page = str(view), parsed(view.to_html())
    assert all(len(line) <= 80 for line in text.splitlines())
    assert page.tags <= KEPT | {"style"}
    assert "<script" not in view.to_html().replace("<style>", "")
    found = grid(snapshot)
    for word in (*found.head, found.rest):
        assert word in page.text
        assert word in text
    assert page.text.count("≠") == sum(row.count("≠") + row.count("≠ first") for row in found.rows)
    assert len(view.to_html()) < 60_000
