"""Chooses the question to ask next, until the answers point to one symptom.

The probability of each symptom starts from the study's counts (Liu et al., TOSEM 2023), and every
answer updates it by Bayes' rule, with room for wrong answers. The next question is the one with the
largest expected information, in bits. When no question separates the most probable symptom from the
others, the question asks for that symptom directly.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, Literal

from ..model import Fact
from ..symptoms import loader as symptoms

#: The probability that an answer is wrong: one from a person, and one from an observation.
_PERSON_ERRS, _OBSERVATION_ERRS = 0.08, 0.01
#: A symptom with this probability is the conclusion.
SURE = 0.85
#: The largest number of questions that the user is asked.
MOST = 7
#: A question with less expected information, in bits, is not asked.
_LEAST_BITS = 0.05
#: The factor by which a hint of the last run makes a symptom more probable.
_HINTED = 3.0

#: What gave an answer: the user, the last run, or a check that the user asked for.
Source = Literal["user", "run", "check"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers to choose from.

    Attributes
    ----------
    name
        Its name in the code; empty if the code does not refer to it.
    text
        What the user reads.
    """

    name: str
    text: str


_YES, _NO, _OTHER = Choice("yes", "yes"), Choice("no", "no"), Choice("other", "something else")


@dataclass(frozen=True, slots=True)
class Question:
    """A question with the answers to choose from.

    Attributes
    ----------
    id
        Its name; of a question about one symptom, ``"is D.2.1"``.
    text
        What the user reads.
    choices
        The answers to choose from.
    likelihoods
        For each symptom and each choice the probability that this choice is the true answer.
    after
        Id of a question that has to be answered first, empty if none has.
    after_choices
        Indices, from 0, of the choices of that question after which this one makes sense; empty
        for all.
    check
        Name of the check in `checks` that can answer it, empty if none can.
    asked
        False for a question that only a run answers. The user may have another run in mind, so
        such an answer counts no more than a person's.
    symptom
        The code of the symptom, for a question about one symptom.
    """

    id: str
    text: str
    choices: tuple[Choice, ...]
    likelihoods: Mapping[str, tuple[float, ...]] = field(repr=False)
    after: str = ""
    after_choices: frozenset[int] = frozenset()
    check: str = ""
    asked: bool = True
    symptom: str = ""

    def choice_for(self, symptom: str) -> int:
        """The index of the choice that is most often true for a symptom."""
        likelihoods = self.likelihoods[symptom]
        return likelihoods.index(max(likelihoods))

    def choice_named(self, name: str) -> int:
        """The index of the choice with this name; raises `ValueError` if there is none."""
        return [choice.name for choice in self.choices].index(name)


@functools.cache
def questions() -> tuple[Question, ...]:
    """All questions, without those about one symptom."""
    text = resources.files(__package__).joinpath("questions.toml").read_text(encoding="utf-8")
    return tuple(_question(**table) for table in tomllib.loads(text)["question"])


def _question(
    name: str,
    ask: str,
    choice: list[dict[str, Any]],
    after: str = "",
    after_choices: Iterable[int] = (),
    check: str = "",
    asked: bool = True,
) -> Question:
    choices = [Choice(table.get("name", ""), table["text"]) for table in choice]
    if not any(isinstance(table["symptoms"], str) for table in choice):
        choices.append(_OTHER)
    weights = {symptom.code: [0.0] * len(choices) for symptom in symptoms.symptoms()}
    for at, table in enumerate(choice):
        for code, weight in _weights(table["symptoms"]):
            weights[code][at] = weight
    likelihoods = {}
    for code, row in weights.items():
        row[-1] = row[-1] if any(row) else 1.0
        likelihoods[code] = tuple(weight / sum(row) for weight in row)
    following = frozenset(number - 1 for number in after_choices)
    return Question(name, ask, tuple(choices), likelihoods, after, following, check, asked)


def _weights(given: list[str] | str) -> Iterator[tuple[str, float]]:
    """For each symptom how often a choice is true, in proportion to the other choices."""
    if isinstance(given, str):
        for symptom in symptoms.symptoms():
            alone = symptom.faults - symptom.distributed_faults
            counts = {"distributed": symptom.distributed_faults, "plain": alone, "rest": 0}
            yield symptom.code, float(counts[given])
        return
    for entry in given:
        code, _, weight = entry.partition(":")
        yield code, float(weight or 1)


def about(code: str) -> Question:
    """The question whether the job shows this symptom."""
    symptom = symptoms.symptom(code)
    return Question(
        id=f"is {code}",
        text=f"Is it this: {symptom.title}, during {symptom.stage_title}?",
        choices=(_YES, _NO),
        likelihoods={
            other.code: (1.0, 0.0) if other.code == code else (0.0, 1.0)
            for other in symptoms.symptoms()
        },
        check="start" if symptom.stage in "AB" else "trace",
        symptom=code,
    )


