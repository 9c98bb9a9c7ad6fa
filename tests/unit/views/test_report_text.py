import re
from dataclasses import replace

import pytest

from ddt_notebook.model import Fact, Finding, Fix, Place, Report, Snapshot
from ddt_notebook.views import report_text, words
from ddt_notebook.views.report import show

from .builders import hang, hang_finding

GOLDEN = """\
hang D.2.1 · training & evaluation · certain
  rank 1 never entered all_reduce #17 (10 × float32); the others wait for it
  --> cell[14] line 6   dist.all_reduce(loss)   ranks 0, 2, 3 wait in all_reduce
  --> cell[14] line 4   if rank != 1:           rank 1 finished the cell
  seen rank 1 made 16 calls on group 0, the others 17
  fix  call the collective on every rank, outside `if rank …` — fix behavior
       logic (a pattern that repaired 5 of 44 hangs in the study)
  more %ddt_explain D.2.1 · %ddt_explain collective-under-rank-condition ·
       lesson d-training/D.2.1-hang.ipynb"""


def test_the_text_of_a_hang() -> None:
    assert report_text.report(Report(ok=False, findings=[hang_finding()]), hang()) == GOLDEN


def test_without_a_snapshot_the_ranks_are_named() -> None:
    shown = report_text.finding(hang_finding())
    assert "dist.all_reduce(loss)   ranks 0, 2, 3\n" in shown
    assert "if rank != 1:           rank 1\n" in shown


