"""Keeps watched tensors readable until the end of a cell, also if their owner is deleted before."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from .fingerprints import sketches

#: Bytes of a deleted owner's tensors that are kept until the cell ends. With the 32
#: owners that a record has at most, this is 32 MiB.
_MOST_BYTES = 1 << 20


class Watched:
    """Tensors of an optimizer or a model, which is deleted when the function that made it returns.

    Until then the owner holds the tensors. Afterwards this object holds their data if they are
    small, since other code may still change them: it may average the parameters of a model whose
    optimizer is gone.
    """

    def __init__(self, owner: object, tensors: Iterable[torch.Tensor]) -> None:
        self._references = [weakref.ref(tensor) for tensor in tensors]
        self._data: list[torch.Tensor] = []
        self._values: list[int] = []
        # the tensors are alive when the owner is deleted, since they are its own
        self._owner = weakref.ref(owner, self._owner_died)

    def _owner_died(self, _: object) -> None:
        # the owner may be collected while a function of the user is traced: nothing is computed
        alive = self.tensors()
        size = sum(tensor.untyped_storage().nbytes() for tensor in alive)
        if len(alive) == len(self._references) and size <= _MOST_BYTES:
            self._data = alive

    def tensors(self) -> list[torch.Tensor]:
        """The tensors that are still alive."""
        return [tensor for reference in self._references if (tensor := reference()) is not None]

    def values(self) -> list[int]:
        """Sketches of all tensors as they are now or were at last; empty if not known."""
        alive = self.tensors()
        if alive and len(alive) == len(self._references):
            self._values = sketches(alive)
        elif self._data:
            self._values = sketches(self._data)
        return self._values

    def release(self) -> None:
        """Release the data."""
        self._data = []
