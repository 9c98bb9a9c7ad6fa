"""What a rank would need if training were spread in another way."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Cell, Snapshot
from ddt_notebook.model.estimate import measured_needs, needs_of, plans
from ddt_notebook.model.memory import RankMemory

PARTS = {"parameters": 400, "gradients": 400, "optimizer state": 800, "DDP buckets": 400}


def snapshot(**changes: object) -> Snapshot:
    fields: dict[str, object] = {
        "rank": 0,
        "parts": PARTS | {"activations": 1000},
        "parameter_count": 100,
        "trained_count": 100,
        "rss_bytes": 5000,
        "limits": {"machine": 1_000_000},
    }
    memory = RankMemory(**(fields | changes))  # type: ignore[arg-type]
    return Snapshot(cell=Cell(number=2, source=""), memory=(memory,), world_size=1)


def test_sharding_divides_what_it_shards() -> None:
    needs = needs_of(1000, item_bytes=4, optimizer="AdamW", activations=100)
    by_name = {plan.sharding: plan.needs for plan in plans(needs, 4) if plan.batch == 1}
    assert by_name["DDP"].total == 4 * 4000 + 4000 + 100
    assert by_name["ZeRO-1"].total == by_name["DDP"].total - 6000
    assert by_name["ZeRO-2"].total == by_name["ZeRO-1"].total - 3000 - 4000
    assert by_name["FSDP"].total == by_name["ZeRO-2"].total - 3000


def test_half_a_batch_keeps_half_the_activations() -> None:
    needs = needs_of(10, item_bytes=2, optimizer="sgd", activations=100)
    assert {plan.batch: plan.needs.activations for plan in plans(needs, 2)} == {1.0: 100, 0.5: 50}
    without = needs_of(10, item_bytes=2, optimizer="sgd", activations=0)
    assert {plan.batch for plan in plans(without, 2)} == {1.0}


def test_from_a_run() -> None:
    needs = measured_needs(snapshot().memory[0])
    assert needs.total == 2000 + 1000 + needs.base
    assert needs.base == 5000 - 2000
    view = ddt.estimate(snapshot(), 4)
    assert "it fits" in str(view)
    assert view.to_frame()["fits"].all()


def test_what_does_not_fit_and_what_would() -> None:
    view = ddt.estimate(1_000_000, 8, limit="10M")
    assert "it does not fit" in str(view)
    assert "ZeRO-2 would" in str(view)
    fits = dict(zip(view.to_frame()["sharding"], view.to_frame()["fits"], strict=True))
    assert fits == {"DDP": False, "ZeRO-1": False, "ZeRO-2": True, "FSDP": True}


def test_what_cannot_be_estimated_is_reported() -> None:
    with pytest.raises(ValueError, match="no model was seen"):
        ddt.estimate(snapshot(parts={}))
    with pytest.raises(ValueError, match="sharded already"):
        ddt.estimate(snapshot(wrapper="FSDP2"))
    with pytest.raises(ValueError, match="'Lion' is not known"):
        ddt.estimate(100, optimizer="Lion")
    with pytest.raises(ValueError, match="expected a type of numbers"):
        ddt.estimate(100, dtype="number")
