"""The question of a lesson: its choices, the right one, and why each other one is wrong."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddt_notebook.symptoms.lessons import lesson_file
from ddt_notebook.views import html
from ddt_notebook.views.displayable import Displayable
from ddt_notebook.views.html import Markup
from ddt_notebook.views.terminal import wrap

_CHOICE = re.compile(r"^(\d)\. (.+?)(?=^\d\. |^\s*$|\Z)", re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(
    r"<details>\s*<summary>.*?</summary>\s*\**(\d)\\?\.\**\s*(.+?)\s*</details>", re.DOTALL
)
_HEADING = "## Predict"


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a lesson.

    Attributes
    ----------
    code
        The lesson, such as ``"D.2.1"``.
    choices
        What may happen, in the order of the lesson; the first has the number 1.
    right
        The number of the choice that happens.
    reasons
        By number: why it happens, and why each other choice does not.
    """

    code: str
    choices: tuple[str, ...]
    right: int
    reasons: dict[int, str]


@functools.cache
def question(code: str) -> Question:
    """The question of a lesson.

    Raises
    ------
    UnknownSymptom
        If there is no such lesson.
    """
    path = lesson_file(code)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    asked, _, below = prose.partition(_HEADING)[2].partition("\n## ")
    listed = _CHOICE.findall(asked.partition("<details>")[0])
    choices = tuple(" ".join(text.split()) for _, text in listed)
    answer = _ANSWER.search(asked + below)
    if answer is None:
        raise ValueError(f"{path.name} has no answer")
    known = path.name.split("-")[0]
    wrong = {int(number): text for number, text in _wrong().get(known, {}).items()}
    reasons = wrong | {int(answer[1]): " ".join(answer[2].split())}
    return Question(known, choices, int(answer[1]), reasons)


class PredictionView(Displayable):
    """The choices of a question, or what is said about one of them.

    Parameters
    ----------
    asked
        The question.
    choice
        The number that was chosen; 0 for none.
    """

    __slots__ = ("_asked", "_choice")

    def __init__(self, asked: Question, choice: int = 0) -> None:
        self._asked = asked
        self._choice = choice

    @property
    def right(self) -> bool:
        """Whether the choice is the right one."""
        return self._choice == self._asked.right

    def to_text(self) -> str:
        """The lines, 80 columns wide."""
        return "\n".join(line for text in self._lines() for line in wrap("", text))

    def to_html(self) -> str:
        """The same paragraphs."""
        first, *rest = self._lines()
        lines = (html.line(html.prose(text)) for text in rest)
        return html.view(html.line(html.tag("b", html.prose(first))), *lines)

    def title_html(self) -> Markup:
        """The question without its choices."""
        return html.view(html.line(html.tag("b", html.prose(self._title()))))

    def to_json(self) -> dict[str, Any]:
        """The lesson, the choice, and whether it is right."""
        return {"lesson": self._asked.code, "choice": self._choice, "right": self.right}

    def _lines(self) -> list[str]:
        asked, choice = self._asked, self._choice
        if not choice:
            numbered = [f"{n}. {text}" for n, text in enumerate(asked.choices, 1)]
            how = f"choose with `%ddt_predict {asked.code} NUMBER`, then run the next cell"
            return [self._title(), *numbered, how]
        said = f"{choice}. {asked.choices[choice - 1]}"
        if self.right:
            return [
                f"right: {said}",
                asked.reasons[choice],
                "The cell below the question shows it.",
            ]
        again = "Choose again, or run the cell below the question."
        return [f"no: {said}", asked.reasons[choice], again]

    def _title(self) -> str:
        return f"{self._asked.code}: what will happen?"


@functools.cache
def _wrong() -> dict[str, dict[str, str]]:
    path = Path(__file__).with_name("predictions.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))
