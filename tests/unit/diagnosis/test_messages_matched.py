"""Sends and receives are matched, and what may have gone to another receive is not compared."""

from __future__ import annotations

from ddt_notebook.diagnosis.matched_messages import match_messages
from ddt_notebook.model import Call, RankReport


def _message(op: str, peer: int | None, sequence: int, length: int) -> Call:
    return Call(
        index=sequence,
        op=op,
        kind="p2p",
        group="0",
        peer=peer,
        tag=0,
        sequence=sequence,
        shapes=((length,),),
        dtypes=("float32",),
    )


def _matched(sends: list[Call], receives: list[Call]) -> tuple[int, int, int]:
    """The numbers of messages, of mismatches and of calls without a counterpart."""
    reports = [
        RankReport(rank=0, state="finished", calls=tuple(sends)),
        RankReport(rank=1, state="finished", calls=tuple(receives)),
    ]
    count, mismatches, lone = match_messages(reports)
    return count, len(mismatches), len(lone)


def test_a_receive_of_another_size_is_a_mismatch() -> None:
    assert _matched([_message("send", 1, 1, 3)], [_message("recv", 0, 1, 2)]) == (1, 1, 0)


def test_a_receive_from_any_rank_may_have_taken_the_first_message() -> None:
    sends = [_message("send", 1, 1, 3), _message("send", 1, 2, 2)]
    receives = [_message("recv", None, 1, 3), _message("irecv", 0, 1, 2)]
    assert _matched(sends, receives) == (2, 0, 0)


def test_messages_beyond_the_receives_from_any_rank_are_alone() -> None:
    sends = [_message("send", 1, number, 3) for number in (1, 2, 3)]
    assert _matched(sends, [_message("recv", None, 1, 3), _message("recv", 0, 1, 3)]) == (3, 0, 1)
    receives = [_message("recv", None, 1, 3), *(_message("recv", 0, n, 3) for n in (1, 2, 3, 4))]
    assert _matched(sends, receives) == (3, 0, 2)
