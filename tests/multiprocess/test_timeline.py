"""Traced runs on real ranks, with the truth known by construction."""

from __future__ import annotations

from statistics import median
from textwrap import dedent

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.model.meetings import Meeting, lateness, meetings

from .conftest import Ranks

LATE_S = 0.15
STEPS = 11
TRAINING = """
import time
torch.set_num_threads(1)
model = DDP(torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(8, 40)
def step():
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


def run(ranks: Ranks, source: str, n: int = 2, *, trace: bool = True) -> RunResult:
    session = ranks.session(n)
    session.restart()
    result = session.run(dedent(source), trace=trace)
    assert result.ok, result.errors
    return result


def named(result: RunResult, label: str) -> list[Meeting]:
    return [met for met in meetings(result.snapshot) if met.label.startswith(label)]


@pytest.mark.parametrize("n", [2, 4])
def test_a_straggler_of_150_ms_is_attributed_to_its_rank(ranks: Ranks, n: int) -> None:
    source = f"""
    step()
    slept = []
    for _ in range({STEPS}):
        start = time.monotonic()
        if rank == 1:
            time.sleep({LATE_S})
        slept.append(time.monotonic() - start)
        step()
    """
    result = run(ranks, TRAINING + dedent(source), n)
    slept = ranks.session(n).pull("slept", rank=1)
    assert isinstance(slept, list)
    # in the first of these steps, DDP broadcasts its new buckets, and this is what waits
    met = meetings(result.snapshot)
    late = [seconds for seconds in lateness(met)[1] if seconds > 0.05]
    assert len(late) == STEPS
    # where two processors carry four ranks, the others are late, too, now and then
    assert median(late) == pytest.approx(median(slept), abs=0.1 * LATE_S)
    view = ddt.timeline(result)
    assert "rank 1 came last" in view.flags[0].text
    frame = view.to_frame().set_index("rank")
    apart = [m.arrivals_s[1] - m.arrivals_s[0] for m in met]
    assert frame.waiting_ms[0] == pytest.approx(1e3 * sum(s for s in apart if s > 0), rel=0.1)
    assert frame.waiting_ms[1] < 0.2 * frame.waiting_ms[0]


def test_steps_are_found_and_buckets_labelled(ranks: Ranks) -> None:
    result = run(ranks, TRAINING + f"for _ in range({STEPS}): step()")
    for timeline in result.snapshot.timeline:
        assert len(timeline.steps_us) == STEPS
    buckets = named(result, "DDP bucket 1/1")
    assert len(buckets) == STEPS
    assert {met.bytes for met in buckets} == {4 * (40 * 30 + 30 + 30 * 2 + 2)}
    for met in buckets:
        assert met.first.where is not None
        assert "backward()" in met.first.where.code
        assert met.transfer_s is not None
        assert 0 < met.transfer_s < result.duration_s
        assert met.bytes_per_s is not None


def test_transfer_is_not_waiting(ranks: Ranks) -> None:
    """Ten megabytes, to which both ranks come at once, and four bytes that rank 0 waits for."""
    source = """
    import time
    large, small = torch.ones(2_500_000), torch.ones(1)
    dist.barrier()
    dist.all_reduce(large)
    if rank == 1:
        time.sleep(0.2)
    dist.all_reduce(small)
    """
    _, large, small = meetings(run(ranks, source).snapshot)
    assert (large.bytes, small.bytes) == (10_000_000, 4)
    assert large.transfer_s is not None
    assert small.transfer_s is not None
    assert large.transfer_s > 2 * large.late_s
    assert small.late_s == pytest.approx(0.2, rel=0.1)
    assert small.transfer_s < 0.05


def test_collectives_are_known_without_a_trace(ranks: Ranks) -> None:
    source = """
    import time
    if rank == 0:
        time.sleep(0.15)
    came = time.monotonic()
    dist.all_reduce(torch.ones(6, 7, dtype=torch.float64))
    """
    result = run(ranks, source, trace=False)
    late_s = ranks.session(2).pull("came", rank=0) - ranks.session(2).pull("came", rank=1)
    (record,) = ddt.collectives(result).to_frame().to_dict("records")
    assert record["bytes"] == 6 * 7 * 8
    assert record["straggler"] == 0
    assert record["late_ms"] == pytest.approx(1e3 * late_s, rel=0.1)
    assert (
        record["line"] == "cell[1] line 6: dist.all_reduce(torch.ones(6, 7, dtype=torch.float64))"
    )
    assert not result.snapshot.timeline


def test_collectives_that_are_issued_as_one_count_once(ranks: Ranks) -> None:
    source = """
    from torch.distributed import _coalescing_manager
    first, second = torch.ones(4), torch.ones(3)
    with _coalescing_manager():
        dist.all_reduce(first)
        dist.all_reduce(second)
    with _coalescing_manager(async_ops=True) as handles:
        dist.all_reduce(first)
        dist.all_reduce(second)
    handles.wait()
    assert first.sum() + second.sum() == 7 * 4
    """
    result = run(ranks, source, trace=False)
    calls = [(call.sequence, call.shapes, call.status) for call in result.snapshot.ranks[0].calls]
    assert calls == [(n, ((4,), (3,)), "done") for n in (1, 2)]
    assert ddt.collectives(result).to_frame().bytes.tolist() == [28, 28]


def test_work_beside_an_asynchronous_collective_is_not_waiting(ranks: Ranks) -> None:
    source = """
    import time
    dist.barrier()
    handle = dist.all_reduce(torch.ones(10), async_op=True)
    began = time.monotonic()
    while time.monotonic() < began + (0.3 if rank == 0 else 0.5):
        pass
    ended = time.monotonic()
    handle.wait()
    dist.barrier()
    worked_ms, waited_ms = 1e3 * (ended - began), 1e3 * (time.monotonic() - ended)
    """
    frame = ddt.timeline(run(ranks, source)).to_frame().set_index("rank")
    pull = ranks.session(2).pull
    for rank in (0, 1):  # what the cell does around them is work, too
        assert frame.compute_ms[rank] > 0.9 * pull("worked_ms", rank=rank)
    waited = pull("waited_ms", rank=0)
    # the first barrier takes a while, too, and a transfer is no waiting
    assert 0.3 * waited < frame.waiting_ms[0] < waited + 100


def test_loading_data_is_distinguished(ranks: Ranks) -> None:
    source = """
    import time
    reading = []
    class Slow(torch.utils.data.Dataset):
        def __len__(self): return 4
        def __getitem__(self, at):
            start = time.monotonic()
            time.sleep(0.05)
            reading.append(1e3 * (time.monotonic() - start))
            return torch.ones(2)
    start = time.monotonic()
    for batch in torch.utils.data.DataLoader(Slow(), batch_size=2):
        pass
    took_ms = 1e3 * (time.monotonic() - start)
    read_ms = sum(reading)
    """
    frame = ddt.timeline(run(ranks, source)).to_frame().set_index("rank")
    for rank in (0, 1):
        read_ms, took_ms = (ranks.session(2).pull(x, rank=rank) for x in ("read_ms", "took_ms"))
        assert 200 <= read_ms <= frame.data_ms[rank] <= took_ms


def test_the_users_own_profiler_works_in_a_traced_cell(ranks: Ranks) -> None:
    source = """
    step()
    with torch.profiler.profile() as profile:
        step()
    names = [event.key for event in profile.key_averages()]
    assert "aten::addmm" in names
    """
    result = run(ranks, TRAINING + dedent(source))
    (first, _) = result.snapshot.timeline
    assert first.traced_until_s is not None
    assert first.traced_until_s < first.ended_s
    assert len(first.steps_us) == 2


def test_a_trace_leaves_nothing_behind(ranks: Ranks) -> None:
    session = ranks.session(2)
    session.restart()
    check = """
    from torch.nn.modules import module
    from torch.optim import optimizer as optimizers
    import threading
    state = (
        dist.Work.wait.__qualname__,
        len(module._global_forward_hooks) + len(module._global_forward_pre_hooks),
        len(optimizers._global_optimizer_post_hooks),
        torch.autograd._profiler_enabled(),
        torch.autograd.profiler._prepare_profiler.__name__,
        threading.active_count(),
    )
    state
    """
    before = session.run(dedent(check))
    traced = session.run(TRAINING + "step()\nraise KeyError('x')", trace=True)
    assert {error.type for error in traced.errors.values()} == {"KeyError"}
    after = session.run(dedent(check))
    assert before.outputs == after.outputs
    assert all(timeline.steps_us for timeline in traced.snapshot.timeline)


def test_a_hang_in_a_traced_cell_is_found(ranks: Ranks) -> None:
    session = ranks.session(2)
    session.restart()
    result = session.run("if rank == 0:\n    dist.all_reduce(torch.ones(1))", trace=True)
    assert result.snapshot.outcome == "hung"
    (finding,) = ddt.diagnose(result).findings
    assert list(finding.ranks) == [1]
    assert "never: rank 1" in ddt.collectives(result).to_html()


def test_sharded_models_have_their_collectives(ranks: Ranks) -> None:
    source = """
    from torch.distributed.fsdp import fully_shard
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model(torch.randn(4, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    result = run(ranks, source)
    ops = {met.first.op for met in meetings(result.snapshot)}
    assert any(op.startswith("all_gather") for op in ops)
    assert any(op.startswith("reduce_scatter") for op in ops)
    (memory, _) = result.snapshot.memory
    whole = 2 * (64 * 64 + 64) * 4
    assert memory.parts["parameters"] == whole // 2
    assert memory.parts["optimizer state"] == pytest.approx(whole, rel=0.02)