def test_colour_changes_nothing_but_the_colour() -> None:
    report = Report(ok=False, findings=[hang_finding(evidence=["one", "two"])])
    coloured = report_text.report(report, hang(), colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == report_text.report(report, hang())


def test_a_healthy_run_is_one_line() -> None:
    report = Report(ok=True, checked="4 ranks, 12 collectives on 1 group agree")
    assert report_text.report(report, hang()) == "ok · 4 ranks, 12 collectives on 1 group agree"


def test_at_most_three_findings_are_shown_and_the_rest_counted() -> None:
    findings = [hang_finding(title=f"finding {n}") for n in range(5)]
    shown = report_text.report(Report(ok=False, findings=findings))
    assert "finding 2" in shown
    assert "finding 3" not in shown
    assert "2 more findings: hang D.2.1" in shown


def test_hints_are_one_line() -> None:
    hints = [hang_finding(title=f"swap {n}", confidence="possible") for n in range(3)]
    shown = report_text.report(Report(ok=True, hints=hints, checked="all agree"))
    assert shown == "ok · all agree\nhint · may be intended: swap 0 (and 2 more hints)"


def test_an_interrupted_run_says_where_the_ranks_stood() -> None:
    snapshot = Snapshot(cell=hang().cell, outcome="interrupted", ranks=hang().ranks, duration_s=3.2)
    shown = report_text.report(Report(ok=False), snapshot)
    assert shown.startswith("interrupted after 3.2 s\n")
    assert "ranks 0, 2, 3 wait in all_reduce" in shown


@pytest.mark.parametrize("world_size", [1, 2, 64])
def test_lines_fit_into_80_columns(world_size: int) -> None:
    code = "value = compute(x) " * 9
    places = {r: Place(file="cell[14]", line=r + 2, code=code) for r in range(world_size)}
    finding = hang_finding(world_size, places=places, title="rank 1 " + "never entered " * 20)
    shown = report_text.report(Report(ok=False, findings=[finding]), hang(world_size))
    assert max(map(len, shown.splitlines())) <= 80


def test_64_equal_ranks_share_one_place() -> None:
    shown = report_text.finding(hang_finding(64), hang(64))
    assert shown.count("-->") == 2
    assert "ranks 0, 2-63 wait in all_reduce" in shown


@pytest.mark.parametrize(
    ("symptom", "share", "expected"),
    [
        ("D.2.1", 5 / 44, "5 of 44 hangs in the study"),
        ("D.1.5", 1 / 9, "1 of 9 tensor mismatches in the study"),
        ("B.2", 14 / 44, "14 of 44 such faults in the study"),
        ("D.2.1", 0.0, ""),
    ],
)
def test_the_source_of_a_fix_is_shown(symptom: str, share: float, expected: str) -> None:
    fix = hang_finding().fixes[0]
    fix = type(fix)(pattern=fix.pattern, advice=fix.advice, share=share)
    assert words.fix_source(symptom, fix) == expected
    counted = f" (a pattern that repaired {expected})" if expected else ""
    assert words.fix_pattern(symptom, fix) == f"{fix.pattern}{counted}"


def test_foreign_text_is_bounded_and_has_no_terminal_codes() -> None:
    hostile = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \u202egnp.exe\x00 🎉 " + "x" * 10_000
    place = Place(file=hostile, line=3, code=hostile)
    shown = report_text.finding(hang_finding(title=hostile, places={0: place}, evidence=[hostile]))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "🎉" in shown
    assert "more characters)" in " ".join(shown.split())
    assert len(shown) < 5_000


def test_a_report_shows_itself_and_stays_a_report() -> None:
    plain = Report(ok=False, findings=[hang_finding()])
    shown = show(plain, hang(), notes=["rank 2 was replaced by a fresh one and lost model"])
    assert shown == plain
    assert plain == shown
    assert shown.to_json() == plain.to_json()
    assert type(shown).from_json(plain.to_json()) == plain
    assert repr(shown).startswith(GOLDEN)
    assert "note rank 2 was replaced" in repr(shown)
    assert set(shown._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert set(shown._repr_mimebundle_(include={"text/plain"})) == {"text/plain"}
    assert set(shown._repr_mimebundle_(exclude={"text/plain"})) == {"text/html"}


def test_an_empty_report() -> None:
    assert report_text.report(Report(ok=True)) == "ok"
    assert report_text.headline(Report(ok=False)) == "undecided"
    assert isinstance(show(Report(ok=True)).findings, list)
    assert not [f for f in show(Report(ok=True)).findings if isinstance(f, Finding)]


def test_an_exception_of_the_users_own_is_not_a_class_of_the_study() -> None:
    own = Finding(
        symptom="D.1.11",
        stage="training & evaluation",
        title="rank 1 raised ValueError: my check; rank 0 waits for it",
        ranks=[1],
        waiting=[0],
        places={
            0: Place(file="cell[3]", line=9, code="dist.barrier()", role="waits"),
            1: Place(file="cell[3]", line=4, code='raise ValueError("my")', role="raised"),
        },
        confidence="certain",
        fixes=[Fix(pattern="fix behavior logic", advice="mend the line that raised", share=0)],
    )
    report = Report(ok=False, findings=[own])
    first, second, *_ = report_text.report(report).splitlines()
    assert first == "exception at cell[3] line 4 · no symptom of the study · certain"
    assert second == "  rank 1 raised ValueError: my check; rank 0 waits for it"
    for shown in (report_text.report(report), show(report).to_html()):
        assert "mend the line that raised" in shown
        for pretended in ("fix behavior logic", "D.1.11", "training"):
            assert pretended not in shown
    assert report.to_json()["findings"][0]["symptom"] == "D.1.11"
    assert "%ddt_debug --single" in report_text.report(report)
    for plain in ("name-not-defined", "syntax"):
        unread = report_text.finding(replace(own, cause=plain))
        assert unread.startswith("exception at cell[3] line 4 · no symptom of the study")
        assert "--single" not in unread
        assert "  more" not in unread
        assert (
            "read on" not in show(Report(ok=False, findings=[replace(own, cause=plain)])).to_html()
        )
    died = replace(own, cause="process-exit")
    assert report_text.finding(died).startswith("fault D.1.11 · training & evaluation")


def test_a_reason_is_shown_also_where_a_rank_stood() -> None:
    there = Place(file="cell[14]", line=4, code="if rank != 1:", role="passed")
    reason = Fact(kind="keeps-from-call", place=there, ranks=(1,))
    finding = hang_finding(facts=[reason], evidence=["a sentence about line 4"])
    assert "seen a sentence about line 4" in " ".join(report_text.finding(finding, hang()).split())
