"""Values of a rank's own share that are shown for all, read from the source: no processes."""

from __future__ import annotations

import textwrap

import pytest

from ddt_notebook.diagnose import diagnose
from ddt_notebook.model import Report

from .builders import all_reduce, only, rank, snapshot

LOADER = "loader = DataLoader(data, sampler=DistributedSampler(data))\n"
COUNT = """\
correct = total = 0
for x, y in loader:
    correct += (model(x) == y).sum().item()
    total += len(y)
"""


def run(source: str, **fields: object) -> Report:
    source = textwrap.dedent(source)
    return diagnose(snapshot(*(rank(r) for r in range(3)), source=source, **fields))


@pytest.mark.parametrize(
    "source",
    [
        f"{LOADER}{COUNT}if rank == 0:\n    print('accuracy', correct / total)",
        f"{LOADER}{COUNT}acc = correct / total\nif rank == 0:\n    print(f'{{acc:.2f}}')",
        f"{LOADER}{COUNT}acc = correct / total\nif dist.get_rank() == 0:\n    print(acc)",
        "mine = labels[rank::world_size]\nscore = f1(mine)\nif rank == 0:\n    print(score)",
        "part = data.chunk(world_size)[rank]\nacc = hits(part)\nif not rank:\n    print(acc)",
        (
            f"def load():\n    {LOADER}    return loader\nloader = load()\n{COUNT}"
            "if rank == 0:\n    print(correct / total)"
        ),
        (
            f"def load():\n    {LOADER}    return other, loader\ntrain, loader = load()\n{COUNT}"
            "if rank == 0:\n    print(correct / total)"
        ),
        "own = Subset(data, range(rank, 9, 3))\nacc = test(own)\nif rank < 1:\n    print(acc)",
    ],
)
def test_metric_of_one_rank(source: str) -> None:
    finding = only(run(source))
    assert (finding.symptom, finding.cause) == ("D.2.4", "metric-not-reduced")
    assert (finding.ranks, finding.confidence) == ([0], "likely")


@pytest.mark.parametrize(
    "source",
    [
        f"{LOADER}{COUNT}print('accuracy', correct / total)",
        f"{LOADER}{COUNT}if rank == 0:\n    print('accuracy of rank 0', correct / total)",
        (
            f"{LOADER}{COUNT}stats = torch.tensor([correct, total])\ndist.all_reduce(stats)\n"
            "if rank == 0:\n    print('accuracy', stats[0] / stats[1])"
        ),
        (
            f"{LOADER}{COUNT}accs = [None] * 3\ndist.all_gather_object(accs, correct / total)\n"
            "if rank == 0:\n    print('accuracy', sum(accs) / 3)"
        ),
        (
            "def total_of(v):\n    t = torch.tensor(v)\n    dist.all_reduce(t)\n    return int(t)\n"
            f"{LOADER}{COUNT}acc = total_of(correct) / total_of(total)\n"
            "if rank == 0:\n    print('accuracy', acc)"
        ),
        f"loader = DataLoader(data)\n{COUNT}if rank == 0:\n    print('accuracy', correct / total)",
        (
            "sampler = DistributedSampler(data, num_replicas=1, rank=0)\n"
            f"loader = DataLoader(data, sampler=sampler)\n{COUNT}if rank == 0:\n    print(correct)"
        ),
        f"{LOADER}steps = 0\nfor batch in loader:\n    steps += 1\nif rank == 0:\n    print(steps)",
        f"{LOADER}{COUNT}if rank == 0:\n    print('samples', total)",
        f"{LOADER}{COUNT}log(correct / total)",
        f"{LOADER}{COUNT}best = max(best, correct / total)",
    ],
)
def test_what_is_no_fault(source: str) -> None:
    report = run(source)
    assert report.ok
    assert not report.hints


def test_decision_by_the_own_share() -> None:
    finding = only(run(f"{LOADER}{COUNT}if correct / total > 0.9:\n    torch.save(model, path)"))
    assert (finding.cause, finding.ranks) == ("metric-not-reduced", [0, 1, 2])


def test_loss_is_a_hint() -> None:
    losses = "losses = []\nfor x in loader:\n    losses.append(loss(x).item())\n"
    shown = "if rank == 0:\n    print('validation loss', sum(losses) / len(losses))"
    assert [h.cause for h in run(LOADER + losses + shown).hints] == ["local-loss-as-global"]
    trained = losses.replace("losses.append", "loss(x).backward()\n    losses.append")
    assert not run(LOADER + trained + shown).hints
    assert run(LOADER + trained + shown.replace("validation", "global")).hints
    assert not run(LOADER + trained + shown.replace("'validation", "global_step, 'train")).hints


def test_only_after_a_run_of_all_ranks() -> None:
    source = f"{LOADER}{COUNT}if rank == 0:\n    print('accuracy', correct / total)"
    idle = rank(1, state="idle")
    assert diagnose(snapshot(rank(0, all_reduce(members=(0,))), idle, source=source)).ok
