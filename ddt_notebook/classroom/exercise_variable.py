"""The variable ``exercise`` of the ranks: a dataset that records each read, and a model.

Only ranks import this module. It writes each event to a file at once, and the grader reads the file
after the cell: the grader does not ask objects that the cell could have replaced.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from .evidence import READ, READ_VALIDATION, TRAINED
from .exercise_data import DATA_FILE

Write = Callable[[int, int], None]


def journal_in(path: Path) -> Write:
    """A function that writes one event to a file at once, so that it survives the rank."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(kind: int, value: int) -> None:
        os.write(descriptor, struct.pack("<ii", kind, value))

    return write


class RecordedDataset:
    """A map-style dataset that records each read.

    Parameters
    ----------
    inputs, labels
        The samples.
    kind
        The kind of event of a read.
    write
        Records an event.
    damaged
        Indices of samples that cannot be read.
    """

    def __init__(
        self, inputs: Any, labels: Any, kind: int, write: Write, damaged: Iterable[int] = ()
    ) -> None:
        samples, answers = torch.from_numpy(inputs), torch.from_numpy(labels)
        unreadable = frozenset(damaged)

        def read(index: int) -> tuple[torch.Tensor, torch.Tensor]:
            number = int(index)
            if not 0 <= number < len(answers):
                raise IndexError(f"there is no sample {number}; there are {len(answers)}")
            if number in unreadable:
                raise ValueError(f"sample {number} is damaged")
            write(kind, number)
            return samples[number].clone(), answers[number].clone()

        self._read = read
        self._none = samples[:0], answers[:0]
        self._length = len(answers)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._read(index)

    def take(self, indices: Iterable[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Several samples as one batch."""
        read = [self._read(index) for index in indices]
        if not read:
            return self._none[0].clone(), self._none[1].clone()
        inputs, labels = zip(*read, strict=True)
        return torch.stack(inputs), torch.stack(labels)


class Network(nn.Module):  # type: ignore[misc]  # torch is not read by the type checker
    """Linear layers with ReLU between them; each pass that keeps gradients is noted."""

    def __init__(self, initial: Iterable[Any], write: Write) -> None:
        super().__init__()
        values = [torch.from_numpy(array).clone() for array in initial]
        layers: list[nn.Module] = []
        for weight, bias in zip(values[::2], values[1::2], strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[0])
            layer.weight.data, layer.bias.data = weight, bias
            layers += [nn.ReLU(), layer] if layers else [layer]
        self.layers = nn.Sequential(*layers)
        self._write = write

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The scores of each class."""
        if torch.is_grad_enabled():
            self._write(TRAINED, len(inputs))
        scores: torch.Tensor = self.layers(inputs)
        return scores


class ExerciseVariable:
    """The variable ``exercise`` of a rank.

    Parameters
    ----------
    rank
        The rank.
    folder
        The folder with the data, in which the rank may also write.

    Attributes
    ----------
    dataset, validation
        The samples: ``len(…)``, ``dataset[index]``, ``dataset.take(indices)`` for a batch.
    epochs, batch_size, accumulate, learning_rate
        How to train.
    late_rank
        The rank that is slow in this exercise.
    folder
        A folder for files.
    """

    def __init__(self, rank: int, folder: str) -> None:
        self.folder = Path(folder)
        with np.load(self.folder / DATA_FILE) as arrays:
            data = dict(arrays)
        settings = json.loads(str(data["settings"]))
        write = journal_in(self.folder / f"rank{rank}.journal")
        self.dataset = RecordedDataset(
            data["inputs"], data["labels"], READ, write, settings["damaged"]
        )
        self.validation = RecordedDataset(
            data["validation_inputs"], data["validation_labels"], READ_VALIDATION, write
        )
        self.epochs: int = settings["epochs"]
        self.batch_size: int = settings["batch"] or 0
        self.accumulate: int = settings["accumulate"]
        self.learning_rate: float = settings["rate"]
        self.late_rank: int = settings["special"]
        apart = 1.0 + rank if settings["random_start"] else 1.0
        initial = [
            values * values.dtype.type(apart)
            for name, values in data.items()
            if name.startswith("initial")
        ]
        self._make: Callable[[], Network] = lambda: Network(initial, write)

    def model(self) -> Network:
        """A model with the initial weights."""
        return self._make()


def look(variables: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The named variables as plain data, for the grader."""
    return {name: plain(variables.get(name)) for name in names}


def plain(value: Any) -> Any:
    """Numbers, text and containers as they are, a tensor as an array, a model as its parameters."""
    if isinstance(value, nn.Module):
        return [p.detach().to("cpu", torch.float64).numpy() for p in value.parameters()]
    if isinstance(value, torch.Tensor):
        array = value.detach().to("cpu", torch.float64).numpy()
        return array.item() if array.size == 1 else array
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return f"<{type(value).__name__}>"
