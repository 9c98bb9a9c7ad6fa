"""What ranks find under the name ``exercise``: data that are counted as they are read, a model.

This module is imported in the ranks only. What it counts goes to a file at once, which the grader
reads when the cell has ended: nothing is asked of objects that the cell could have replaced.
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
from .task import TASK

Write = Callable[[int, int], None]


def journal_in(path: Path) -> Write:
    """A function that notes one event in a file, at once; it outlives the rank."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(kind: int, value: int) -> None:
        os.write(descriptor, struct.pack("<ii", kind, value))

    return write


class CountedDataset:
    """Samples by index, as a map-style dataset; each read is noted.

    Parameters
    ----------
    inputs, labels
        The samples.
    kind
        How a read is noted.
    write
        Notes it.
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
                raise IndexError(f"there is no sample {number}: the data has {len(answers)}")
            if number in unreadable:
                raise ValueError(f"sample {number} is damaged")
            write(kind, number)
            return samples[number].clone(), answers[number].clone()

        self._read = read
        self._length = len(answers)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._read(index)

    def take(self, indices: Iterable[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Several samples as one batch."""
        inputs, labels = zip(*(self._read(index) for index in indices), strict=True)
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
        """A score for each class."""
        if torch.is_grad_enabled():
            self._write(TRAINED, len(inputs))
        scores: torch.Tensor = self.layers(inputs)
        return scores


class Workbench:
    """The variable ``exercise`` of a rank.

    Parameters
    ----------
    rank
        The rank.
    folder
        Where the data of the exercise are, and where the rank may write.

    Attributes
    ----------
    dataset, validation
        The samples: ``len(…)``, ``dataset[index]``, ``dataset.take(indices)`` for a batch.
    epochs, batch_size, accumulate, learning_rate
        How to train.
    late_rank
        The rank that is slow in this exercise.
    folder
        For files.
    """

    def __init__(self, rank: int, folder: str) -> None:
        self.folder = Path(folder)
        with np.load(self.folder / TASK) as arrays:
            data = dict(arrays)
        told = json.loads(str(data["told"]))
        write = journal_in(self.folder / f"rank{rank}.journal")
        self.dataset = CountedDataset(data["inputs"], data["labels"], READ, write, told["damaged"])
        self.validation = CountedDataset(
            data["validation_inputs"], data["validation_labels"], READ_VALIDATION, write
        )
        self.epochs: int = told["epochs"]
        self.batch_size: int = told["batch"] or 0
        self.accumulate: int = told["accumulate"]
        self.learning_rate: float = told["rate"]
        self.late_rank: int = told["special"]
        apart = 1.0 + rank if told["random_start"] else 1.0
        initial = [
            values * values.dtype.type(apart)
            for name, values in data.items()
            if name.startswith("initial")
        ]
        self._make: Callable[[], Network] = lambda: Network(initial, write)

    def model(self) -> Network:
        """A model with the weights that training starts from."""
        return self._make()


def look(variables: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """What the grader wants to see of a rank's variables, as plain data."""
    return {name: plain(variables.get(name)) for name in names}


def plain(value: Any) -> Any:
    """Numbers, text and arrays as they are; of a model its parameters; of the rest nothing."""
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
