"""Values of a rank's own share that are shown for all, read from the source: no processes."""

from __future__ import annotations

import textwrap

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Report

from .builders import all_reduce, only, rank, snapshot

LOADER = "loader = DataLoader(data, sampler=DistributedSampler(data))\n"
COUNT = """\
correct = total = 0
for x, y in loader:
    correct += (model(x) == y).sum().item()
    total += len(y)
"""
EVALUATE = """\
@torch.no_grad()
def evaluate(model, batches):
    good = total = loss = 0
    for x, y in batches:
        good += (model(x) == y).sum().item()
        loss += criterion(model(x), y).item()
        total += len(y)
    return good / total
"""
REDUCED = """\
def reduced(batches):
    good = total = 0
    for x, y in batches:
        good += (model(x) == y).sum().item()
        total += len(y)
    acc = torch.tensor(good / total)
    dist.all_reduce(acc)
    return acc.item() / 3
"""
NESTED = """\
def evaluate(model, batches):
    good = total = 0
    def share():
        t = torch.tensor([good, total])
        dist.all_reduce(t)
    for x, y in batches:
        good += (model(x) == y).sum().item()
        total += len(y)
    share()
    return good / total
"""
PAIR = EVALUATE.replace("return good", "return loss / total, good")
ITEMS = EVALUATE.replace("return good / total", "return {'loss': loss, 'acc': good / total}")
MEAN = "def mean(v):\n    t = torch.tensor(v)\n    dist.all_reduce(t)\n    return t.item() / 3\n"
BEST = "if acc > best:\n    best = acc\n"
CALL = "acc = evaluate(model, loader)\n"
SHOWN = "if rank == 0:\n    print('accuracy', acc)"
TAKEN = "x, y = data.take(range(rank, len(data), world_size))\n"
CLASS = """\
class Trainer:
    def __init__(self, val):
        self.val, self.best = val, 0
        self.batches = val
    def evaluate(self, batches):
        good, total = 0, 0
        for x, y in batches:
            good += (self.model(x) == y).sum().item()
            total += len(y)
        return good / total
    def fit(self):
        for epoch in range(2):
            acc = self.evaluate(self.batches)
            if acc > self.best:
                self.best = acc
            if rank == 0:
                print('validation', acc)
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
        f"{REDUCED}{EVALUATE}{LOADER}{CALL}{SHOWN}",
        "own = Subset(data, range(rank, 9, 3))\nacc = test(own)\nif rank < 1:\n    print(acc)",
        f"{TAKEN}acc = (model(x) == y).float().mean().item()\n{SHOWN}",
        f"mine = range(rank, len(data), 3)\nx, y = data.take(mine)\nacc = test(x, y)\n{SHOWN}",
        (
            "for epoch in range(2):\n    for a, b in batches:\n"
            "        loss(model(a), b).backward()\n"
            f"    {TAKEN}    acc = test(x, y)\n{textwrap.indent(SHOWN, '    ')}"
        ),
    ],
)
def test_a_metric_of_one_rank_is_reported(source: str) -> None:
    finding = only(run(source))
    assert (finding.symptom, finding.cause) == ("D.2.4", "metric-not-reduced")
    assert (finding.ranks, finding.confidence) == ([0], "likely")


@pytest.mark.parametrize(
    "source",
    [
        (  # settings that were made with the rank's number are no part of the data
            "args = Settings(rank=int(os.environ['RANK']), limit=9)\nlimit = args.limit\n"
            "for x, y in loader:\n    if count(x) > limit:\n        break\n"
        ),
        f"{LOADER}{COUNT}print('accuracy', correct / total)",
        f"{NESTED}{LOADER}{CALL}{SHOWN}",
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
        (
            f"{TAKEN}for epoch in range(2):\n    out = model(x)\n    loss(out, y).backward()\n"
            f"    acc = (out == y).float().mean().item()\n{textwrap.indent(SHOWN, '    ')}"
        ),
        f"def take(i):\n    return inputs, labels\n{TAKEN}acc = test(x, y)\n{SHOWN}".replace(
            "data.take", "take"
        ),
        f"x, y = data.take(range(9))\nacc = test(x, y)\n{SHOWN}",
        f"{TAKEN}x, y = data.take(range(9))\nacc = test(x, y)\n{SHOWN}",
        f"{LOADER}{COUNT}best = max(best, correct / total)",
        (
            f"{TAKEN}hits = hvd.allreduce((model(x) == y).float().mean())\n"
            "if rank == 0:\n    print('accuracy', hits)"
        ),
        (
            "mine = order[rank::3]\nscores = hvd.allgather(model(x[mine]))\n"
            "score = auc(scores)\nif rank == 0:\n    print('area', score)"
        ),
        (
            f"{LOADER}engine, *_ = deepspeed.initialize(model=net)\nbatches = iter(loader)\n"
            f"loss = engine.eval_batch(batches)\n{SHOWN.replace('acc', 'loss')}"
        ),
    ],
)
def test_look_alikes_are_silent(source: str) -> None:
    report = run(source)
    assert report.ok
    assert not report.hints


def test_a_decision_by_one_ranks_share_is_reported() -> None:
    finding = only(run(f"{LOADER}{COUNT}if correct / total > 0.9:\n    torch.save(model, path)"))
    assert (finding.cause, finding.ranks) == ("metric-not-reduced", [0, 1, 2])


def test_a_training_loss_of_one_rank_is_at_most_a_hint() -> None:
    losses = "losses = []\nfor x in loader:\n    losses.append(loss(x).item())\n"
    shown = "if rank == 0:\n    print('validation loss', sum(losses) / len(losses))"
    assert only(run(LOADER + losses + shown)).cause == "metric-not-reduced"
    trained = losses.replace("losses.append", "loss(x).backward()\n    losses.append")
    assert not run(LOADER + trained + shown).hints
    said = run(LOADER + trained + shown.replace("validation", "global"))
    assert said.ok
    assert [hint.cause for hint in said.hints] == ["local-loss-as-global"]
    assert not run(LOADER + trained + shown.replace("'validation", "global_step, 'train")).hints


def test_a_run_of_some_ranks_gives_no_finding_on_metrics() -> None:
    source = f"{LOADER}{COUNT}if rank == 0:\n    print('accuracy', correct / total)"
    idle = rank(1, state="idle")
    assert diagnose(snapshot(rank(0, all_reduce(members=(0,))), idle, source=source)).ok


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (f"{EVALUATE}{LOADER}{CALL}{SHOWN}", "    print('accuracy', acc)"),
        (f"{EVALUATE}{LOADER}{CALL}{BEST}{SHOWN}", "    print('accuracy', acc)"),
        (
            f"{EVALUATE}{LOADER}{CALL}print(f'rank {{rank}}: {{acc}}')\n{SHOWN}",
            "    print('accuracy",
        ),
        (f"{PAIR}{LOADER}loss, {CALL}{BEST}{SHOWN}", "    print('accuracy', acc)"),
        (f"{PAIR}{LOADER}both = evaluate(model, loader)\nacc = both[1]\n{SHOWN}", "    print('acc"),
        (
            (
                f"{ITEMS}{LOADER}got = evaluate(model, batches=loader)\n"
                "if rank == 0:\n    print(got['acc'])"
            ),
            "    print(got['acc'])",
        ),
        (
            (
                f"{EVALUATE}{LOADER}def result():\n    return evaluate(model, loader)\n"
                f"acc = 100 * result()\n{SHOWN}"
            ),
            "    print('accuracy', acc)",
        ),
        (f"{CLASS}{LOADER}Trainer(loader).fit()", "                print('validation', acc)"),
        (
            f"{EVALUATE}{LOADER}train = evaluate(model, loader)\nshow(train)\n{CALL}{SHOWN}",
            "    print('accuracy', acc)",
        ),
    ],
)
def test_a_metric_that_a_function_returns_is_reported(source: str, line: str) -> None:
    finding = only(run(source))
    assert (finding.cause, finding.ranks) == ("metric-not-reduced", [0])
    number = next(at for at, text in enumerate(source.splitlines(), 1) if text.startswith(line))
    assert finding.places[0].line == number


AT_ONCE = "if rank == 0:\n    print(f'accuracy {evaluate(model, loader):.3f}')"
AVERAGED = "mean(evaluate(model, loader))"
REDUCED = "dist.all_reduce(good)\n    return good"


def test_a_metric_that_is_printed_where_it_is_returned_is_reported() -> None:
    for shown in (AT_ONCE, f"for epoch in range(3):\n{textwrap.indent(AT_ONCE, '    ')}"):
        finding = only(run(f"{EVALUATE}{LOADER}{shown}"))
        assert (finding.cause, finding.ranks) == ("metric-not-reduced", [0])
        assert finding.places[0].code.startswith("print(f'accuracy {evaluate")


def test_names_of_variables_are_not_shown_to_a_reader() -> None:
    shown = "if rank == 0:\n    print('accuracy', local_acc)"
    finding = only(run(f"{EVALUATE}{LOADER}local_{CALL}{shown}"))
    assert (finding.cause, finding.ranks) == ("metric-not-reduced", [0])


@pytest.mark.parametrize(
    "source",
    [
        f"{EVALUATE}{LOADER}{AT_ONCE.replace('accuracy', 'local accuracy')}",
        f"{EVALUATE}{LOADER}{AT_ONCE.replace('if rank == 0', 'if verbose')}",
        f"{EVALUATE}{LOADER}{AT_ONCE.replace('if rank == 0', 'if True')}",
        f"{EVALUATE}{LOADER}print(f'accuracy {{evaluate(model, loader):.3f}}')",
        f"{EVALUATE}loader = DataLoader(data)\n{AT_ONCE}",
        f"{MEAN}{EVALUATE}{LOADER}{AT_ONCE.replace('evaluate(model, loader)', AVERAGED)}",
        f"{EVALUATE.replace('return good', REDUCED)}{LOADER}{AT_ONCE}",
        f"{EVALUATE}{LOADER}def print(text):\n    send_to_all(text)\n{AT_ONCE}",
        f"{EVALUATE}{LOADER}print(f'{{rank}} has accuracy {{evaluate(model, loader)}}')",
    ],
)
def test_a_metric_that_is_printed_where_it_is_returned_may_be_of_all_ranks(source: str) -> None:
    report = run(source)
    assert report.ok, str(report)
    assert not report.hints


@pytest.mark.parametrize(
    "source",
    [
        f"{MEAN}{EVALUATE}{LOADER}acc = mean(evaluate(model, loader))\n{SHOWN}",
        f"{MEAN}{EVALUATE}{LOADER}{CALL}acc = mean(acc)\n{SHOWN}",
        f"{MEAN}{EVALUATE}{LOADER}{CALL}{BEST}acc = mean(acc)\n{SHOWN}",
        f"{MEAN}{EVALUATE}{LOADER}{CALL}if acc > best:\n    acc = mean(acc)\n{SHOWN}",
        f"{EVALUATE}{LOADER}{CALL}acc = average(acc)\n{SHOWN}",
        f"{EVALUATE}{LOADER}acc = average(evaluate(model, loader))\n{SHOWN}",
        f"{EVALUATE}{LOADER}{CALL}{BEST}dist.gather(acc, accs)\nacc = sum(accs)\n{SHOWN}",
        f"{EVALUATE}{LOADER}{CALL}print('accuracy', acc)",
        f"{EVALUATE}{LOADER}other = DataLoader(data)\nacc = evaluate(model, other)\n{SHOWN}",
        f"{EVALUATE}{LOADER}evaluate = averaged(evaluate)\n{CALL}{SHOWN}",
        f"@averaged\n{EVALUATE}{LOADER}{CALL}{SHOWN}",
        f"{EVALUATE}{LOADER}own = evaluate(model, loader)\nacc = metric.evaluate()\n{SHOWN}",
        f"{PAIR}{LOADER}loss, {CALL}loss, acc = avg(loss), avg(acc)\n{SHOWN}",
        f"{PAIR.replace('good / total', 'float(all_sum(good))')}{LOADER}loss, {CALL}{SHOWN}",
        (
            f"{ITEMS}{LOADER}got = evaluate(model, loader)\ngot = reduce_dict(got)\n"
            "if rank == 0:\n    print(got['acc'])"
        ),
        (
            f"{ITEMS}{LOADER}got = evaluate(model, loader)\naverage_(got)\n"
            "if rank == 0:\n    print(got['acc'])"
        ),
        (
            f"{ITEMS}{LOADER}got = evaluate(model, loader)\ngot['acc'] = average(got['acc'])\n"
            "if rank == 0:\n    print(got['acc'])"
        ),
        (
            f"{EVALUATE}{LOADER}".replace(
                "        total", "        dist.all_reduce(hits)\n        total"
            )
            + f"{CALL}{SHOWN}"
        ),
        (
            f"{LOADER}{COUNT.replace('correct', 'counts[0]').replace('total', 'counts[1]')}"
            f"dist.all_reduce(counts)\nacc = counts[0] / counts[1]\n{SHOWN}"
        ),
    ],
)
def test_returned_values_that_may_be_of_all_ranks_are_silent(source: str) -> None:
    report = run(source)
    assert report.ok
    assert not [hint for hint in report.hints if hint.symptom == "D.2.4"]


def test_a_returned_accuracy_of_a_training_pass_is_not_a_finding() -> None:
    trained = EVALUATE.replace("        total", "        loss.backward()\n        total")
    assert run(f"{trained}{LOADER}{CALL}{SHOWN}").ok
