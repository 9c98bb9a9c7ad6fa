"""What a rank would need if training were spread in another way."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Cell, Snapshot
from ddt_notebook.model.estimate import (
    computed_precision,
    measured_needs,
    measured_precision,
    needs_of,
    plans,
)
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
    by_name = {
        plan.sharding: plan.needs for plan in plans(needs, 4) if plan.batch == 1 and not plan.change
    }
    assert by_name["DDP"].total == 4 * 4000 + 4000 + 100
    assert by_name["ZeRO-1"].total == by_name["DDP"].total - 6000
    assert by_name["ZeRO-2"].total == by_name["ZeRO-1"].total - 3000 - 4000
    assert by_name["FSDP"].total == by_name["ZeRO-2"].total - 3000


def test_half_a_batch_keeps_half_the_activations() -> None:
    needs = needs_of(10, item_bytes=2, optimizer="sgd", activations=100)
    assert {p.batch: p.needs.activations for p in plans(needs, 2) if not p.change} == {
        1.0: 100,
        0.5: 50,
    }
    without = needs_of(10, item_bytes=2, optimizer="sgd", activations=0)
    assert {plan.batch for plan in plans(without, 2)} == {1.0}


def test_an_estimate_from_a_run() -> None:
    needs = measured_needs(snapshot().memory[0])
    assert needs.total == 2000 + 1000 + needs.base
    assert needs.base == 5000 - 2000
    view = ddt.estimate(snapshot(), 4)
    assert "it fits" in str(view)
    assert view.to_frame()["fits"].all()


def test_an_estimate_names_strategies_that_would_fit() -> None:
    view = ddt.estimate(1_000_000, 8, limit="10M", activations="1M")
    assert "it does not fit" in str(view)
    assert "ZeRO-2 would" in str(view)
    frame = view.to_frame().query("change == ''")
    fits = dict(zip(frame["sharding"], frame["fits"], strict=True))
    assert fits == {"DDP": False, "ZeRO-1": False, "ZeRO-2": True, "FSDP": True}


def test_without_activations_only_the_model_is_compared() -> None:
    view = ddt.estimate(1_000_000, 8, limit="15M")
    assert "it fits" not in str(view)
    assert "ZeRO-1 would leave" in str(view)
    frame = view.to_frame().query("change == ''")
    fits = dict(zip(frame["sharding"], frame["fits"], strict=True))
    assert fits == {"DDP": False, "ZeRO-1": None, "ZeRO-2": None, "FSDP": None}
    assert "the model fits if its activations do" in str(ddt.estimate(1_000_000, 8, limit="1G"))


def test_checkpointing_keeps_none_to_all_of_the_activations() -> None:
    view = ddt.estimate(1_000_000, 8, limit="24M", activations="8M")
    ddp, fsdp = (plan for plan in view.plans if plan.change == "checkpointing")
    assert (ddp.least, ddp.needs.total) == (20_000_000, 20_000_000 + 8 * 2**20)
    assert view.fits(ddp) is None, "it depends on what is checkpointed"
    assert view.fits(fsdp) is True, "it fits if all of them are kept"
    bar = next(
        x for x in str(view).splitlines() if x.startswith("  DDP, checkpointing ") and "|" in x
    )
    assert set(bar.split()[-1]) == {"p", "g", "o", "?", "|"}
    assert not view.fits(view.plans[0])
    without = ddt.estimate(1_000_000, 8, limit="24M")
    assert not any(plan.change == "checkpointing" for plan in without.plans)


def test_another_precision_keeps_the_bytes_that_a_parameter_needs() -> None:
    """16 bytes with Adam in float32 and in mixed precision; only buckets and activations differ."""
    (mixed,) = computed_precision(1000, 4, "Adam", 100)
    assert (mixed.needs.total, mixed.least) == (18_000 + 100, 18_000 + 50)
    (full,) = computed_precision(1000, 2, "Adam", 100, mixed=True)
    assert (full.needs.total, full.least) == (20_000 + 200, 20_000 + 100)
    assert not computed_precision(1000, 2, "Adam", 100, mixed=False)
    memory = snapshot().memory[0]
    (cast,) = measured_precision(memory, measured_needs(memory))
    assert (cast.least_activations, cast.needs.activations) == (500, 1000 + 200)
    assert cast.needs.optimizer_state == 800


def test_a_number_of_parameters_may_be_a_float() -> None:
    assert str(ddt.estimate(7e9, 8)) == str(ddt.estimate(7_000_000_000, 8))


def test_mixed_precision_needs_16_bytes_for_each_parameter_with_adam() -> None:
    """ZeRO (Rajbhandari et al. 2020), section 3.1; DDP's buckets hold the gradients once more."""
    mixed = ddt.estimate(7_000_000_000, 8, dtype="bfloat16", limit="80G")
    assert mixed.needs.total == (16 + 2) * 7_000_000_000
    assert "it does not fit" in str(mixed)
    assert "80G (85.9 GB, since G is 2³⁰ bytes) for each" in " ".join(str(mixed).split())
    assert "85.9 GB for each" in " ".join(str(ddt.estimate(7e9, limit=80 << 30)).split())
    pure = ddt.estimate(7_000_000_000, 8, dtype="bfloat16", limit="80G", mixed=False)
    assert pure.needs.total == (8 + 2) * 7_000_000_000


def test_bars_end_at_the_limit_if_all_of_it_is_used() -> None:
    bars = str(ddt.estimate(1_000_000, 2, limit=20_000_000)).splitlines()
    bar = next(line for line in bars if line.startswith("  DDP ") and "|" in line)
    used, _, over = bar.split()[1].partition("|")
    assert set(used) == {"p", "g", "o"}
    assert not over
    bars = str(ddt.estimate(1_000_000, 2, limit="10M")).splitlines()
    bar = next(line for line in bars if line.startswith("  DDP ") and "|" in line)
    assert bar.split()[1].partition("|")[2]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("7B", 7 * 10**9), ("1.1b", 11 * 10**8), ("350M", 350 * 10**6), ("7e9", 7 * 10**9)),
        *(("1,000", 1000), ("1_000", 1000)),
    ],
)
def test_a_number_of_parameters_is_written_as_in_a_models_name(text: str, number: int) -> None:
    assert str(ddt.estimate(text, 8)) == str(ddt.estimate(number, 8))


def test_what_cannot_be_estimated_is_reported() -> None:
    with pytest.raises(ValueError, match="no model was seen"):
        ddt.estimate(snapshot(parts={}))
    with pytest.raises(ValueError, match="sharded already"):
        ddt.estimate(snapshot(wrapper="FSDP2"))
    with pytest.raises(ValueError, match="'Lion' is not known"):
        ddt.estimate(100, optimizer="Lion")
    with pytest.raises(ValueError, match="expected at least one rank"):
        ddt.estimate(100, 0)
    for number in (-1.0, 1.5, float("inf"), "many", "nan", "-7B", "1e999999", "0.1", "B", ""):
        with pytest.raises(ValueError, match="expected a number of parameters"):
            ddt.estimate(number)
    with pytest.raises(ValueError, match="expected a type of numbers"):
        ddt.estimate(100, dtype="number")
