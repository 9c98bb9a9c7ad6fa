from __future__ import annotations

import pytest

from ddt_notebook import formatting


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([1], "rank 1"),
        ([0, 1], "ranks 0 and 1"),
        ([0, 2, 3], "ranks 0, 2 and 3"),
        ([3, 2, 1, 0], "ranks 0-3"),
        ([0, 1, 2, 5, 7, 8, 9], "ranks 0-2, 5 and 7-9"),
    ],
)
def test_lists_of_ranks(ranks: list[int], text: str):
    assert formatting.ranks_text(ranks) == text
    assert formatting.ranks_label(ranks) == text.replace(" and", ",")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.000347, "0.35 ms"),
        (0.1496, "150 ms"),
        (0.9996, "1.0 s"),
        (2, "2.0 s"),
        (2.13, "2.1 s"),
        (9.96, "10 s"),
        (90, "90 s"),
        (150, "2 min 30 s"),
        (180, "3 min"),
        (1790, "30 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
    ],
)
def test_times_in_seconds(value: float, text: str):
    assert formatting.seconds(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "?"), (512, "512 B"), (4_200_000, "4.2 MB"), (630_000_000, "630 MB")],
)
def test_sizes_in_bytes(number: int | None, text: str):
    assert formatting.size(number) == text


def test_counts_and_listings():
    assert formatting.count(1, "group") == "1 group"
    assert formatting.count(2, "batch") == "2 batches"
    assert formatting.count(2, "epoch") == "2 epochs"
    assert formatting.count(2, "batch") == "2 batches"
    assert formatting.count(2000, "call") == "2,000 calls"
    assert formatting.listing(["a", "b", "c"]) == "a, b and c"


def test_ranks_of_several_hosts_show_theirs() -> None:
    hosts = {0: "nodeA.cluster", 1: "nodeA.cluster", 2: "nodeB.cluster"}
    with formatting.naming_hosts(hosts):
        assert formatting.ranks_text([2]) == "rank 2 · nodeB"
        assert formatting.ranks_text([0, 1]) == "ranks 0 and 1 · nodeA"
        assert formatting.ranks_text([1, 2]) == "ranks 1 and 2"
        assert formatting.ranks_label([5]) == "rank 5"
        assert formatting.rank_list([2]) == "2"
    assert formatting.ranks_text([2]) == "rank 2"
    for hosts in ({0: "one", 1: "one"}, {0: "one", 1: ""}):
        with formatting.naming_hosts(hosts):
            assert formatting.ranks_text([0]) == "rank 0"
    with formatting.naming_hosts({0: "n.one", 1: "n.<b>\n"}):  # equal up to the dot
        assert formatting.ranks_text([0]) == "rank 0 · n.one"
        assert formatting.ranks_text([1]) == "rank 1 · n._b__"
