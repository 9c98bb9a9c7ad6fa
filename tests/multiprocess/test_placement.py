"""Placement of tensors on real ranks, known by construction."""

from __future__ import annotations

from textwrap import dedent

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.model.placement import PlacedObject, RankPlacement

from .conftest import Ranks

MODEL = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(10, 4)
        self.norm = torch.nn.BatchNorm1d(4)
    def forward(self, x):
        return self.norm(self.fc(x))
"""


def run(ranks: Ranks, source: str, n: int = 2) -> RunResult:
    session = ranks.session(n)
    session.restart()
    result = session.run(MODEL + dedent(source))
    assert result.ok, result.errors
    return result


def objects(placement: RankPlacement) -> dict[str, PlacedObject]:
    return {item.name: item for item in placement.objects}


def test_bytes_are_element_counts_times_element_size(ranks: Ranks) -> None:
    source = """
    model = DDP(Net())
    inner = model.module
    optimizer = torch.optim.Adam(model.parameters())
    batch = {"x": torch.randn(8, 10), "y": torch.zeros(8, dtype=torch.int16)}
    model(batch["x"]).sum().backward()
    optimizer.step()
    """
    view = ddt.placement(run(ranks, source))
    parameters = 10 * 4 + 4 + 4 + 4
    for placement in view.snapshot.placement:
        found = objects(placement)
        assert list(found) == ["model", "optimizer", "batch"]
        model, optimizer, batch = found.values()
        assert (model.type, model.wrapper, model.also) == ("Net", "DDP", ("inner",))
        assert model.trained
        assert model.bytes == parameters * 4 + 2 * 4 * 4 + 8
        assert optimizer.bytes == 2 * parameters * 4 + 4 * 4  # two moments, a step count of each
        assert {t.name: (t.shape, t.dtype, t.bytes) for t in batch.tensors} == {
            "['x']": ((8, 10), "float32", 320),
            "['y']": ((8,), "int16", 16),
        }
        names = {t.name for t in model.tensors if t.role == "parameter"}
        assert names == {"fc.weight", "fc.bias", "norm.weight", "norm.bias"}
        assert {t.device for t in model.tensors} == {"cpu"}
    assert not view.flags
    assert "ranks 0 and 1" in str(view)


def test_unusual_placement_is_flagged(ranks: Ranks) -> None:
    source = """
    class Metric(torch.nn.Module):  # it moves what it has not registered
        def __init__(self):
            super().__init__()
            self.total = torch.zeros(3)
        def _apply(self, function, recurse=True):
            self.total = function(self.total)
            return super()._apply(function, recurse)
    class Odd(Net):
        def __init__(self):
            super().__init__()
            self.metric = Metric()
            self.mask = torch.ones(4)
            self.loose = torch.zeros(2, requires_grad=True)
            self.heads = [torch.nn.Linear(4, 2)]
            self.part = torch.nn.Linear(2, 2)
            self.part.bias = torch.nn.Parameter(torch.zeros(2, device="meta"))
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters())
    model(torch.randn(8, 10)).sum().backward()
    optimizer.step()
    """
    texts = [flag.text for flag in ddt.placement(run(ranks, source)).flags]
    assert ddt.placement(ranks.session(2)).flags[0].kind == "error"
    assert any("model.part has its tensors on different devices" in text for text in texts)
    assert any("model.mask is neither parameter nor buffer" in text for text in texts)
    assert any("model.loose is a tensor that requires a gradient" in text for text in texts)
    assert any("plain list or dict (heads[0])" in text for text in texts)
    assert any("model is trained but not wrapped" in text for text in texts)
    assert len(texts) == 5


def test_a_model_that_this_run_did_not_train_is_not_accused(ranks: Ranks) -> None:
    training = """
    net_old = torch.nn.Linear(8, 1)
    m_old = DDP(net_old)
    o_old = torch.optim.SGD(net_old.parameters(), lr=.1)
    m_old(torch.ones(2, 8)).sum().backward()
    o_old.step()
    """
    rewrapped = """
    m_old = DDP(torch.nn.Linear(8, 1))
    m_old(torch.ones(2, 8))
    """
    run(ranks, training)
    session = ranks.session(2)
    assert not ddt.placement(session.run(dedent(rewrapped))).flags
    assert not ddt.placement(session.run(dedent(training + rewrapped))).flags  # wrapped, as it was
    alone = training.replace("DDP(net_old)", "net_old").replace("_old", "_new")
    (flag,) = ddt.placement(session.run(dedent(alone))).flags
    assert "net_new is trained but not wrapped" in flag.text
    assert not ddt.placement(session.run("net_new(torch.ones(2, 8))")).flags


def test_ranks_that_differ_are_distinguished(ranks: Ranks) -> None:
    view = ddt.placement(run(ranks, "x = torch.zeros(4 if rank == 1 else 2, 3)"))
    assert "x · Tensor · 2×3 float32 · rank 0 · cpu · 24 B" in str(view)
    assert "x · Tensor · 4×3 float32 · rank 1 · cpu · 48 B" in str(view)


def test_names_are_looked_up(ranks: Ranks) -> None:
    source = """
    class Trainer:
        pass
    trainer = Trainer()
    trainer.model = Net()
    trainer.parts = {"head": torch.nn.Linear(2, 2)}
    other = Net()
    """
    result = run(ranks, source)
    found = objects(ddt.placement(result).snapshot.placement[0])
    assert set(found) == {"trainer.model", "other"}
    named = objects(ddt.placement(ranks.session(2), "trainer.model.fc").snapshot.placement[0])
    assert [t.name for t in named["trainer.model.fc"].tensors] == ["weight", "bias"]
    with pytest.raises(ddt.SessionError, match=r"there is no 'nothing\.here' on this rank"):
        ddt.placement(ranks.session(2), "nothing.here")


def test_fully_sharded_and_tensor_parallel_models_show_their_shards(ranks: Ranks) -> None:
    source = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    sharded = Net()
    sharded.norm = torch.nn.Identity()
    fully_shard(sharded, mesh=mesh)
    sharded(torch.randn(3, 10)).sum().backward()
    tp = torch.nn.Linear(6, 8)
    parallelize_module(tp, init_device_mesh("cpu", (2,), mesh_dim_names=("tp",)), ColwiseParallel())
    spread = distribute_tensor(torch.arange(10.0).reshape(5, 2), mesh, [Shard(0)])
    grid = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
    both = torch.nn.Linear(6, 8, bias=False)
    parallelize_module(both, grid["tp"], ColwiseParallel())
    fully_shard(both, mesh=grid["dp"])
    flat = FSDP(torch.nn.Linear(9, 7), device_id=torch.device("cpu"))
    plain = DDP(torch.nn.Sequential(torch.nn.Linear(4, 9, bias=False), torch.nn.Linear(9, 2)))
    zero = ZeroRedundancyOptimizer(plain.parameters(), torch.optim.Adam)
    """
    result = run(ranks, source)
    view = ddt.placement(result)
    for placement in view.snapshot.placement:
        found = objects(placement)
        assert found["sharded"].wrapper == "FSDP2"
        assert found["tp"].wrapper == "DTensor"
        weight = next(t for t in found["sharded"].tensors if t.name == "fc.weight")
        assert (weight.shape, weight.local_shape, weight.bytes) == ((4, 10), (2, 10), 80)
        assert (weight.placements, weight.mesh) == ("Shard(0)", "dp=2")
        (spread,) = found["spread"].tensors
        assert spread.local_shape == ((3, 2) if placement.rank == 0 else (2, 2))
    assert not view.flags
    assert "FSDP2" in str(view)
    assert str(view).count("together they hold it once") == 5
    assert "rank 1 dp 0 tp 1  │" in str(view)
    parts = ddt.partition(result)
    assert "│" not in str(parts)
    assert "in the view placement" in str(parts)
    shards = {s.name: s for s in parts.snapshot.partition[0].shards}
    assert (shards["sharded"].parameters, shards["sharded"].local_parameters) == (44, 22)
    assert shards["sharded"].local_bytes == 88
    assert (shards["tp"].parameters, shards["tp"].local_parameters) == (56, 28)
    assert (shards["tp"].mesh, shards["tp"].coordinate) == ("tp=2", (0,))
    # where each part lies: ranks have disjoint parts of the whole, in order
    everyone = [{s.name: s for s in one.shards} for one in parts.snapshot.partition]
    for name in ("sharded", "tp", "both", "flat", "zero"):
        first, second = (of_rank[name].slots for of_rank in everyone)
        assert all(99 <= sum(held) <= 101 for held in zip(first, second, strict=True)), name
        assert (first[0], second[0]) in ((100, 0), (0, 100)), name
    flat = shards["flat"]
    assert (flat.wrapper, flat.parameters, flat.local_bytes) == ("FSDP", 70, 35 * 4)
    assert flat.slots == (100,) * 28 + (0,) * 28
    assert shards["both"].slots == (100,) * 28 + (0,) * 28
    # a whole parameter is on one rank: 36 elements, then 18 and 2
    assert {of_rank["zero"].local_parameters for of_rank in everyone} == {36, 20}
    assert not ddt.parity(result).flags  # other parts are not a disagreement


def test_a_traced_run_keeps_what_was_seen(ranks: Ranks) -> None:
    session = ranks.session(2)
    session.restart()
    traced = session.run(f"{MODEL}\nmodel = DDP(Net())", trace=True)
    assert traced.ok
    later = session.run("del model")
    assert objects(ddt.placement(traced).snapshot.placement[1])["model"].wrapper == "DDP"
    assert not ddt.placement(later).snapshot.placement[0].objects
    session.run("pass")
    with pytest.raises(ValueError, match="was not recorded in this run"):
        ddt.placement(later)
