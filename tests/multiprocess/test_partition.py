"""Partition of data on real ranks: overlap and gaps exactly as they were built."""

from __future__ import annotations

from textwrap import dedent

import ddt_notebook as ddt
from ddt_notebook.model.partition import Division, LoaderPartition
from ddt_notebook.views.partition import PartitionView

from .conftest import Ranks

SETUP = """
from torch.utils.data import (
    DataLoader, DistributedSampler, IterableDataset, Subset, TensorDataset, random_split)
data = TensorDataset(torch.arange(101.0), torch.arange(101))
"""


def view(ranks: Ranks, source: str, n: int = 2) -> PartitionView:
    session = ranks.session(n)
    session.restart()
    result = session.run(SETUP + dedent(source))
    assert result.ok, result.errors
    return ddt.partition(result)


def loaders(shown: PartitionView, name: str = "loader") -> dict[int, LoaderPartition]:
    partitions = shown.snapshot.partition
    return {p.rank: x for p in partitions for x in p.loaders if x.name == name}


def division(shown: PartitionView, name: str = "loader") -> Division:
    return shown.divisions()[name]


def test_a_distributed_sampler_divides_with_padding(ranks: Ranks) -> None:
    source = """
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            pass
    """
    shown = view(ranks, source, n=4)
    assert not shown.flags
    seen = division(shown)
    assert (seen.covered, seen.overlap, seen.padding, seen.gaps) == (101, 3, 3, 0)
    assert seen.batches == dict.fromkeys(range(4), 4)
    for loader in loaders(shown).values():
        assert [(e.batches, e.samples, e.complete) for e in loader.epochs] == [(4, 26, True)] * 3
        assert [e.sampler_epoch for e in loader.epochs] == [0, 1, 2]
        assert loader.dataset_size == 101
    assert "loader · TensorDataset of 101 · DistributedSampler" in str(shown)


def test_a_split_that_differs_is_not_blamed_on_the_sampler(ranks: Ranks) -> None:
    source = """
    train, valid = random_split(data, [81, 20], torch.Generator().manual_seed(rank))
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=8, sampler=sampler)
    for x, y in loader:
        pass
    """
    texts = [flag.text for flag in view(ranks, source).flags]
    assert any("split the data differently" in text for text in texts)
    assert not any("seed" in text for text in texts)


def test_epochs_of_training_and_evaluation_are_distinguished(ranks: Ranks) -> None:
    source = """
    import time
    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 12
        def __getitem__(self, i):
            time.sleep(0.005)
            return torch.ones(1)
    weight = torch.ones(1, requires_grad=True)
    loader = DataLoader(Slow(), batch_size=2)
    for x in loader:
        (weight * x).sum().backward()
    for x in loader:
        pass
    for x in loader:
        (weight * x).sum().backward()
        break
    (weight * 2).backward()
    """
    trained, looked_at, left = loaders(view(ranks, source))[0].epochs
    assert (trained.trained, looked_at.trained, left.trained) == (6, 0, 1)
    assert trained.where.place == "cell[1] line 15"
    assert 0.045 < trained.waited_s <= trained.lasted_s < 1
    assert left.waited_s == 0.0


def test_a_forgotten_set_epoch_is_seen(ranks: Ranks) -> None:
    source = """
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    for epoch in range(2):
        for batch in loader:
            pass
    """
    (flag,) = view(ranks, source).flags
    assert (
        "same order in several epochs on ranks 0 and 1: call sampler.set_epoch(epoch)" in flag.text
    )


def test_without_a_sampler_every_rank_gets_everything(ranks: Ranks) -> None:
    source = """
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=1)
    for batch in loader:
        pass
    """
    shown = view(ranks, source)
    seen = division(shown)
    assert seen.identical
    assert (seen.covered, seen.overlap, seen.gaps) == (101, 101, 0)
    (flag,) = shown.flags
    assert "ranks 0 and 1 each got the same 101 samples of loader" in flag.text


def test_a_wrong_division_by_hand_shows_overlap_and_gaps(ranks: Ranks) -> None:
    source = """
    mine = range(0, 60) if rank == 0 else range(50, 90)
    loader = DataLoader(Subset(data, mine), batch_size=10, shuffle=True)
    for batch in loader:
        pass
    """
    shown = view(ranks, source)
    seen = division(shown)
    assert (seen.covered, seen.overlap, seen.gaps) == (90, 10, 11)
    assert seen.first_overlap[:2] == (50, 51)
    assert seen.first_gap[0] == 90
    assert seen.batches == {0: 6, 1: 4}
    texts = " ".join(flag.text for flag in shown.flags)
    assert "10 samples of loader went to more than one rank" in texts
    assert "11 samples of loader went to no rank" in texts
    assert "gave rank 1 4 batches and rank 0 6" in texts


