"""Corrected cells: which are derived from a finding and the source, and which are refused."""

from __future__ import annotations

import textwrap

import pytest

from ddt_notebook.diagnosis.corrections import correction
from ddt_notebook.model import Cell, Fact, Finding, Place, Snapshot


def corrected(
    cause: str,
    source: str,
    line: int,
    *,
    first_line: int = 1,
    values: dict[str, str] | None = None,
    fact: tuple[str, int] | None = None,
) -> str:
    """The corrected cell; empty if there is none. ``fact``: the kind of one, and its line."""
    cell = Cell(number=3, source=textwrap.dedent(source).strip("\n"), first_line=first_line)
    finding = Finding(
        symptom="D.2.1",
        stage="training & evaluation",
        cause=cause,
        ranks=[1],
        waiting=[0],
        values=values or {},
        places={0: Place(file="cell[3]", line=line)},
        facts=[Fact(kind=fact[0], place=Place(file="cell[3]", line=fact[1]))] if fact else [],
    )
    made = correction(finding, Snapshot(cell=cell, world_size=2))
    return made.source if made else ""


def out(source: str, line: int, **fields: int) -> str:
    return corrected("collective-under-rank-condition", source, line, **fields)


def dedented(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_the_first_call_under_the_condition_moves_above_it() -> None:
    source = """
        loss = torch.ones(1)
        if rank == 0:
            # the mean of all
            dist.all_reduce(loss)
            print(loss)
        print("done")
    """
    expected = """
        loss = torch.ones(1)
        # the mean of all
        dist.all_reduce(loss)
        if rank == 0:
            print(loss)
        print("done")
    """
    assert out(source, 4) == dedented(expected)
    assert out(source, 5, first_line=2) == dedented(expected)


def test_the_last_call_moves_below_the_condition_and_one_between_splits_it() -> None:
    source = """
        def step(model):
            if dist.get_rank() != 1:
                print("saving")
                dist.barrier()
            return model
    """
    assert out(source, 4) == dedented("""
        def step(model):
            if dist.get_rank() != 1:
                print("saving")
            dist.barrier()
            return model
    """)
    between = """
        if is_rank_zero:
            save(model)
            dist.barrier(
                group=None,
            )
            print("saved")
    """
    assert out(between, 3) == dedented("""
        if is_rank_zero:
            save(model)
        dist.barrier(
            group=None,
        )
        if is_rank_zero:
            print("saved")
    """)


def test_a_condition_on_one_line() -> None:
    assert out("if rank == 0: dist.barrier()\nx = 1", 1) == "dist.barrier()\nx = 1"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("if rank == 0:\n    dist.barrier()\nelse:\n    work()", 2),
        ("if rank == 0:\n    total = sums()\n    dist.all_reduce(total)", 3),
        ("if rank == 0:\n    dist.all_reduce(a)\n    dist.all_reduce(b)", 2),
        ("if loss > 3:\n    dist.barrier()", 2),
        ("if rank == draw():\n    dist.barrier()", 2),
        ("if rank == 0:\n    for x in y:\n        dist.all_reduce(x)", 3),
        ("if rank == 0:\n    pass\nelif rank == 1:\n    dist.barrier()", 4),
        ("if rank == 0:\n    dist.barrier(); x = 1", 2),
        ("while rank:\n    dist.barrier()", 2),
        ("dist.barrier()", 1),
        ("if rank == 0: dist.barrier(); x = 1", 1),
        ("this is no python", 1),
    ],
)
def test_a_correction_that_cannot_be_derived_is_refused(source: str, line: int) -> None:
    assert not out(source, line)


def test_a_call_of_set_epoch_is_added() -> None:
    source = """
        def main():
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            for epoch in range(3):
                for x in loader:
                    train(x)
    """
    changed = corrected("set-epoch-forgotten", source, 4)
    assert "for epoch in range(3):\n        sampler.set_epoch(epoch)\n        for x" in changed
    inline = """
        loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=True))
        for epoch in range(3):
            for i, x in enumerate(loader):
                train(x)
    """
    assert "\n    loader.sampler.set_epoch(epoch)\n" in corrected("set-epoch-forgotten", inline, 3)


