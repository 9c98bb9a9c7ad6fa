"""Where a value goes after a collective, as the source shows it; no processes."""

from __future__ import annotations

import textwrap

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Report
from ddt_notebook.model.training import OptimizerTraining, RankTraining

from .builders import all_reduce, at, call, only, rank, snapshot


def reduced(rest: str, ranks: int = 2, root: int = 0) -> Report:
    """``x`` is reduced to one rank in line 1, then the rest of the cell runs."""
    source = f"dist.reduce(x, dst={root})\n" + textwrap.dedent(rest)
    calls = call("reduce", 1, reduce_op="SUM", root=root)
    return diagnose(snapshot(*(rank(r, calls) for r in range(ranks)), source=source))


#: All ranks get rank 0's value.
AGREE = "def agree(t):\n    t = t.clone()\n    dist.broadcast(t, src=0)\n    return t\n"


@pytest.mark.parametrize(
    "rest",
    [
        "print(x)",
        "print('sum over all ranks', x)",
        "x /= world_size\nprint('mean', x.item())",
        "mean = x / world_size\nif mean < 1:\n    best = mean",
        "history = []\nhistory.append(x.item())\nprint(history)",
        "if rank == 1:\n    print(x)",
        AGREE + "if x < agree(y):\n    print('good')",
        "for step in range(3):\n    if step == 2:\n        print(x)",
        "with torch.no_grad():\n    while x > 3:\n        x -= 1",
        "assert x == 3",
        "print(f'rank {rank}: mean {x.item() / world_size}')",
    ],
)
def test_reading_a_reduced_value_on_another_rank_than_the_destination(rest: str) -> None:
    finding = only(reduced(rest))
    assert (finding.symptom, finding.cause) == ("D.2.4", "reduce-read-on-wrong-rank")
    assert (finding.ranks, finding.confidence) == ([1], "likely")


@pytest.mark.parametrize(
    "rest",
    [
        "if rank == 0:\n    print(x)",
        "if dist.get_rank() != 0:\n    pass\nelse:\n    print(x)",
        "mean = x / world_size\nif rank == 0:\n    print(mean)",
        "mean, n = x / world_size, 3\nif rank == 0:\n    print(mean)",
        "pair = [0, 0]\npair[i] = x.item()\nif rank == 0:\n    print(pair)",
        "dist.broadcast(x, src=0)\nprint(x)",
        "x = torch.zeros(4)\nprint(x)",
        "x.zero_()\nprint(x)",
        "print(x.shape, len(x))",
        "print(x if rank == 0 else '')",
        "rank == 0 and print(x)",
        "report(x)",
        "if is_main:\n    print(x)",
        "if x is None:\n    print('nothing')",
        "def print(*words):\n    return\nprint(x)",
        "synchronised = fix(x)\nprint(synchronised)",
        AGREE + "if agree(x) < 3:\n    print('good')",
        AGREE + "while agree(x / world_size) > 3:\n    x -= 1",
        AGREE + "print('sum', agree(t=x))",
        AGREE + "assert agree(x) == 3",
    ],
)
def test_legal_uses_of_a_reduced_value_are_silent(rest: str) -> None:
    report = reduced(rest)
    assert report.ok
    assert not report.hints


@pytest.mark.parametrize("rest", ["mean = x.item() / world_size", "print('rank', rank, 'has', x)"])
def test_a_value_that_nothing_uses_is_a_hint(rest: str) -> None:
    report = reduced(rest)
    assert report.ok
    assert [hint.cause for hint in report.hints] == ["reduce-read-on-wrong-rank"]


def pending(rest: str, before: str = "work = dist.all_reduce(x, async_op=True)") -> Report:
    source = f"{before}\n" + textwrap.dedent(rest)
    calls = all_reduce(1, asynchronous=True)
    return diagnose(snapshot(rank(0, calls), rank(1, calls), source=source))


