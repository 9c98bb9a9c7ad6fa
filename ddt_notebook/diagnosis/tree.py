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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources

from ddt_notebook.symptoms import loader as taxonomy

#: How often an answer is taken to be wrong: a person's, and that of an observation.
_MISTAKEN, _MISREAD = 0.08, 0.01
#: A symptom as likely as this is named.
SURE = 0.85
#: Never more questions than this.
MOST = 7
#: A question that is expected to tell less, in bits, is not worth asking.
_LEAST_BITS = 0.05
#: How much likelier a symptom is that the last run hints at.
_HINTED = 3.0

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
    given
        Numbers, from 1, of the choices of that question after which it makes sense; empty: all.
    probe
        Name of the check in `ddt_notebook.inquiry` that can answer it, empty if none can.
    asked
        False for what is known from a run or not at all. It may be of another run than the one
        that is spoken of, and is believed no more than a person's answer.
    """

    id: str
    ask: str
    choices: tuple[str, ...]
    truths: Mapping[str, tuple[float, ...]] = field(repr=False)
    needs: str = ""
    given: frozenset[int] = frozenset()
    probe: str = ""
    asked: bool = True


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
        What gave it: empty for the user, else the observation that answered it; with no choice,
        what was observed without an answer in it.
    checked
        True if the user had the question checked; False if it was known from the start.
    """

    question: str
    choice: int | None
    told_by: str = ""
    checked: bool = False


@functools.cache
def questions() -> tuple[Question, ...]:
    """All questions but those about one symptom."""
    text = resources.files(__package__).joinpath("questions.toml").read_text(encoding="utf-8")
    return tuple(_question(plain) for plain in tomllib.loads(text)["question"])


def _question(plain: dict[str, object]) -> Question:
    choices, given = plain["choice"], plain.get("given", ())
    assert isinstance(choices, list)
    assert isinstance(given, (list, tuple))
    texts = [choice["text"] for choice in choices]
    if not any(isinstance(choice["symptoms"], str) for choice in choices):
        texts.append(ELSE)
    weights = {symptom.code: [0.0] * len(texts) for symptom in taxonomy.symptoms()}
    for at, choice in enumerate(choices):
        for code, weight in _weights(choice["symptoms"]):
            weights[code][at] = weight
    truths = {}
    for code, row in weights.items():
        row[-1] = row[-1] if any(row) else 1.0
        truths[code] = tuple(weight / sum(row) for weight in row)
    return Question(
        str(plain["id"]),
        str(plain["ask"]),
        tuple(texts),
        truths,
        needs=str(plain.get("needs", "")),
        given=frozenset(given),
        probe=str(plain.get("probe", "")),
        asked=bool(plain.get("asked", True)),
    )


def _weights(symptoms: list[str] | str) -> Iterator[tuple[str, float]]:
    """For each symptom of a choice how often it is true, beside the other choices."""
    if isinstance(symptoms, str):
        for symptom in taxonomy.symptoms():
            alone = symptom.faults - symptom.distributed_faults
            counts = {"distributed": symptom.distributed_faults, "plain": alone, "rest": 0}
            yield symptom.code, float(counts[symptoms])
        return
    for entry in symptoms:
        code, _, weight = entry.partition(":")
        yield code, float(weight or 1)


def about(code: str) -> Question:
    """The question whether it is this symptom."""
    symptom = taxonomy.symptom(code)
    ask = f"Is it this: {symptom.title}, during {symptom.stage_title}?"
    truths = {s.code: (1.0, 0.0) if s.code == code else (0.0, 1.0) for s in taxonomy.symptoms()}
    probe = "start" if symptom.stage in "AB" else "trace"
    return Question(f"is {code}", ask, (YES, NO), truths, probe=probe)


@dataclass(frozen=True, slots=True)
class Interview:
    """The answers so far, and what follows from them. Immutable: an answer gives a new one.

    Attributes
    ----------
    answers
        In the order in which they were given.
    hints
        Codes of symptoms that the last run hints at; they are taken to be likelier than in the
        study.
    """

    answers: tuple[Answer, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def beliefs(self) -> dict[str, float]:
        """How likely each symptom is, the likeliest first."""
        beliefs = {s.code: float(s.faults) for s in taxonomy.symptoms()}
        for code in self.hints:
            beliefs[code] *= _HINTED
        for answer in self.answers:
            if answer.choice is None:
                continue
            question = find(answer.question)
            wrong = _MISREAD if answer.told_by and question.asked else _MISTAKEN
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

    def observed(self, answer: Answer) -> Interview:
        """With what a check of a question came to.

        If it could not tell, the question stays, and is not offered to be checked again.
        """
        return replace(self, answers=(*self.answers, replace(answer, checked=True)))

    def can_check(self, question: Question) -> bool:
        """Whether no check of this question has been of no avail."""
        return all(answer.question != question.id for answer in self.answers if answer.checked)

    def without_last(self) -> Interview:
        """As it was before the user's last answer or check."""
        given = [at for at, a in enumerate(self.answers) if a.checked or not a.told_by]
        if not given:
            return self
        kept = (*self.answers[: given[-1]], *self.answers[given[-1] + 1 :])
        return replace(self, answers=kept)

    def restarted(self) -> Interview:
        """With nothing but what was known from the start."""
        known = tuple(a for a in self.answers if a.told_by and not a.checked)
        return replace(self, answers=known)

    def _next(self) -> Question | None:
        """The question from which most is to be expected; None if none is worth it."""
        if self.asked >= MOST:
            return None
        done = {a.question: a.choice for a in self.answers if a.choice is not None or not a.told_by}
        beliefs = self.beliefs
        open_ones = [
            q for q in questions() if q.asked and q.id not in done and _makes_sense(q, done)
        ]
        leading = next((code for code in beliefs if f"is {code}" not in done), None)
        if leading is not None:
            open_ones.append(about(leading))
        best = max(open_ones, key=lambda q: _expected_bits(q, beliefs), default=None)
        if best is None or _expected_bits(best, beliefs) < _LEAST_BITS:
            return None
        return best


def _makes_sense(question: Question, done: Mapping[str, int | None]) -> bool:
    """Whether a question can be asked after these answers, by the question."""
    if not question.needs or question.needs not in done:
        return not question.needs
    choice = done[question.needs]
    return choice is None or not question.given or choice + 1 in question.given


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
