"""Ranks that a cell numbered itself are reported by their numbers in the session."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Rendezvous
from ddt_notebook.model.numbering import in_session_numbers

from .builders import all_reduce, call, only, rank, snapshot


def formed(number: int, size: int = 2, port: int = 29500) -> Call:
    meeting = Rendezvous(address=f"127.0.0.1:{port}", rank=number, world_size=size)
    return call("init_process_group", rendezvous=meeting, members=tuple(range(size)))


def test_equal_numbers_change_nothing():
    scene = snapshot(rank(0, formed(0), all_reduce()), rank(1, formed(1), all_reduce()))
    assert in_session_numbers(scene.ranks) is scene.ranks


def test_roots_and_peers_are_other_ranks():
    scene = snapshot(
        rank(0, formed(1), call("broadcast", root=0), call("recv", peer=0)),
        rank(1, formed(0), call("broadcast", root=0), call("send", peer=1)),
    )
    renumbered = in_session_numbers(scene.ranks)
    assert [report.calls[1].root for report in renumbered] == [1, 1]
    assert [report.calls[2].peer for report in renumbered] == [1, 0]
    assert diagnose(scene).ok


def test_two_groups_of_one_name_are_two():
    ranks = []
    for r in range(4):
        pair = r // 2
        reduced = all_reduce(shapes=((1 + pair,),), members=(0, 1))
        ranks.append(rank(r, formed(r % 2, port=29500 + pair), reduced))
    renumbered = in_session_numbers(snapshot(*ranks).ranks)
    assert {report.calls[1].group for report in renumbered} == {
        "0 at 127.0.0.1:29500",
        "0 at 127.0.0.1:29501",
    }
    assert [report.calls[1].members for report in renumbered] == [(0, 1), (0, 1), (2, 3), (2, 3)]
    assert diagnose(snapshot(*ranks)).ok


def test_missing_ranks_are_named_by_their_numbers_in_the_session():
    scene = snapshot(
        rank(0, formed(1), all_reduce(members=(0, 1)), blocked=True),
        rank(1, formed(0)),
        outcome="hung",
    )
    assert only(diagnose(scene)).ranks == [1]


def test_numbers_of_a_group_that_did_not_form_are_not_changed():
    waiting = rank(1, formed(0, size=3), blocked=True)
    scene = snapshot(rank(0, formed(1, size=3), blocked=True), waiting, outcome="hung")
    assert in_session_numbers(scene.ranks) is scene.ranks


def test_a_group_of_an_earlier_cell_gives_the_numbers_too():
    receiver = rank(0, call("recv", peer=0), blocked=True, joined=replace(formed(1), sequence=1))
    sender = rank(1, call("send", peer=1), joined=replace(formed(0), sequence=1))
    renumbered = in_session_numbers((receiver, sender))
    assert [report.calls[0].peer for report in renumbered] == [1, 0]
    absent = rank(1, joined=replace(formed(0), sequence=1))
    finding = only(diagnose(snapshot(receiver, absent, outcome="hung")))
    assert (finding.ranks, finding.waiting) == ([1], [0])