@pytest.mark.parametrize(
    "source",
    [
        "sampler = DistributedSampler(d, shuffle=False)\nfor epoch in range(2):\n    pass",
        "sampler = DistributedSampler(d)\nfor _ in range(2):\n    pass",
        "a = DistributedSampler(d)\nb = DistributedSampler(e)\nfor epoch in range(2):\n    pass",
        "def f():\n    s = DistributedSampler(d)\nfor epoch in range(2):\n    pass",
    ],
)
def test_set_epoch_is_not_added_where_the_sampler_or_the_loop_is_unclear(source: str) -> None:
    assert not corrected("set-epoch-forgotten", source, 1)


def test_the_model_is_wrapped_in_ddp() -> None:
    source = """
        from torch.nn.parallel import DistributedDataParallel as Wrapped
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.train()
    """
    changed = corrected("model-not-wrapped", source, 3)
    assert "model = Wrapped(model)\noptimizer = " in changed
    assert not corrected("model-not-wrapped", source + "    print(model.weight)", 3)
    assert not corrected("model-not-wrapped", "o = torch.optim.SGD(net.parameters())", 1)


def test_the_model_is_called_through_the_wrapper() -> None:
    source = "é = model.module(x); y = model.module(x)\nz = model.module.head(x)"
    changed = corrected("module-called-past-ddp", source, 1)
    assert changed == "é = model(x); y = model(x)\nz = model.module.head(x)"


def test_an_attribute_of_the_wrapped_model_is_read_through_module() -> None:
    source = "model = DDP(model)\nw = model.head.weight\nv = model.head.bias"
    changed = corrected("wrapped-by-ddp", source, 2, values={"name": "head"})
    assert changed == "model = DDP(model)\nw = model.module.head.weight\nv = model.module.head.bias"
    assert not corrected("wrapped-by-ddp", source, 2)


def test_device_ids_are_removed_on_the_cpu() -> None:
    source = "ddp = DDP(model, device_ids=[rank], output_device=rank, bucket_cap_mb=4)"
    assert corrected("device-ids-on-cpu", source, 1) == "ddp = DDP(model, bucket_cap_mb=4)"


def test_a_sampler_is_added_to_the_loader() -> None:
    source = """
        loader = DataLoader(
            data,
            batch_size=8,
            shuffle=True,
        )
        other = DataLoader(validation, batch_size=4)
    """
    named = {"loader": "loader"}
    assert corrected("no-distributed-sampler", source, 1, values=named) == dedented("""
        loader = DataLoader(data, batch_size=8, sampler=torch.utils.data.DistributedSampler(data))
        other = DataLoader(validation, batch_size=4)
    """)
    assert not corrected("no-distributed-sampler", source, 1, values={"loader": "batches"})
    computed = "loader = DataLoader(make(), batch_size=8)"
    assert not corrected("no-distributed-sampler", computed, 1, values=named)


def test_a_sampler_takes_its_numbers_from_the_group() -> None:
    source = "s = DistributedSampler(d, num_replicas=2, rank=0, shuffle=False)"
    expected = "s = DistributedSampler(d, shuffle=False)"
    assert corrected("sampler-for-wrong-rank", source, 1) == expected
    assert not corrected("sampler-for-wrong-rank", "s = DistributedSampler(d, 2, 0)", 1)


def test_shuffle_is_removed_beside_a_sampler() -> None:
    source = "x = DataLoader(d, 8, sampler=s, shuffle=True)"
    assert corrected("sampler-with-shuffle", source, 1) == "x = DataLoader(d, 8, sampler=s)"
    assert not corrected("sampler-with-shuffle", "x = DataLoader(d, shuffle=True)", 1)


def test_reduce_becomes_all_reduce() -> None:
    source = "if x:\n    dist.reduce(loss, 0, op=dist.ReduceOp.MAX)\nprint(loss)"
    expected = "if x:\n    dist.all_reduce(loss, op=dist.ReduceOp.MAX)\nprint(loss)"
    assert corrected("reduce-read-on-wrong-rank", source, 3, fact=("reduced-to", 2)) == expected
    assert not corrected("reduce-read-on-wrong-rank", source, 3)