@pytest.mark.parametrize(
    "rest",
    [
        "y = x + 1\nwork.wait()",
        "if x > 0:\n    print('positive')\nwork.wait()",
        "x /= 2\nwork.wait()",
        "for row in x:\n    print(row)\nwork.wait()",
        "with torch.no_grad():\n    y = x * 2\nwork.wait()",
    ],
)
def test_reading_a_value_before_the_wait_is_reported(rest: str) -> None:
    finding = only(pending(rest))
    assert (finding.cause, finding.ranks) == ("result-read-before-wait", [0, 1])
    assert (finding.places[0].cell, finding.places[0].role) == (3, "reads")


@pytest.mark.parametrize(
    "rest",
    [
        "work.wait()\ny = x + 1",
        "y = z + 1\nwork.wait()\nprint(x)",
        "print(x.shape, x.dtype)\nwork.wait()",
        "while not work.is_completed():\n    pass\nprint(x)",
        "finish(work)\nprint(x)",
        "x = torch.ones(4)\nprint(x)\nwork.wait()",
        "dist.barrier()\nprint(x)",
        "if ready:\n    work.wait()\nprint(x)",
        "try:\n    work.wait()\nfinally:\n    print(x)",
    ],
)
def test_reading_a_value_after_the_wait_is_silent(rest: str) -> None:
    report = pending(rest)
    assert report.ok
    assert not report.hints


@pytest.mark.parametrize(
    ("returned", "found"), [("x.sum()", True), ("x", False), ("(work, x)", False)]
)
def test_returning_a_value_before_the_wait_is_reported(returned: str, found: bool) -> None:
    start = "def start(x):\n    work = dist.all_reduce(x, async_op=True)\n    return " + returned
    calls = all_reduce(2, asynchronous=True)
    report = diagnose(snapshot(rank(0, calls), rank(1, calls), source=f"{start}\nstart(x)"))
    assert bool(report.findings) is found


def test_a_sum_that_is_called_a_mean_is_reported() -> None:
    shown = "if rank == 0:\n    print('mean loss', x.item())"
    for extra, hinted in (("", True), ("x /= world_size\n", False), ("x = x.mean()\n", False)):
        source = f"dist.all_reduce(x)\n{extra}{shown}"
        report = diagnose(snapshot(rank(0, all_reduce(1)), rank(1, all_reduce(1)), source=source))
        assert report.ok
        causes = [hint.cause for hint in report.hints]
        assert causes == (["sum-shown-as-mean"] if hinted else []), source


HOOKS = """handles.append(dist.all_reduce(p.grad, async_op=True))
for handle in handles[:-1]:
    handle.wait()
optimizer.step()
"""


def hooked(statuses: list[str], steps: int = 3, source: str = HOOKS) -> Report:
    """Each rank reduced gradients in line 1 and took some steps in line 4."""
    calls = [all_reduce(1, asynchronous=True, status=status) for status in statuses]
    optimizer = OptimizerTraining(
        name="optimizer", kind="SGD", steps=steps, where=at(4), shapes={"4": 2}
    )
    trainings = tuple(RankTraining(rank=r, optimizers=(optimizer,)) for r in (0, 1))
    return diagnose(snapshot(rank(0, *calls), rank(1, *calls), source=source, training=trainings))


def test_steps_before_the_last_gradient_has_arrived_are_reported() -> None:
    finding = only(hooked(["done", "issued"] * 3))
    assert (finding.cause, finding.ranks) == ("result-read-before-wait", [0, 1])
    assert finding.places[0].line == 4


@pytest.mark.parametrize(
    ("statuses", "steps", "source"),
    [
        (["done", "done"] * 3, 3, HOOKS),
        (["issued"] * 6, 3, HOOKS),  # another thread may wait for them
        (["done"] * 5 + ["issued"], 3, HOOKS),  # each is waited for in the next step
        (["done", "issued"] * 3, 2, HOOKS),  # too few steps to tell
        (["done", "issued"] * 3, 3, HOOKS.replace("dist.all_reduce", "join_step")),
    ],
)
def test_handles_that_may_have_been_waited_for_are_silent(
    statuses: list[str], steps: int, source: str
) -> None:
    assert hooked(statuses, steps, source).ok
