"""Ranks that share a GPU: a fault if another GPU is idle, else normal."""

from __future__ import annotations

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model.checkpoints import CheckpointUse, RankCheckpoints
from ddt_notebook.model.placement import (
    Accelerator,
    PlacedObject,
    RankPlacement,
    TensorPlacement,
)

from .builders import at, rank, snapshot


def placement(number: int, devices: str, gpus: int = 2, **fields) -> RankPlacement:
    tensors = [
        TensorPlacement(name=f"p{at}", role="parameter", device=device, dtype="float32")
        for at, device in enumerate(devices.split())
    ]
    fields = {"wrapper": "DDP", "trained": True, **fields}
    model = PlacedObject(name="net", kind="module", type="Net", tensors=tuple(tensors), **fields)
    visible = [Accelerator(device=f"cuda:{at}", identity=f"g{at}") for at in range(gpus)]
    return RankPlacement(rank=number, objects=(model,), accelerators=tuple(visible))


def scene(*placements: RankPlacement, hosts: str = ""):
    named = dict(enumerate(hosts.split()))
    ranks = [rank(p.rank, host=named.get(p.rank, "")) for p in placements]
    return snapshot(*ranks, placement=placements)


def test_all_ranks_on_the_first_gpu_are_reported():
    (finding,) = diagnose(scene(*[placement(r, "cuda:0", gpus=4) for r in range(3)])).findings
    assert (finding.symptom, finding.cause) == ("D.2.2", "all-ranks-on-one-gpu")
    assert finding.values == {"device": "cuda:0", "idle": ("cuda:1", "cuda:2", "cuda:3")}
    assert finding.confidence == "likely"


@pytest.mark.parametrize(
    "placements",
    [
        [placement(0, "cuda:0"), placement(1, "cuda:1")],
        [placement(r, f"cuda:{r % 2}") for r in range(4)],  # more ranks than GPUs
        [placement(r, "cuda:0 cuda:1") for r in range(2)],  # each over all
        [placement(r, "cuda:0", gpus=1) for r in range(2)],  # there is no other
        [placement(r, "cpu") for r in range(2)],
        [placement(r, "cuda:0", wrapper="") for r in range(2)],  # not one job
        [placement(r, "cuda:0", trained=False) for r in range(2)],
    ],
)
def test_legal_placements_are_silent(placements: list[RankPlacement]):
    assert diagnose(scene(*placements)).findings == []


def test_gpus_of_different_hosts_have_the_same_numbers():
    each = [placement(r, f"cuda:{r % 2}") for r in range(4)]
    assert not diagnose(scene(*each, hosts="a a b b")).findings
    one_each = [placement(r, "cuda:0") for r in range(2)]  # another job has the second ones
    assert not diagnose(scene(*one_each, hosts="a b")).findings
    crowded = [placement(r, "cuda:0" if r > 1 else f"cuda:{r}") for r in range(4)]
    (finding,) = diagnose(scene(*crowded, hosts="a a b b")).findings
    assert (finding.ranks, finding.values["idle"]) == ([2, 3], ("cuda:1",))


def loaded(number: int, *devices: str) -> RankCheckpoints:
    use = CheckpointUse(action="load", path="/r/last.pt", where=at(8), devices=devices)
    return RankCheckpoints(rank=number, uses=(use,))


@pytest.mark.parametrize(
    ("devices", "ranks"),
    [
        (["cuda:0", "cuda:0"], [[1]]),
        (["cuda:0", "cuda:1"], []),
        (["cpu", "cpu"], []),
    ],
)
def test_checkpoints_that_are_loaded_to_the_gpu_of_another_rank(
    devices: list[str], ranks: list[list[int]]
):
    here = [placement(r, f"cuda:{r}") for r in range(2)]
    checkpoints = tuple(loaded(r, device) for r, device in enumerate(devices))
    report = diagnose(snapshot(rank(0), rank(1), placement=tuple(here), checkpoints=checkpoints))
    assert report.ok
    assert [hint.ranks for hint in report.hints] == ranks