def test_a_right_division_by_hand_is_healthy(ranks: Ranks) -> None:
    source = """
    loader = DataLoader(Subset(data, range(rank, 100, world_size)), batch_size=10)
    own = DataLoader(TensorDataset(torch.arange(20) + 20 * rank), batch_size=5)
    for batch in loader:
        pass
    for batch in own:
        pass
    """
    shown = view(ranks, source)
    assert (division(shown).overlap, division(shown).covered) == (0, 100)
    assert division(shown, "own").same_content is False
    assert {flag.kind for flag in shown.flags} <= {"hint", "warning"}
    texts = [flag.text for flag in shown.flags if flag.kind == "warning"]
    assert len(texts) == 1
    assert "1 sample of loader went to no rank" in texts[0]


def test_iterated_data_is_counted_as_it_passes(ranks: Ranks) -> None:
    source = """
    class Same(IterableDataset):
        def __iter__(self):
            return iter(torch.arange(50.0))
    class Divided(IterableDataset):
        def __iter__(self):
            return iter(torch.arange(50.0)[rank::world_size])
    same = DataLoader(Same(), batch_size=7)
    divided = DataLoader(Divided(), batch_size=7)
    for batch in same:
        pass
    for at, batch in enumerate(divided):
        if at == 1:
            break
    """
    shown = view(ranks, source)
    (epoch,) = loaders(shown, "same")[1].epochs
    assert (epoch.batches, epoch.samples, epoch.complete) == (8, 50, True)
    (epoch,) = loaders(shown, "divided")[1].epochs
    assert (epoch.batches, epoch.samples, epoch.complete) == (2, 14, False)
    (flag,) = shown.flags
    assert flag.text.startswith("same: ranks got the same samples")


def test_a_loader_within_a_function_is_named_by_its_line(ranks: Ranks) -> None:
    source = """
    def train():
        for epoch in range(2):
            for batch in DataLoader(data, batch_size=50):
                pass
    train()
    """
    shown = view(ranks, source)
    (loader,) = shown.snapshot.partition[0].loaders
    assert loader.name == "loader at cell[1] line 8"
    assert [epoch.batches for epoch in loader.epochs] == [3, 3]
    assert not loader.same_order  # it does not shuffle


def test_workers_that_are_kept_and_broken_loops_are_counted_rightly(ranks: Ranks) -> None:
    source = """
    loader = DataLoader(data, batch_size=10, num_workers=1, persistent_workers=True)
    for batch in loader:
        break
    for batch in loader:
        pass
    """
    shown = view(ranks, source)
    first, second = loaders(shown)[0].epochs
    assert (first.batches, first.samples, first.complete) == (1, 10, False)
    assert (second.batches, second.samples, second.complete) == (11, 101, True)
    assert second.first[:3] == (0, 1, 2)
    assert loaders(shown)[0].repeated == 0


def test_batches_and_indices_of_any_kind_pass_untouched(ranks: Ranks) -> None:
    source = """
    class Named(torch.utils.data.Dataset):
        def __len__(self):
            return 6
        def __getitem__(self, name):
            return {"name": str(name), "x": torch.zeros(2)}
    class Odd(dict):
        def values(self):
            raise KeyError("no")
    names = ["a", "b", "c"]
    named = DataLoader(Named(), sampler=names, batch_size=2)
    single = DataLoader(Named(), batch_size=None)
    arrays = DataLoader(Named(), batch_sampler=[torch.tensor([0, 3]), (1, 2, 4)])
    odd = DataLoader(Named(), batch_size=2, collate_fn=lambda items: Odd(n=len(items)))
    assert [batch["name"] for batch in named] == [["a", "b"], ["c"]]
    assert len([item for item in single]) == 6
    assert [len(batch["name"]) for batch in arrays] == [2, 3]
    assert [batch["n"] for batch in odd] == [2, 2, 2]
    """
    shown = view(ranks, source)
    counts = {name: loaders(shown, name)[0].epochs[0] for name in ("named", "single", "arrays")}
    assert {name: (e.batches, e.samples) for name, e in counts.items()} == {
        "named": (2, 3),
        "single": (6, 6),
        "arrays": (2, 5),
    }
    assert not loaders(shown, "named")[0].indexed
    assert counts["arrays"].first == (0, 3, 1, 2, 4)
    assert "KeyError" in loaders(shown, "odd")[0].problem
    assert any("some batches of odd could not be counted" in flag.text for flag in shown.flags)