def test_the_group_is_formed_once() -> None:
    source = 'def main():\n    dist.init_process_group(\n        "gloo",\n    )\nmain()'
    assert corrected("group-initialized-twice", source, 2) == dedented("""
        def main():
            if not dist.is_initialized():
                dist.init_process_group(
                    "gloo",
                )
        main()
    """)
    line = 'dist.init_process_group("gloo"); dist.all_reduce(t); print("ä")  # once'
    assert corrected("group-initialized-twice", line, 1) == (
        "if not dist.is_initialized():\n"
        '    dist.init_process_group("gloo")\n'
        'dist.all_reduce(t); print("ä")  # once'
    )
    assert not corrected("group-initialized-twice", "x = 1; dist.init_process_group()", 1)
    assert not corrected("group-initialized-twice", "init_process_group()", 1)


def test_a_loss_that_is_kept_is_detached() -> None:
    seen = ("keeps-graph", 1)
    kept = corrected("loss-keeps-graph", "total += loss", 2, fact=seen)
    assert kept == "total += loss.detach()"
    kept = corrected("loss-keeps-graph", "losses.append(loss)", 2, fact=seen)
    assert kept == "losses.append(loss.detach())"
    assert not corrected("loss-keeps-graph", "total += model(x)", 2, fact=seen)
    whole = "total += loss\ntotal.backward()"
    assert not corrected("loss-keeps-graph", whole, 2, fact=seen)


def test_a_cause_without_a_correction() -> None:
    assert not corrected("loop-ends-by-clock", "while True:\n    dist.barrier()", 2)


def on_time(source: str, decides: int, waits: int, **fields: object) -> str:
    """The corrected cell of a loop that rank 1 left by its clock at the line ``decides``."""
    cell = Cell(number=3, source=dedented(source), **fields)  # type: ignore[arg-type]
    finding = Finding(
        symptom="D.2.1",
        stage="training & evaluation",
        cause="loop-ends-by-clock",
        ranks=[1],
        waiting=[0],
        places={0: Place(file=cell.name, line=waits), 1: Place(file=cell.name, line=decides)},
    )
    made = correction(finding, Snapshot(cell=cell, world_size=2, device="cpu"))
    return made.source if made else ""


def test_the_ranks_agree_when_the_loop_ends() -> None:
    loop = """
        end = time.time() + 1
        while (step < 10
               and time.time() < end):
            train()
    """
    assert on_time(loop, 2, 4) == dedented("""
        end = time.time() + 1

        def on_all_ranks(condition):
            agreed = torch.tensor(int(bool(condition)))
            dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
            return bool(agreed)

        while (on_all_ranks(step < 10 and time.time() < end)):
            train()
    """)
    leaves = """
        def run():
            while True:
                train()
                if time.time() > end: break
    """
    made = on_time(leaves, 4, 3)
    assert "        if on_any_rank(time.time() > end): break" in made
    assert "    def on_any_rank(condition):\n        agreed" in made
    assert "ReduceOp.MAX" in made


@pytest.mark.parametrize(
    ("source", "decides", "waits"),
    [
        ("while time.time() < end:\n    if done():\n        break\n    train()", 1, 4),
        ("while time.time() < end:\n    train()\ndist.barrier()", 1, 3),
        ("for x in data:\n    if time.time() > end:\n        break\n    train()", 2, 4),
        ("while time.time() < end:\n    train()\nelse:\n    last()", 1, 2),
        ("while best(dist.all_reduce(x)):\n    train()", 1, 2),
        ("on_all_ranks = 1\nwhile time.time() < end:\n    train()", 2, 3),
        ("while time.time() < end:\n    train()", 2, 2),
    ],
)
def test_a_loop_that_ends_in_another_way_stays(source: str, decides: int, waits: int) -> None:
    assert on_time(source, decides, waits) == ""


def test_a_script_needs_the_names() -> None:
    loop = "while time.time() < end:\n    train()"
    imports = "import torch, torch.distributed as dist\n"
    assert on_time(loop, 1, 2, file="train.py") == ""
    assert "on_all_ranks(" in on_time(imports + loop, 2, 3, file="train.py")
