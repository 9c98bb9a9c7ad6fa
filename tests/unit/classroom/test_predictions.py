"""The questions of the lessons: every choice has its own explanation."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ddt_notebook.classroom import prediction
from ddt_notebook.classroom.prediction import PredictionView, question
from ddt_notebook.symptoms import lessons

CODES = [
    path.name.split("-")[0]
    for folder in lessons.lesson_folders()
    for path in sorted((lessons.notebooks_folder() / folder).glob("*.ipynb"))
]


@pytest.mark.parametrize("code", CODES)
def test_each_choice_has_an_explanation_of_its_own(code: str) -> None:
    asked = question(code)
    assert len(asked.choices) >= 3
    assert set(asked.reasons) == set(range(1, len(asked.choices) + 1))
    assert len(set(asked.reasons.values())) == len(asked.choices)
    for choice in asked.reasons:
        view = PredictionView(asked, choice)
        assert view.right is (choice == asked.right)
        assert view.to_text().lstrip().startswith("right: " if view.right else "no: ")


def test_there_is_no_explanation_without_a_lesson() -> None:
    path = Path(prediction.__file__).with_name("predictions.toml")
    assert set(tomllib.loads(path.read_text(encoding="utf-8"))) == set(CODES)


def test_a_strange_text_is_escaped() -> None:
    asked = prediction.Question("X", ("<b>one", "two"), 2, {1: "<i>", 2: "it is"})
    assert "<b>one" not in PredictionView(asked, 1).to_html()
