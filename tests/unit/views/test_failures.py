import importlib.util

from ddt_notebook.model import Finding, Report
from ddt_notebook.views import failures

from .builders import crash, hang, hang_finding


def test_the_cause_comes_first_and_its_consequences_are_folded() -> None:
    finding = Finding(symptom="C.2", stage="data & model preparation", title="bad", ranks=[2])
    found = failures.of_snapshot(crash(), Report(ok=False, findings=[finding]))
    assert [f.ranks for f in found] == [(2,), (0, 1), (3,)]
    shown = failures.to_text(found)
    assert shown.startswith("rank 2 raised ValueError at cell[14] line 3: bad batch\n")
    assert "----> 3 check(batch)" in shown
    assert "consequences:\n  ranks 0 and 1 raised RuntimeError at cell[14] line 6" in shown
    assert "----> 6" not in shown
    assert shown.endswith("rank 3 died (SIGKILL)")


def test_without_a_finding_the_earliest_comes_first() -> None:
    assert failures.of_snapshot(crash(), Report(ok=False))[0].ranks == (2,)


def test_freed_ranks_are_shown_as_one_failure() -> None:
    found = failures.of_snapshot(hang(), Report(ok=False, findings=[hang_finding()]))
    assert len(found) == 1
    assert found[0].title.startswith(
        "ranks 0, 2 and 3 were freed with RuntimeError at cell[14] line 6"
    )
    assert not found[0].cause


def test_frames_below_the_users_call_are_counted() -> None:
    wrapper = importlib.util.find_spec("ddt_notebook.rank.probes.calls")
    assert wrapper is not None
    frames = [
        "Cell cell[8], line 7\n----> 7 dist.all_reduce(loss)",
        "    [... skipping hidden 2 frame]",
        "File /lib/python3.11/site-packages/torch/distributed/c10d.py:83, in wrapper\n---> 83",
        f"File {wrapper.origin}:271, in call\n---> 271",
        "RuntimeError: closed",
    ]
    failure = failures.Failure((0,), "rank 0 raised", "\n\n".join(frames), cause=True)
    assert failures.to_text([failure]).splitlines() == [
        "rank 0 raised",
        "Cell cell[8], line 7",
        "----> 7 dist.all_reduce(loss)",
        "",
        "    [... 3 frames hidden]",
        "",
        "RuntimeError: closed",
    ]


def test_a_run_without_failures_is_one_line() -> None:
    assert failures.to_text([]) == ""


def test_a_rank_that_was_freed_needs_no_traceback() -> None:
    title = "rank 0 was freed with RuntimeError"
    freed = failures.Failure((0,), title, "a wall of text", cause=False, freed=True)
    assert failures.to_text([freed]) == title
