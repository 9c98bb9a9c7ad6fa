from dataclasses import dataclass, field, replace

from ddt_notebook.model import Report
from ddt_notebook.views import html
from ddt_notebook.views.displayable import Message
from ddt_notebook.views.flags import Flag
from ddt_notebook.views.overview import Overview
from ddt_notebook.views.report import show


@dataclass
class View:
    flags: list[Flag] = field(default_factory=list)
    blind: str = ""

    def unseen(self) -> str:
        return self.blind

    def to_html(self) -> str:
        return html.Markup("<p>the whole view</p>")


def overview(*, cut_off: bool = False) -> Overview:
    overlap = Flag("warning", f"ranks 0, 1 each got the same samples of <loader> {'and ' * 20}")
    views = {"placement": View(), "partition": View([overlap, Flag("hint", "one epoch only")])}
    return Overview(Message("ok · 2 ranks"), views, cut_off=cut_off)


def test_each_view_is_shown_as_one_line_or_as_its_flags() -> None:
    lines = overview().to_text().splitlines()
    assert lines[0] == "ok · 2 ranks"
    assert lines[1] == "  placement    ok · nothing odd"
    assert lines[2].startswith("  partition    ▲ ranks 0, 1 each got the same samples")
    assert lines[-2] == "               ? one epoch only"
    assert max(map(len, lines)) <= 80


def test_a_view_that_had_nothing_to_judge_is_not_called_ok() -> None:
    shown = Overview(Message("ok"), {"partition": View(blind="no DataLoader was used")})
    assert shown.to_text().splitlines()[1] == "  partition    no DataLoader was used"
    assert "partition · no DataLoader was used" in shown.to_html()


def test_views_are_folded_and_escaped() -> None:
    shown = overview().to_html()
    assert shown.count("<details") == 2
    assert shown.count("<p>the whole view</p>") == 2
    assert "&lt;loader&gt;" in shown
    assert "<loader>" not in shown


def test_after_a_run_that_was_cut_off_the_consequences_are_folded() -> None:
    lines = overview(cut_off=True).to_text().splitlines()
    assert lines[1].startswith("  views of what ran until then")
    assert "partition (2 flags)" in " ".join(" ".join(lines).split())
    assert "ok · nothing odd" not in "".join(lines)
    assert "same samples" not in "".join(lines)
    shown = overview(cut_off=True).to_html()
    assert shown.count("<details") == 3
    assert shown.count("<p>the whole view</p>") == 2
    assert "nothing odd" not in shown
    assert "&lt;loader&gt;" in shown


def test_the_headline_does_not_contradict_the_views() -> None:
    report = Report(ok=True, findings=[], hints=[], checked="2 ranks, no collectives")
    plain, flagging = show(report), replace(show(report), flagging=2)
    assert plain.to_text() == "ok · 2 ranks, no collectives"
    assert flagging.to_text() == "ok, but 2 views flag something · 2 ranks, no collectives"
    assert "✓" in plain.to_html()
    assert "✓" not in flagging.to_html()
    assert "ok, but 2 views flag something" in flagging.to_html()
    assert plain.to_json() == flagging.to_json()
