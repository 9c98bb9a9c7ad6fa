"""The data of an exercise, drawn from a seed: each student gets other data."""

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

#: The number of held-out samples: only the grader has them, and judges the model on them.
_HELD_OUT = 300
_CLASSES = 10
#: The file from which the ranks read the data.
DATA_FILE = "exercise.npz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the data of an exercise are drawn, and how the model is trained on them.

    Attributes
    ----------
    per_rank
        Number of training samples for each rank.
    extra
        Number of further training samples, so that the ranks cannot get equal shares.
    validation
        Number of validation samples.
    epochs
        Number of epochs.
    batch
        Batch size of a rank; None if its whole share is one batch.
    accumulate
        Number of batches whose gradients are accumulated for one step.
    hidden
        Number of units of the hidden layer; 0 for a linear model.
    rate
        Learning rate of plain gradient descent.
    damaged
        Number of training samples that cannot be read: the dataset raises ``ValueError`` for them.
    random_start
        Whether ``exercise.model()`` starts with other weights on each rank; those of rank 0 are
        the right ones.
    by_class
        Whether the training samples are sorted by class.
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
class ExerciseData:
    """The data of an exercise, for one student and one number of ranks.

    Attributes
    ----------
    setting
        How they were drawn.
    world_size
        Number of ranks.
    special
        The rank that differs from the others, such as a late one.
    inputs, labels
        The training samples.
    validation_inputs, validation_labels
        The validation samples.
    held_inputs, held_labels
        The held-out samples, which only the grader has.
    initial
        The initial weights and biases, layer by layer.
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
        """Write what the ranks get: all but the held-out samples."""
        import numpy as np

        setting = self.setting
        settings = {
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
            settings=json.dumps(settings),
            inputs=self.inputs,
            labels=self.labels,
            validation_inputs=self.validation_inputs,
            validation_labels=self.validation_labels,
            **{f"initial{at}": values for at, values in enumerate(self.initial)},
        )


def seed_of(*words: str) -> int:
    """A seed that depends only on these words."""
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return int.from_bytes(digest[:6], "big")


def practice_seed(exercise: str, student: str) -> int:
    """The seed of the data with which a student works."""
    return seed_of("practice", student, exercise)


def grading_seed(exercise: str, student: str) -> int:
    """The seed of the data on which a student is graded: always the same one."""
    return seed_of("grading", student, exercise)


def student_name() -> str:
    """The name of the user on the hub or in the operating system."""
    for variable in ("JUPYTERHUB_USER", "NB_USER", "USER", "LOGNAME"):
        if os.environ.get(variable):
            return os.environ[variable]
    return f"user {os.getuid()}"


def draw_data(setting: Setting, seed: int, world_size: int) -> ExerciseData:
    """Draw the data of an exercise.

    Parameters
    ----------
    setting
        How to draw them.
    seed
        Chooses the samples, the order of pixels and classes, the weights and the special rank.
    world_size
        Number of ranks.
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
    return ExerciseData(
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
    """Scikit-learn's scanned digits: 8 × 8 pixels between 0 and 1, and their classes."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise SessionError(
            "exercises need scikit-learn: pip install 'ddt-notebook[lab]', then restart the kernel"
        ) from error
    pixels, digits = load_digits(return_X_y=True)
    return (pixels / 16).astype("float32"), digits
