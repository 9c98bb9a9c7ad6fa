"""The picture of memory over time: its heights are the samples, its kinds the counts."""

from __future__ import annotations

import re
from dataclasses import replace

from ddt_notebook.model import Position
from ddt_notebook.model.memory import MemoryCount, RankMemory
from ddt_notebook.views import memory_areas
from ddt_notebook.views.memory_areas import COLUMNS, ROWS, Areas

MB = 1_000_000
#: For one second 100 MB, then 340 MB, of which the model takes half.
GROWN = RankMemory(
    rank=3,
    at_ms=tuple(range(0, 2001, 100)),
    rss_kb=tuple((100 if at < 10 else 340) * MB // 1024 for at in range(21)),
    counts=(
        MemoryCount(at_ms=1000, parts={"parameters": 80 * MB, "activations": 40 * MB}),
        MemoryCount(at_ms=1100, parts={"parameters": 80 * MB}),
    ),
    highest_at_ms=1000,
    highest_where=Position(file="cell[2]", line=4, code="model(x)"),
)


def drawn(memory: RankMemory = GROWN, cap: int | None = None) -> Areas:
    found = memory_areas.areas(memory, memory.rss_kb, cap)
    assert found is not None
    return found


def column(found: Areas, at: int) -> str:
    """One slot of time from bottom to top."""
    rows = [row for _, row in found.rows if len(row) == COLUMNS and not row.strip().startswith("-")]
    return "".join(row[at] for row in reversed(rows[:ROWS]))


def test_a_kind_is_as_high_as_its_bytes_and_the_rest_fills_up() -> None:
    found = drawn()
    assert column(found, 5).strip() == ""  # the baseline
    # 240 MB above it in 12 rows: 4 of parameters, 2 of activations, 6 of anything else
    assert column(found, COLUMNS - 1) == "ppppaa......"
    assert (found.rows[0][0], found.rows[ROWS - 1][0]) == ("340 MB", "100.0 MB")
    assert found.legend == (
        "p parameters · a activations · . the rest · the height is resident memory above 100.0 MB, "
        "which the process needs without them; a row is 20.0 MB"
    )


def test_nothing_is_drawn_as_a_kind_before_it_was_counted() -> None:
    found = drawn(replace(GROWN, counts=GROWN.counts[1:]))
    before = int(COLUMNS * 1050 / 2000)
    assert column(found, before) == "." * ROWS
    assert "a" not in column(found, COLUMNS - 1)


def test_the_peak_is_marked_with_its_line() -> None:
    found = drawn()
    mark = next(row for _, row in found.rows if "↑" in row)
    assert mark.index("↑") == COLUMNS // 2
    assert (
        found.peak
        == "↑ rank 3 was at the highest, 340 MB, after 1.0 s, at cell[2] line 4: model(x)"
    )
    assert drawn(replace(GROWN, highest_where=None)).peak.endswith("340 MB, after 1.0 s")


def test_a_later_peak_is_marked_where_it_was_and_without_the_line_of_an_earlier_one() -> None:
    """As when the main thread stood in no line of the user at the peak."""
    found = drawn(replace(GROWN, rss_kb=(*GROWN.rss_kb[:-1], 400 * MB // 1024)))
    mark = next(row for _, row in found.rows if "↑" in row)
    assert mark.index("↑") == COLUMNS - 1
    assert found.peak == "↑ rank 3 was at the highest, 400 MB, after 2.0 s"


def test_the_legend_has_the_colours_of_the_picture() -> None:
    legend = memory_areas.legend_as_html(drawn())
    assert 'style="background-color:#0072B2;color:#FFFFFF">p</span></samp> parameters' in legend


def test_the_cap_is_drawn_where_it_is_near() -> None:
    assert drawn(cap=400 * MB).rows[0] == ("400 MB", "-" * COLUMNS)
    assert "- the cap" in drawn(cap=400 * MB).legend
    assert column(drawn(cap=400 * MB), COLUMNS - 1).endswith("  ")
    assert "- the cap" not in drawn(cap=4000 * MB).legend


def test_nothing_is_drawn_without_samples_or_without_a_change() -> None:
    assert memory_areas.areas(RankMemory(rank=0), (), None) is None
    flat = replace(GROWN, rss_kb=(1000,) * 21, counts=())
    assert memory_areas.areas(flat, flat.rss_kb, None) is None


def test_blanks_survive_a_program_that_drops_ordinary_ones() -> None:
    """nbconvert reads the page with a parser that shortens text of nothing but spaces."""
    page = str(memory_areas.as_html(drawn()))
    assert not re.search(r"(^|>)\s*[ ]{2,}\s*<", page, re.MULTILINE)
    assert "\N{NO-BREAK SPACE}" * 5 in page
