"""The ranks' output, as the kernel sends it to JupyterLab's "Rank Output"."""

from __future__ import annotations

import json
from typing import Any

from ddt_notebook.views import output_log
from ddt_notebook.views.output_log import OutputLog, of_texts

PAGE = 100_000


def texts(page: dict[str, Any]) -> list[str]:
    return [line.text for line in page["lines"]]


def whole(log: OutputLog, limit: int = PAGE) -> list[dict[str, Any]]:
    """Every page, asked for as a front end does."""
    pages = [log.page(0, limit)]
    while pages[-1]["next"] < pages[-1]["total"]:
        pages.append(log.page(pages[-1]["next"], limit))
    return pages


def test_lines_stand_in_the_order_in_which_they_came() -> None:
    log = OutputLog(5)
    log.add(1, "stdout", "one\ntwo\n")
    log.add(0, "stderr", "three\n")
    log.add(1, "stdout", "four\n")
    assert log.page(0, PAGE) == {
        "cell": 5,
        "running": True,
        "ordered": True,
        "first": 0,
        "from": 0,
        "next": 4,
        "total": 4,
        "lines": [
            (1, "stdout", "one"),
            (1, "stdout", "two"),
            (0, "stderr", "three"),
            (1, "stdout", "four"),
        ],
        "unfinished": [],
    }
    assert texts(log.page(3, PAGE)) == ["four"]
    assert texts(log.page(4, PAGE)) == texts(log.page(9, PAGE)) == []


def test_a_progress_bar_is_one_line_that_is_sent_while_it_is_unfinished() -> None:
    log = OutputLog(1)
    for step in range(100):
        log.add(0, "stderr", f"\r{step} %")
    log.add(1, "stdout", "50 ")
    page = log.page(0, PAGE)
    assert page["lines"] == []
    assert page["unfinished"] == [(0, "stderr", "99 %"), (1, "stdout", "50")]
    before = log.version
    log.add(0, "stderr", "\r100 %\n")
    assert log.version != before
    log.finish()
    page = log.page(0, PAGE)
    assert page["lines"] == [(0, "stderr", "100 %"), (1, "stdout", "50 ")]
    assert (page["unfinished"], page["running"]) == ([], False)


def test_output_continues_after_a_cell_was_held() -> None:
    log = OutputLog(1)
    log.add(0, "stdout", "held\n")
    log.finish()
    log.add(0, "stdout", "released\n")
    assert log.page(0, PAGE)["running"]
    assert texts(log.page(0, PAGE)) == ["held", "released"]


def test_hostile_text_is_escaped() -> None:
    log = OutputLog(1)
    log.add(0, "stdout", "\x1b[31mred\x1b[0m\x07\x1b]8;;http://x\x07link\u202e\ud800\n")
    log.add(0, "stdout", "<img src=x onerror=alert(1)>\n")
    assert texts(log.page(0, PAGE)) == ["red␇link�", "<img src=x onerror=alert(1)>"]
    json.dumps(log.page(0, PAGE), ensure_ascii=False).encode()


def test_a_long_line_shows_how_much_is_missing() -> None:
    log = OutputLog(1)
    log.add(0, "stdout", "x" * 10_000 + "\n")
    (text,) = texts(log.page(0, PAGE))
    assert text.startswith("x" * 2000)
    assert text.endswith("… (8,000 more characters)")


def test_pages_are_bounded_whatever_is_in_them() -> None:
    log = OutputLog(1)
    for number in range(3000):
        log.add(number % 64, "stdout", f"{number} " + '🙂"\\' * 200 + "\n")
    for rank in range(64):
        log.add(rank, "stderr", "🙂" * 5000)
    pages = whole(log)
    assert [text.split()[0] for page in pages for text in texts(page)] == [
        str(number) for number in range(3000)
    ]
    sizes = [len(json.dumps(page, ensure_ascii=False).encode()) for page in pages]
    assert max(sizes) < PAGE + 500
    assert [bool(page["unfinished"]) for page in pages] == [False] * (len(pages) - 1) + [True]


def test_what_is_kept_is_bounded_in_lines_and_in_characters() -> None:
    log = OutputLog(1)
    log.add(0, "stdout", "".join(f"{n}\n" for n in range(output_log.LINES_KEPT + 7)))
    page = log.page(0, PAGE)
    assert (page["first"], page["from"], texts(page)[0]) == (7, 7, "7")
    for _ in range(output_log.CHARACTERS_KEPT // 10_000 + 3):
        log.add(1, "stdout", "y" * 9_999 + "\n")
    assert log.total - log.first <= output_log.CHARACTERS_KEPT // 9_999
    assert texts(log.page(log.total - 1, PAGE))[0].startswith("yyy")


def test_without_a_listener_output_is_ordered_by_rank() -> None:
    page = of_texts(3, {1: "b\n", 2: "", 0: "a1\na2"}).page(0, PAGE)
    assert page["lines"] == [(0, "", "a1"), (0, "", "a2"), (1, "", "b")]
    assert not page["ordered"]
    assert not page["running"]