def test_epochs_are_numbered_from_the_start_of_their_cell(ranks: Ranks) -> None:
    epochs = "for epoch in range({}):\n    for batch in loader:\n        pass\n"
    made = "loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))\n"
    session = ranks.session(2)
    session.restart()
    session.run(SETUP + made + epochs.format(3))
    shown = ddt.partition(session.run(epochs.format(2)))
    frame = shown.to_frame()
    of_rank = frame[frame["rank"] == 0]
    assert list(of_rank.epoch) == [1, 2, 3, 4, 5]
    assert list(of_rank.epoch_in_cell) == [1, 2, 3, 1, 2]
    (row,) = [line for line in shown.to_text().splitlines() if line.startswith("    0 ")]
    assert row.split()[1] == "2"
    assert "in an earlier cell" not in shown.to_text()
    session.run("x = 1")
    assert "in an earlier cell" in ddt.partition(session).to_text()


UNEVEN = """
from torch.utils.data import DataLoader, Subset, TensorDataset
data = TensorDataset(torch.randn(130, 8))
loader = DataLoader(Subset(data, range(rank, {size}, world_size)), batch_size=8)
model = DDP(torch.nn.Linear(8, 2))
optimizer = torch.optim.{kind}(model.parameters(), lr=0.1)
for epoch in range(3):
    with model.join(enable={joins}):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
"""


def test_whole_epochs_of_the_run_are_compared(ranks: Ranks) -> None:
    session = ranks.session(4)
    session.restart()
    hangs = session.run(UNEVEN.format(size=130, kind="SGD", joins=False))
    assert hangs.snapshot.outcome == "hung"
    for shown in (ddt.partition(hangs), ddt.partition(session)):
        last = {rank: loader.epochs[-1] for rank, loader in loaders(shown).items()}
        assert [epoch.batches for epoch in last.values()] == [3, 3, 4, 4]
        assert [epoch.broken_off for epoch in last.values()] == [True, True, False, False]
        seen = division(shown)
        assert (seen.epoch, seen.batches) == (2, {0: 5, 1: 5, 2: 4, 3: 4})
        (flag,) = (flag for flag in shown.flags if "batches" in flag.text)
        assert flag.text.startswith("loader gave rank 2 4 batches and rank 1 5 in epoch 2: ")

    repaired = session.run(UNEVEN.format(size=128, kind="SGD", joins=False), trace=True)
    assert repaired.ok, repaired.errors
    for shown in (ddt.partition(repaired), ddt.partition(session)):
        assert list(shown.divisions()) == ["loader"]
        assert not division(shown).uneven


def test_a_run_shows_the_loaders_that_it_used_or_made(ranks: Ranks) -> None:
    session = ranks.session(2)
    session.restart()
    used = session.run(SETUP + "first = DataLoader(data)\nfor batch in first:\n    pass\n")
    made = session.run("second = DataLoader(data, batch_size=4)", trace=True)
    assert list(ddt.partition(used).divisions()) == ["first"]
    assert list(ddt.partition(made).divisions()) == ["second"]
    assert list(ddt.partition(made, "first").divisions()) == ["first"]
    assert list(ddt.partition(session).divisions()) == ["first", "second"]
    other = session.run("for batch in second:\n    pass\n")
    assert list(ddt.partition(other).divisions()) == ["second"]
    unused = session.run("del second", trace=True)
    shown = ddt.partition(unused)
    assert "no DataLoader was used in this run" in shown.to_text()
    assert shown.unseen()
    assert not ddt.partition(other).unseen()


def test_uneven_batches_and_old_gradients_inside_join_are_accepted(ranks: Ranks) -> None:
    session = ranks.session(4)
    session.restart()
    run = session.run(UNEVEN.format(size=130, kind="SGD", joins=True))
    assert run.ok, run.errors
    shown = ddt.partition(run)
    assert not shown.flags
    assert division(shown).uneven
    assert "uneven, as join() allows" in " ".join(shown.to_text().split())
    parity = ddt.parity(run)
    assert not parity.flags
    assert "0  ranks 2 and 3, as join() allows" in parity.to_text()
    assert "ranks 2 and 3, as join() allows" in parity.to_html()

    # the next pass outside of it makes them equal, or they are not as meant any more
    run = session.run("optimizer.zero_grad()\nmodel(torch.ones(2, 8)).sum().backward()\n")
    assert not run.snapshot.parity[0].joined
    assert not ddt.parity(run).flags
    run = session.run(UNEVEN.format(size=130, kind="Adam", joins=True))
    (flag,) = ddt.parity(run).flags
    assert flag.kind == "warning"
    assert flag.text.endswith("equal at its end, but not the optimizer's state")
