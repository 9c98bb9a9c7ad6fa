from ddt_notebook.magics.output_merger import Merger
from ddt_notebook.views.line_buffer import LONGEST_LINE, LineBuffer


def feed(*chunks: str) -> tuple[list[str], str]:
    buffer = LineBuffer()
    lines = [line for chunk in chunks for line in buffer.feed(chunk)]
    return lines, buffer.partial


def test_lines_are_put_together_from_chunks() -> None:
    assert feed("a", "b\nc", "\n\nd") == (["ab", "c", ""], "d")


def test_a_progress_bar_leaves_its_last_state() -> None:
    assert feed("10%\r", "50%", "\r100%\n") == (["100%"], "")
    assert feed("10%\r50%") == ([], "50%")
    assert feed("kept\r\n") == (["kept"], "")
    assert feed("kept\r", "\n") == (["kept"], "")


def test_a_line_without_an_end_is_cut() -> None:
    lines, rest = feed("x" * (2 * LONGEST_LINE + 5))
    assert [len(line) for line in lines] == [LONGEST_LINE, LONGEST_LINE]
    assert rest == "xxxxx"


def taken(merger: Merger[str], now_s: float, **how: bool) -> list[tuple[str, list[int]]]:
    return [(e.content, sorted(e.ranks)) for e in merger.take(now_s, **how)]


def test_equal_lines_of_all_ranks_are_ready_at_once() -> None:
    merger: Merger[str] = Merger([0, 1])
    merger.add(0, "a", 0.0)
    assert taken(merger, 0.01) == []
    merger.add(1, "a", 0.02)
    assert taken(merger, 0.02) == [("a", [0, 1])]


def test_a_line_of_one_rank_is_held_for_a_moment_only() -> None:
    merger: Merger[str] = Merger([0, 1])
    merger.add(0, "a", 0.0)
    assert taken(merger, 0.2) == [("a", [0])]
    merger.add(1, "a", 0.3)
    assert taken(merger, 0.3, everything=True) == [("a", [1])]


def test_the_order_of_each_rank_is_kept() -> None:
    merger: Merger[str] = Merger([0, 1])
    for line in ("a", "b", "a"):
        merger.add(0, line, 0.0)
    for line in ("b", "a", "c"):
        merger.add(1, line, 0.1)
    assert taken(merger, 0.1, everything=True) == [
        ("a", [0]),
        ("b", [0, 1]),
        ("a", [0, 1]),
        ("c", [1]),
    ]


def test_ranks_stand_in_order_and_meet_again_after_lines_of_their_own() -> None:
    merger: Merger[str] = Merger([0, 1, 2])
    for rank in (1, 0, 2):
        for line in ("hello", f"rank {rank}", "bye"):
            merger.add(rank, line, 0.0)
    assert taken(merger, 0.0, everything=True) == [
        ("hello", [0, 1, 2]),
        ("rank 0", [0]),
        ("rank 1", [1]),
        ("rank 2", [2]),
        ("bye", [0, 1, 2]),
    ]


def test_a_slow_rank_does_not_hold_back_a_fast_one() -> None:
    merger: Merger[str] = Merger([0, 1])
    for step in range(50):
        merger.add(0, f"fast {step}", 0.0)
    merger.add(1, "slow", 0.14)
    assert len(taken(merger, 0.16)) == 51
    merger.add(1, "epoch 2", 0.2)
    merger.add(0, "epoch 2", 0.21)
    assert taken(merger, 0.21) == [("epoch 2", [0, 1])]


def test_the_same_line_twice_by_one_rank_is_two_lines() -> None:
    merger: Merger[str] = Merger([0, 1])
    merger.add(0, "a", 0.0)
    merger.add(0, "a", 0.0)
    assert taken(merger, 1.0) == [("a", [0]), ("a", [0])]


def test_output_marked_alone_is_never_joined() -> None:
    merger: Merger[str] = Merger([0, 1])
    merger.add(0, "a", 0.0, alone=True)
    merger.add(1, "a", 0.0, alone=True)
    assert taken(merger, 1.0) == [("a", [0]), ("a", [1])]
