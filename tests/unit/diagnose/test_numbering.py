"""Ranks that a cell numbered itself are told by their numbers in the session."""

from __future__ import annotations

from ddt_notebook.diagnose import diagnose
from ddt_notebook.diagnose.numbering import in_session_numbers
from ddt_notebook.model import Call, Rendezvous

from .builders import all_reduce, call, only, rank, snapshot


def formed(number: int, size: int = 2, port: int = 29500) -> Call:
    meeting = Rendezvous(address=f"127.0.0.1:{port}", rank=number, world_size=size)
    return call("init_process_group", rendezvous=meeting, members=tuple(range(size)))


def test_equal_numbers_change_nothing():
    scene = snapshot(rank(0, formed(0), all_reduce()), rank(1, formed(1), all_reduce()))
    assert in_session_numbers(scene) is scene


def test_roots_and_peers_are_other_ranks():
    scene = snapshot(
        rank(0, formed(1), call("broadcast", root=0), call("recv", peer=0)),
        rank(1, formed(0), call("broadcast", root=0), call("send", peer=1)),
    )
    told = in_session_numbers(scene)
    assert [report.calls[1].root for report in told.ranks] == [1, 1]
    assert [report.calls[2].peer for report in told.ranks] == [1, 0]
    assert diagnose(scene).ok


def test_two_groups_of_one_name_are_two():
    ranks = []
    for r in range(4):
        pair = r // 2
        reduced = all_reduce(shapes=((1 + pair,),), members=(0, 1))
        ranks.append(rank(r, formed(r % 2, port=29500 + pair), reduced))
    told = in_session_numbers(snapshot(*ranks))
    assert {report.calls[1].group for report in told.ranks} == {
        "0 at 127.0.0.1:29500",
        "0 at 127.0.0.1:29501",
    }
    assert [report.calls[1].members for report in told.ranks] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert diagnose(snapshot(*ranks)).ok


def test_who_is_missing_goes_by_the_session():
    scene = snapshot(
        rank(0, formed(1), all_reduce(members=(0, 1)), blocked=True),
        rank(1, formed(0)),
        outcome="hung",
    )
    assert only(diagnose(scene)).ranks == [1]


def test_a_group_that_did_not_form_stays_as_it_is():
    waiting = rank(1, formed(0, size=3), blocked=True)
    scene = snapshot(rank(0, formed(1, size=3), blocked=True), waiting, outcome="hung")
    assert in_session_numbers(scene) is scene
