"""The guided tree: which question to ask next when there is no evidence yet.

What is believed of each symptom begins at the study's counts (Liu et al., TOSEM 2023) and changes
with every answer by Bayes' rule, with room for answers that are wrong. The next question is the one
from whose answer most is to be expected, in bits; when no question tells the leading symptom from
the rest, it is put to the user itself.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources

from ddt_notebook.taxonomy import loader as taxonomy

#: How often an answer is taken to be wrong: a person's, and that of an observation.
_MISTAKEN, _MISREAD = 0.08, 0.01
#: A symptom as likely as this is named.
SURE = 0.85
#: Never more questions than this.
MOST = 7
#: A question that is expected to tell less, in bits, is not worth asking.
_LEAST_BITS = 0.05

ELSE = "something else"
YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes
    ----------
    id
        Its name; of a question about one symptom, ``"is D.2.1"``.
    ask
        The question.
    choices
        The answers to choose from.
    truths
        For each symptom how likely each choice is, if the answer is true.
    needs
        Id of a question that has to be asked before, empty if none.
    """

    id: str
    ask: str
    choices: tuple[str, ...]
    truths: Mapping[str, tuple[float, ...]] = field(repr=False)
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer.

    Attributes
    ----------
    question
        Id of the question.
    choice
        Number of the choice, from 0; None for "I don't know".
    told_by
        What gave it: empty for the user, else the observation that answered it.
    """

    question: str
    choice: int | None
    told_by: str = ""


@functools.cache
def questions() -> tuple[Question, ...]:
    """All questions but those about one symptom."""
    text = resources.files(__package__).joinpath("questions.toml").read_text(encoding="utf-8")
    return tuple(_question(plain) for plain in tomllib.loads(text)["question"])


def _question(plain: dict[str, object]) -> Question:
    choices = plain["choice"]
    assert isinstance(choices, list)
    weights: dict[str, list[float]] = {}
    for at, choice in enumerate(choices):
        for entry in choice["symptoms"]:
            code, _, weight = entry.partition(":")
            row = weights.setdefault(code, [0.0] * (len(choices) + 1))
            row[at] = float(weight or 1)
    truths = {}
    for symptom in taxonomy.symptoms():
        row = weights.get(symptom.code, [0.0] * len(choices) + [1.0])
        truths[symptom.code] = tuple(weight / sum(row) for weight in row)
    texts = (*(choice["text"] for choice in choices), ELSE)
    needs = str(plain.get("needs", ""))
    return Question(str(plain["id"]), str(plain["ask"]), texts, truths, needs)


def about(code: str) -> Question:
    """The question whether it is this symptom."""
    symptom = taxonomy.symptom(code)
    ask = f"Is it this: {symptom.title}, during {symptom.stage_title}?"
    truths = {s.code: (1.0, 0.0) if s.code == code else (0.0, 1.0) for s in taxonomy.symptoms()}
    return Question(f"is {code}", ask, (YES, NO), truths)


@dataclass(frozen=True, slots=True)
class Interview:
    """The answers so far, and what follows from them. Immutable: an answer gives a new one.

    Attributes
    ----------
    answers
        In the order in which they were given.
    """

    answers: tuple[Answer, ...] = ()

    @property
    def beliefs(self) -> dict[str, float]:
        """How likely each symptom is, the likeliest first."""
        beliefs = {s.code: float(s.faults) for s in taxonomy.symptoms()}
        for answer in self.answers:
            if answer.choice is None:
                continue
            question = find(answer.question)
            wrong = _MISREAD if answer.told_by else _MISTAKEN
            for code in beliefs:
                beliefs[code] *= _likelihood(question, code, answer.choice, wrong)
        whole = sum(beliefs.values())
        ranked = sorted(beliefs.items(), key=lambda item: -item[1])
        return {code: belief / whole for code, belief in ranked}

    @property
    def asked(self) -> int:
        """How many questions the user was asked."""
        return sum(not answer.told_by for answer in self.answers)

    @property
    def conclusion(self) -> str | None:
        """Code of the symptom, once it is told; None while there is something to ask."""
        leading, belief = next(iter(self.beliefs.items()))
        return leading if belief >= SURE or self._next() is None else None

    @property
    def question(self) -> Question | None:
        """What to ask next; None when a symptom is told."""
        return None if self.conclusion is not None else self._next()

    def answered(self, choice: int | None) -> Interview:
        """With an answer to the current question; None for "I don't know".

        Raises
        ------
        ValueError
            If nothing is asked any more, or there is no such choice.
        """
        question = self.question
        if question is None:
            raise ValueError("nothing is asked any more")
        if choice is not None and not 0 <= choice < len(question.choices):
            raise ValueError(f"there is no answer {choice + 1}; there are {len(question.choices)}")
        return replace(self, answers=(*self.answers, Answer(question.id, choice)))

    def without_last(self) -> Interview:
        """As it was before the user's last answer."""
        given = [at for at, answer in enumerate(self.answers) if not answer.told_by]
        if not given:
            return self
        kept = (*self.answers[: given[-1]], *self.answers[given[-1] + 1 :])
        return replace(self, answers=kept)

    def restarted(self) -> Interview:
        """With nothing but what was observed."""
        return Interview(tuple(answer for answer in self.answers if answer.told_by))

    def _next(self) -> Question | None:
        """The question from which most is to be expected; None if none is worth it."""
        if self.asked >= MOST:
            return None
        done = {answer.question for answer in self.answers}
        beliefs = self.beliefs
        open_ones = [q for q in questions() if q.id not in done and q.needs in {"", *done}]
        leading = next((code for code in beliefs if f"is {code}" not in done), None)
        if leading is not None:
            open_ones.append(about(leading))
        best = max(open_ones, key=lambda q: _expected_bits(q, beliefs), default=None)
        if best is None or _expected_bits(best, beliefs) < _LEAST_BITS:
            return None
        return best


def find(name: str) -> Question:
    """A question by its id.

    Raises
    ------
    LookupError
        If there is none.
    """
    if name.startswith("is "):
        return about(name.removeprefix("is "))
    known = {question.id: question for question in questions()}
    if name not in known:
        raise LookupError(f"there is no question {name!r}")
    return known[name]


def _likelihood(question: Question, code: str, choice: int, wrong: float = _MISTAKEN) -> float:
    """How likely an answer is, if it is this symptom; any answer may be a mistake."""
    true = question.truths[code][choice]
    return (1 - wrong) * true + wrong * (1 - true) / (len(question.choices) - 1)


def _expected_bits(question: Question, beliefs: dict[str, float]) -> float:
    """By how much an answer is expected to narrow things down."""
    before, after = _entropy(beliefs.values()), 0.0
    for choice in range(len(question.choices)):
        joint = [b * _likelihood(question, code, choice) for code, b in beliefs.items()]
        chance = sum(joint)
        after += chance * _entropy(one / chance for one in joint)
    return before - after


def _entropy(chances: Iterable[float]) -> float:
    return -sum(p * math.log2(p) for p in chances if p > 0)
