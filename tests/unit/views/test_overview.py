from dataclasses import dataclass, field

from ddt_notebook.views import html
from ddt_notebook.views.bundle import Message
from ddt_notebook.views.flags import Flag
from ddt_notebook.views.overview import Overview


@dataclass
class View:
    flags: list[Flag] = field(default_factory=list)

    def to_html(self) -> str:
        return html.Markup("<p>the whole view</p>")


def overview() -> Overview:
    overlap = Flag("warning", f"ranks 0, 1 each got the same samples of <loader> {'and ' * 20}")
    views = {"placement": View(), "partition": View([overlap, Flag("hint", "one epoch only")])}
    return Overview(Message("ok · 2 ranks"), views)


def test_each_view_is_one_line_or_its_flags() -> None:
    lines = overview().to_text().splitlines()
    assert lines[0] == "ok · 2 ranks"
    assert lines[1] == "  placement    ok · nothing odd"
    assert lines[2].startswith("  partition    ▲ ranks 0, 1 each got the same samples")
    assert lines[-2] == "               ? one epoch only"
    assert max(map(len, lines)) <= 80


def test_views_are_folded_and_escaped() -> None:
    shown = overview().to_html()
    assert shown.count("<details") == 2
    assert shown.count("<p>the whole view</p>") == 2
    assert "&lt;loader&gt;" in shown
    assert "<loader>" not in shown
