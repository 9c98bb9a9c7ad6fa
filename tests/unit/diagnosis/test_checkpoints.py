"""Files of several ranks: simultaneous writes, reads that come too early, and legal uses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Position, RankError
from ddt_notebook.model.checkpoints import CheckpointUse, RankCheckpoints, StateLoad

from .builders import all_reduce, at, call, facts, only, raised, rank, snapshot

PATH = "/runs/last.pt"


def save(began: float, ended: float, line: int = 5, **fields) -> CheckpointUse:
    return _use("save", began, ended, line, **fields)


def load(began: float, ended: float, line: int = 8, **fields) -> CheckpointUse:
    return _use("load", began, ended, line, **fields)


def _use(action, began: float, ended: float, line: int, **fields) -> CheckpointUse:
    fields = {"path": PATH, "where": at(line), "began_s": began, "ended_s": ended, **fields}
    return CheckpointUse(action=action, **fields)


def barrier(entered: float) -> Call:
    return call("barrier", 6, entered_s=entered, left_s=entered + 0.1)


def scene(*uses: list[CheckpointUse], calls: tuple[tuple[Call, ...], ...] = (), **fields):
    calls = calls or ((),) * len(uses)
    reports = [rank(number, *made, **fields) for number, made in enumerate(calls)]
    checkpoints = [RankCheckpoints(rank=number, uses=tuple(one)) for number, one in enumerate(uses)]
    return snapshot(*reports, checkpoints=tuple(checkpoints))


def test_ranks_that_write_at_the_same_time():
    finding = only(diagnose(scene([save(1.0, 2.0)], [save(1.5, 2.5)], [])))
    assert (finding.symptom, finding.cause) == ("D.1.6", "checkpoint-written-by-every-rank")
    assert (finding.kind, finding.values) == ("written-at-the-same-time", {"file": "last.pt"})
    assert (finding.ranks, finding.confidence) == ([0, 1], "certain")
    assert {place.role for place in finding.places.values()} == {"saves"}


def test_two_writes_without_a_collective_between_them_are_reported():
    finding = only(diagnose(scene([save(1.0, 1.1)], [save(1.2, 1.3)])))
    assert finding.kind == "written-without-order"


def test_a_line_that_writes_in_each_epoch_is_reported_once():
    epochs = [[save(at_, at_ + 0.5) for at_ in (1.0, 3.0, 5.0)] for _ in range(2)]
    assert len(diagnose(scene(*epochs)).findings) == 1


def test_a_line_that_writes_many_files_is_reported_once():
    files = [[save(at_, at_ + 0.5, path=f"/r/{at_}.pt") for at_ in (1.0, 3.0)] for _ in range(2)]
    assert len(diagnose(scene(*files)).findings) == 1


def test_ranks_that_take_turns_are_not_reported():
    calls = ((barrier(1.2), barrier(3.0)), (barrier(0.9), barrier(2.9)))
    assert diagnose(scene([save(1.0, 1.1)], [save(2.0, 2.5)], calls=calls)).ok


def test_separate_files_for_each_rank_are_not_reported():
    assert diagnose(scene([save(1, 2, path="/r/0.pt")], [save(1, 2, path="/r/1.pt")])).ok


def test_nothing_is_reported_where_calls_were_not_kept():
    assert diagnose(scene([save(1.0, 1.1)], [save(1.2, 1.3)], calls_dropped=7)).ok


def test_a_message_orders_two_ranks():
    calls = (
        (call("send", 6, peer=1, entered_s=1.2),),
        (call("recv", 6, peer=0, entered_s=1.0),),
    )
    assert diagnose(scene([save(1.0, 1.1)], [save(2.0, 2.5)], calls=calls)).ok


def test_a_rank_that_reads_a_file_before_it_is_written():
    finding = only(diagnose(scene([save(1.0, 2.0), load(2.1, 2.2)], [load(1.2, 1.3)])))
    assert finding.cause == "checkpoint-read-too-early"
    assert (finding.ranks, finding.confidence) == ([1], "likely")
    assert {rank: place.role for rank, place in finding.places.items()} == {0: "saves", 1: "loads"}
    assert finding.values["early_s"] == pytest.approx(0.8)


def test_a_file_that_is_read_too_early_comes_before_the_loop_that_it_changes():
    source = "for epoch in range(first, 4):\n    dist.all_reduce(x)"
    calls = [all_reduce(2, entered_s=number + 3.0) for number in range(3)]
    ranks = (rank(0, *calls[:2]), rank(1, *calls, blocked=True))
    checkpoints = (
        RankCheckpoints(rank=0, uses=(save(1.0, 2.0),)),
        RankCheckpoints(rank=1, uses=(load(1.2, 1.3),)),
    )
    seen = snapshot(*ranks, source=source, checkpoints=checkpoints, outcome="hung")
    causes = [finding.cause for finding in diagnose(seen).findings]
    assert causes == ["checkpoint-read-too-early", "uneven-iterations"]


def test_a_load_that_failed_is_left_to_the_rule_on_exceptions():
    assert diagnose(scene([save(1.0, 2.0)], [load(1.2, 1.3, done=False)])).ok


def test_resuming_and_saving_the_same_file_later_is_not_reported():
    resumed = load(0.1, 0.2, line=3)
    assert diagnose(scene([resumed, save(5.0, 5.1)], [resumed])).ok
    alone = scene([save(5.0, 5.1)], [resumed], calls=((all_reduce(entered_s=3.0),),) * 2)
    assert diagnose(alone).ok


def test_a_barrier_between_writing_and_reading_is_not_reported():
    calls = ((barrier(2.1),), (barrier(0.5),))
    assert diagnose(scene([save(1.0, 2.0)], [load(2.3, 2.4)], calls=calls)).ok


def test_names_of_the_wrapper_are_a_hint():
    report = diagnose(scene([save(1.0, 2.0, wrapped="module.weight")], []))
    assert report.ok
    assert [hint.cause for hint in report.hints] == ["checkpoint-of-wrapper"]


@pytest.mark.parametrize(
    ("error", "written", "cause"),
    [
        ("FileNotFoundError", 2.0, "checkpoint-read-too-early"),
        ("FileNotFoundError", 0.5, "path-missing"),
        ("EOFError", 2.0, "checkpoint-unreadable"),
    ],
)
def test_a_load_that_failed_because_it_came_too_early(error: str, written: float, cause: str):
    raise_at = Position(file="/x/torch/serialization.py", line=9, function="load")
    failed = RankError(type=error, message="", where=at(8), frames=(at(8), raise_at))
    checkpoints = (
        RankCheckpoints(rank=0, uses=(save(written - 0.3, written),)),
        RankCheckpoints(rank=1, uses=(load(1.0, 1.1, done=False),)),
    )
    scene = snapshot(rank(0), raised(1, error=failed), checkpoints=checkpoints, outcome="failed")
    finding = only(diagnose(scene))
    assert finding.cause == cause
    later = facts(finding).get("written-later")
    assert (later is not None) == (written == 2.0)
    assert later is None or (later.ranks, later.values) == ((0,), {"later_s": 1.0})


def test_many_epochs_are_judged_in_linear_time():
    epochs = range(100)
    saves = [save(10 * n + 1, 10 * n + 2) for n in epochs]
    loads = [load(10 * n + 4, 10 * n + 5) for n in epochs]
    calls = tuple(
        tuple(all_reduce(entered_s=n / 2 + r / 10) for n in range(1, 2001)) for r in range(2)
    )
    busy = scene([*saves, *loads], [*loads], calls=calls)
    assert diagnose(busy).findings == []


def test_a_loaded_state_of_which_no_parameter_was_used():
    state = StateLoad(model="Net", where=at(4), keys=3, unexpected="module.a", missing="a")
    checkpoints = tuple(RankCheckpoints(rank=r, states=(state,)) for r in range(2))
    finding = only(diagnose(snapshot(rank(0), rank(1), checkpoints=checkpoints)))
    assert (finding.symptom, finding.cause, finding.ranks) == ("D.1.6", "nothing-loaded", [0, 1])
    assert facts(finding)["keys-differ"].values == {"unexpected": "module.a", "missing": "a"}


def on_hosts(*hosts: str, of):
    ranks = tuple(replace(one, host=host) for one, host in zip(of.ranks, hosts, strict=True))
    return replace(of, ranks=ranks)


def test_the_same_path_on_two_hosts_may_be_two_files():
    writes = scene(*[[save(1.0, 2.0)] for _ in range(2)])
    assert not diagnose(writes).ok
    assert diagnose(on_hosts("a", "b", of=writes)).ok
    read = scene([save(1.0, 2.0), load(2.1, 2.2)], [load(1.2, 1.3)])
    assert not diagnose(read).ok
    assert diagnose(on_hosts("a", "b", of=read)).ok
    local = scene([save(1.0, 2.0)], [], [save(1.0, 2.0)], [])  # where local_rank == 0
    assert diagnose(on_hosts("a", "a", "b", "b", of=local)).ok


def test_ranks_of_each_host_that_write_one_file_are_one_finding():
    every = on_hosts("a", "a", "b", "b", of=scene(*[[save(1.0, 2.0)] for _ in range(4)]))
    finding = only(diagnose(every))
    assert (finding.kind, finding.ranks) == ("written-at-the-same-time", [0, 1, 2, 3])


def test_a_missing_file_is_not_explained_by_a_save_on_another_host():
    error = RankError(type="FileNotFoundError", message=f"[Errno 2] No such file: '{PATH}'")
    failed = RankCheckpoints(rank=1, uses=(load(1.0, 1.1, done=False),))
    saved = RankCheckpoints(rank=0, uses=(save(2.0, 2.5),))
    seen = snapshot(rank(0), raised(1, error=error), outcome="failed", checkpoints=(saved, failed))
    assert "written-later" in facts(only(diagnose(seen)))
    assert "written-later" not in facts(only(diagnose(on_hosts("a", "b", of=seen))))
