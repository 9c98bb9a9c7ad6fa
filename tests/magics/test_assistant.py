"""The assistant's panel in a real kernel: tests press its buttons and read what would be saved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from nbconvert import HTMLExporter

from ddt_notebook.classroom.prediction import question
from ddt_notebook.faults import card

from .conftest import Notebook
from .front_end import WIDGET, Page

HANG = "%%ddt\nx = torch.ones(2)\nif rank == 0:\n    dist.all_reduce(x)\n    print('sum', x)"


@pytest.fixture(scope="module")
def quiet_kernel() -> Iterator[Page]:
    """Nothing has run on ranks."""
    made = Page()
    yield made
    made.close()


@pytest.fixture(scope="module")
def ranks_kernel() -> Iterator[Page]:
    made = Page()
    made.execute("%ddt_start -n 2 --hang-after 0.3")
    yield made
    made.close()


@pytest.fixture
def quiet(quiet_kernel: Page) -> Page:
    """A page on which nothing is shown yet."""
    quiet_kernel.clear()
    return quiet_kernel


@pytest.fixture
def page(ranks_kernel: Page) -> Page:
    """The same, with two ranks."""
    ranks_kernel.clear()
    return ranks_kernel


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_finding_its_views_and_its_repair(page: Page) -> None:
    page.execute(HANG)
    page.outputs.clear()
    page.execute("%ddt_debug")
    (_, saved), (_, panel) = page.outputs
    assert WIDGET not in saved
    assert set(panel) == {WIDGET, "text/plain", "text/html"}
    assert "the buttons of the assistant work while the notebook is open" in panel["text/plain"]
    assert "path training & evaluation → hang D.2.1 →" in flat(page.saved())
    assert "rank 1 never entered all_reduce #1" in page.shown()
    assert "11%, 5 of 44 hangs in the study" in page.shown()
    assert "lesson d-training/D.2.1-hang.ipynb" in page.shown()
    assert page.labels() == [
        "Leave",
        "Try the fixed cell",
        "Explain",
        "1   it is something else: go through the questions",
        "Show stacks",
        "Show collectives",
    ]

    page.press("Show stacks")
    assert "Hide stacks" in page.labels()
    for shown in (page.shown(), page.saved(), page.saved("text/html")):
        assert "stacks at the end of cell[" in shown
    assert page.focused == "", "the button that was pressed is there still"
    page.press("Hide stacks")
    assert "stacks at the end of cell[" not in page.saved()

    page.press("Explain")
    assert "differs from" in page.shown()
    page.press("Try the fixed cell")
    assert "your cell, corrected" in flat(page.saved())
    assert "+ dist.all_reduce(x)" in page.saved()
    shown = page.execute("%ddt_debug --fix")
    assert "the next cell holds your cell, corrected" in flat(str(shown))
    assert page.next_input.startswith("%%ddt_debug --again\nx = torch.ones(2)\ndist.all_reduce(x)")

    assert "runs the corrected cell on 2 ranks of the session" in page.shown()
    page.press("Run it now")
    assert "gone · the symptom is gone: the run is well now" in flat(page.saved())
    assert "the symptom is gone" in page.shown()
    assert "Run it now" not in page.labels()
    shown = page.execute("%ddt_debug --fix")
    assert "nothing was found in the last run" in str(shown), "it is about the last run"


def test_an_example_is_given_with_the_panel_and_without_it(page: Page) -> None:
    page.execute(
        "%%ddt\ndef total():\n    dist.all_reduce(torch.ones(1))\nif rank == 0:\n    total()"
    )
    page.execute("%ddt_debug --fix")
    straight = page.next_input
    assert straight.startswith("%%ddt_debug\n# an example, not your cell: ")
    page.next_input = ""
    page.execute("%ddt_debug")
    assert "gives an example (not your cell), repaired" in flat(page.saved())
    page.execute("%ddt_debug --fix")
    assert page.next_input == straight


def test_the_question_of_a_lesson_is_answered_by_a_button(quiet: Page) -> None:
    quiet.execute("%ddt_predict D.2.1")
    asked = question("D.2.1")
    assert [label.split()[0] for label in quiet.labels()] == ["1", "2", "3", "4"]
    assert asked.choices[1] in flat(quiet.saved())
    for number in (1, asked.right):
        quiet.press(f"{number} ")
        said = f"{'right' if number == asked.right else 'no'}: {number}."
        assert said in flat(quiet.saved())
        assert asked.reasons[number] in flat(quiet.saved())
        assert said in quiet.shown()


def test_from_the_questions_to_the_fault_and_back(quiet: Page) -> None:
    quiet.execute("%ddt_debug ask")
    assert "How far did the job get?" in quiet.saved()
    first = quiet.saved()
    assert "Back" not in quiet.labels()
    quiet.press("5 ")
    assert quiet.focused.startswith("1 ")
    quiet.press("3 ")
    while "I don't know" in quiet.labels():
        quiet.press("1 ")
    assert "hang D.2.1, with a probability of" in quiet.saved()
    number = next(label for label in quiet.labels() if "under a condition on the rank" in label)
    quiet.press(number)
    assert quiet.focused == "Try the fixed cell"
    assert "What do you see? it hangs, or a timeout expires" in flat(quiet.saved())
    exported, _ = HTMLExporter().from_notebook_node(quiet.notebook())
    shown = flat(re.sub(r"<[^>]+>", "", exported))
    assert "training &amp; evaluation → hang D.2.1 → a collective under a condition" in shown
    assert "What do you see? it hangs, or a timeout expires" in shown
    assert "the buttons of the assistant work while the notebook is open" in shown

    quiet.execute("%ddt_debug --fix")
    assert quiet.next_input.startswith(
        "%%ddt_debug\n# an example, not your cell: a collective under"
    )
    quiet.focused = ""
    quiet.press("Back")
    assert quiet.focused == "", "it is there still"
    assert "which of these faults is it?" in quiet.saved()
    quiet.press("Restart")
    assert quiet.saved() == first
    quiet.press("I don't know")
    quiet.press("Leave")
    assert quiet.visible() == []
    assert quiet.saved() != first, "what was shown last stays"
    errors = quiet.execute("%ddt_debug 1")
    assert "there is no question" in str(errors)


def test_a_check_is_run_and_can_be_undone(page: Page) -> None:
    page.execute("%%ddt\ntorch.ones(2, 3) @ torch.ones(2, 3)")
    page.outputs.clear()
    page.execute("%ddt_debug ask")
    before = page.saved()
    assert "What is the first error about?" in before
    assert "read the error of the last run: RuntimeError" in flat(page.shown())
    page.press("Check it for me")
    assert "shapes, sizes or types of tensors (D.1.5: rank" in flat(page.saved())
    page.press("Back")
    assert page.saved() == before


def test_a_button_and_a_typed_word_mean_the_same(quiet: Page) -> None:
    quiet.execute("%ddt_debug ask")
    quiet.press("5 ")
    after = quiet.saved()
    quiet.execute("%ddt_debug undo\n")
    assert quiet.saved() != after
    quiet.execute("%ddt_debug 5")
    assert quiet.saved() == after


def test_hints_are_shown_below_a_healthy_result(page: Page) -> None:
    page.execute(f"%%ddt\n{card('sum-shown-as-mean').broken}")
    page.outputs.clear()
    page.execute("%ddt_debug")
    assert page.saved().startswith("ok · 2 ranks, 1 collective on 1 group")
    assert "path training & evaluation → " in flat(page.saved())
    assert "· possible" in page.saved()
    page.press("1 ")
    assert "question 1" in page.saved()


def test_without_buttons_it_is_text_and_html(quiet: Page) -> None:
    quiet.execute("%config DDT.widgets = False")
    shown = quiet.execute("%ddt_debug ask")
    assert [m["msg_type"] for m in shown] == ["execute_result"]
    assert "How far did the job get?" in shown[0]["content"]["data"]["text/plain"]
    assert quiet.states == {}
    quiet.execute("%config DDT.widgets = True")


def test_in_a_terminal_it_is_text(notebook: Notebook) -> None:
    shown: Any = notebook.run("%ddt_debug ask")
    assert "How far did the job get?" in repr(shown)
    assert not hasattr(shown, "panel")


def test_what_ranks_print_is_not_markup(page: Page) -> None:
    page.execute("%%ddt\nraise ValueError('<script>alert(1)</script><img src=x onerror=alert(2)>')")
    page.outputs.clear()
    page.execute("%ddt_debug")
    for html in (page.shown(), page.saved("text/html")):
        assert "<script>" not in html
        assert "<img" not in html
        assert "&lt;script&gt;alert(1)" in html
