"""The data of one grading: drawn from a seed, so that no student's answer fits another's."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddt_notebook.host.errors import SessionError

#: Samples that only the grader has: a model is judged on what no rank has seen.
_HELD_OUT = 300
_CLASSES = 10
#: The file that the ranks read their data from.
TASK = "task.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What an exercise gives to its ranks.

    Attributes
    ----------
    per_rank
        Training samples for each rank.
    extra
        Further training samples, so that they cannot be dealt out evenly.
    validation
        Samples that every rank may evaluate on.
    epochs
        How often each sample is to be trained on.
    batch
        Samples of a batch of one rank; None: its whole share is one batch.
    accumulate
        Batches whose gradients make one step.
    hidden
        Units of the hidden layer; 0: a linear model.
    rate
        Learning rate of plain gradient descent.
    damaged
        How many training samples cannot be read: the data set raises ``ValueError`` for them.
    random_start
        Whether ``exercise.model()`` starts from other weights on each rank; those of rank 0 count.
    by_class
        Whether the training samples stand in the order of their classes.
    """

    per_rank: int = 48
    extra: int = 0
    validation: int = 0
    epochs: int = 20
    batch: int | None = None
    accumulate: int = 1
    hidden: int = 0
    rate: float = 1.0
    damaged: int = 0
    random_start: bool = False
    by_class: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An exercise with its data.

    Attributes
    ----------
    setting
        What the exercise asks for.
    world_size
        Number of ranks.
    special
        The rank that is late, or whatever else is different about one rank.
    inputs, labels
        The training samples.
    validation_inputs, validation_labels
        What every rank may evaluate on.
    held_inputs, held_labels
        What only the grader has.
    initial
        The weights and biases that training starts from.
    damaged
        Indices of the training samples that cannot be read.
    """

    setting: Setting
    world_size: int
    special: int
    inputs: Any
    labels: Any
    validation_inputs: Any
    validation_labels: Any
    held_inputs: Any
    held_labels: Any
    initial: tuple[Any, ...]
    damaged: tuple[int, ...]

    def save(self, path: Path) -> None:
        """Write what the ranks are told: all but the held-out samples."""
        import numpy as np

        setting = self.setting
        told = {
            "damaged": self.damaged,
            "special": self.special,
            "epochs": setting.epochs,
            "batch": setting.batch,
            "accumulate": setting.accumulate,
            "rate": setting.rate,
            "random_start": setting.random_start,
        }
        np.savez(
            path,
            told=json.dumps(told),
            inputs=self.inputs,
            labels=self.labels,
            validation_inputs=self.validation_inputs,
            validation_labels=self.validation_labels,
            **{f"initial{at}": values for at, values in enumerate(self.initial)},
        )


def seed_of(*words: str) -> int:
    """A seed that depends on the words only, such as a student's and an exercise's name."""
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return int.from_bytes(digest[:6], "big")


def practice_seed(exercise: str, student: str) -> int:
    """Seed of the data that a student works with."""
    return seed_of("practice", student, exercise)


def grading_seed(exercise: str, student: str) -> int:
    """Seed of the data that a student is graded on: always the same, and not that of practice."""
    return seed_of("grading", student, exercise)


def student_name() -> str:
    """Whoever works here, as the hub or the operating system calls them."""
    for variable in ("JUPYTERHUB_USER", "NB_USER", "USER", "LOGNAME"):
        if os.environ.get(variable):
            return os.environ[variable]
    return f"user {os.getuid()}"


def make_task(setting: Setting, seed: int, world_size: int) -> Task:
    """Draw the data of an exercise.

    Parameters
    ----------
    setting
        What the exercise asks for.
    seed
        Chooses samples, the order of pixels and classes, the weights and the special rank.
    world_size
        Number of ranks that it is for.
    """
    import numpy as np

    draw = np.random.default_rng(seed)
    pixels, digits = _digits()
    size = setting.per_rank * world_size + setting.extra
    chosen = draw.permutation(len(pixels))[: size + setting.validation + _HELD_OUT]
    inputs = pixels[chosen][:, draw.permutation(pixels.shape[1])]
    labels = draw.permutation(_CLASSES)[digits[chosen]]
    ends = [size, size + setting.validation]
    (train_x, valid_x, held_x), (train_y, valid_y, held_y) = (
        np.split(values, ends) for values in (inputs, labels)
    )
    if setting.by_class:
        order = np.argsort(train_y, kind="stable")
        train_x, train_y = train_x[order], train_y[order]
    sizes = [pixels.shape[1], *([setting.hidden] if setting.hidden else []), _CLASSES]
    initial: list[Any] = []
    for wide, narrow in itertools.pairwise(sizes):
        initial.append(draw.normal(0, wide**-0.5, (narrow, wide)).astype("float32"))
        initial.append(np.zeros(narrow, "float32"))
    return Task(
        setting=setting,
        world_size=world_size,
        special=int(draw.integers(world_size)),
        inputs=train_x,
        labels=train_y,
        validation_inputs=valid_x,
        validation_labels=valid_y,
        held_inputs=held_x,
        held_labels=held_y,
        initial=tuple(initial),
        damaged=tuple(sorted(int(i) for i in draw.permutation(size)[: setting.damaged])),
    )


@functools.cache
def _digits() -> tuple[Any, Any]:
    """Scikit-learn's scanned digits: 8 × 8 pixels between 0 and 1, and what they show."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise SessionError(
            "exercises need scikit-learn: pip install 'ddt-notebook[lab]', then restart the kernel"
        ) from error
    pixels, digits = load_digits(return_X_y=True)
    return (pixels / 16).astype("float32"), digits