def find(name: str) -> Question:
    """The question with this id.

    Raises
    ------
    LookupError
        If there is none.
    """
    for question in questions():
        if question.id == name:
            return question
    for symptom in symptoms.symptoms():
        if name == f"is {symptom.code}":
            return about(symptom.code)
    raise LookupError(f"there is no question {name!r}")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a question.

    Attributes
    ----------
    question
        Id of the question.
    choice
        Index of the choice, from 0; None for "I don't know", or for a check without a result.
    source
        What gave the answer.
    seen
        What was observed, its kind being one of `wording.OBSERVATIONS`; None for an answer of the
        user.
    """

    question: str
    choice: int | None
    source: Source = "user"
    seen: Fact | None = None


@dataclass(frozen=True)
class Questionnaire:
    """The answers so far, and what follows from them. Immutable: an answer gives a new one.

    Attributes
    ----------
    answers
        In the order in which they were given.
    hints
        Codes of the symptoms that the last run hints at; they are more probable than in the study.
    """

    answers: tuple[Answer, ...] = ()
    hints: tuple[str, ...] = ()

    @functools.cached_property
    def probabilities(self) -> dict[str, float]:
        """The probability of each symptom, the most probable first."""
        weights = {symptom.code: float(symptom.faults) for symptom in symptoms.symptoms()}
        for code in self.hints:
            weights[code] *= _HINTED
        for answer in self.answers:
            if answer.choice is None:
                continue
            question = find(answer.question)
            observed = answer.source != "user" and question.asked
            error = _OBSERVATION_ERRS if observed else _PERSON_ERRS
            for code in weights:
                weights[code] *= _likelihood(question, code, answer.choice, error)
        total = sum(weights.values())
        ranked = sorted(weights.items(), key=lambda item: -item[1])
        return {code: weight / total for code, weight in ranked}

    @property
    def asked(self) -> int:
        """The number of questions that the user answered."""
        return sum(answer.source == "user" for answer in self.answers)

    @property
    def checked(self) -> int:
        """The number of checks."""
        return sum(answer.source == "check" for answer in self.answers)

    @property
    def conclusion(self) -> str | None:
        """Code of the symptom that the answers point to; None while there is a question."""
        leading = next(iter(self.probabilities))
        return leading if self.question is None else None

    @functools.cached_property
    def question(self) -> Question | None:
        """The question with the largest expected information; None once there is a conclusion."""
        if self.asked >= MOST or next(iter(self.probabilities.values())) >= SURE:
            return None
        done = {
            answer.question: answer.choice
            for answer in self.answers
            if answer.choice is not None or answer.source == "user"
        }
        candidates = [
            question
            for question in questions()
            if question.asked and question.id not in done and _makes_sense(question, done)
        ]
        leading = next((code for code in self.probabilities if f"is {code}" not in done), None)
        if leading is not None:
            candidates.append(about(leading))
        worth = [(_expected_bits(one, self.probabilities), one) for one in candidates]
        bits, best = max(worth, key=lambda pair: pair[0], default=(0.0, None))
        return best if bits >= _LEAST_BITS else None

    def answered(self, choice: int | None) -> Questionnaire:
        """The answers with the user's answer to the current question; None for "I don't know".

        Raises
        ------
        ValueError
            If there is no question, or no such choice.
        """
        question = self.question
        if question is None:
            raise ValueError("there is no question")
        if choice is not None and not 0 <= choice < len(question.choices):
            raise ValueError(f"there is no answer {choice + 1}; there are {len(question.choices)}")
        return replace(self, answers=(*self.answers, Answer(question.id, choice)))

    def checked_with(self, answer: Answer) -> Questionnaire:
        """The answers with the result of a check of the current question.

        If the check has no result, the question stays, and `can_check` is False for it.
        """
        return replace(self, answers=(*self.answers, replace(answer, source="check")))

    def can_check(self, question: Question) -> bool:
        """Whether this question has not been checked yet."""
        return all(a.question != question.id for a in self.answers if a.source == "check")


def _makes_sense(question: Question, done: Mapping[str, int | None]) -> bool:
    """Whether a question can be asked after these answers, given by the id of their question."""
    if not question.after or question.after not in done:
        return not question.after
    choice = done[question.after]
    return choice is None or not question.after_choices or choice in question.after_choices


def _likelihood(question: Question, code: str, choice: int, error: float = _PERSON_ERRS) -> float:
    """The probability of an answer, given the symptom and the probability of a wrong answer."""
    true = question.likelihoods[code][choice]
    return (1 - error) * true + error * (1 - true) / (len(question.choices) - 1)


def _expected_bits(question: Question, probabilities: Mapping[str, float]) -> float:
    """By how many bits an answer is expected to reduce the entropy of the symptoms."""
    before, after = _entropy(probabilities.values()), 0.0
    for choice in range(len(question.choices)):
        joint = [p * _likelihood(question, code, choice) for code, p in probabilities.items()]
        chance = sum(joint)
        after += chance * _entropy(one / chance for one in joint)
    return before - after


def _entropy(chances: Iterable[float]) -> float:
    return -sum(p * math.log2(p) for p in chances if p > 0)
