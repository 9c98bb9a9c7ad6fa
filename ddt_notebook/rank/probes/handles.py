"""Which record belongs to the handle of an asynchronous call."""

from __future__ import annotations

import weakref
from typing import Any


class Handle(weakref.ref[Any]):
    """A handle that is not kept alive, with its ``id`` and the index of its record."""

    __slots__ = ("index", "key")
    key: int
    index: int


class Handles:
    """Indices of records by handles, which it does not keep alive.

    It does what a `weakref.WeakKeyDictionary` does, in less time: a wait looks into it.
    """

    def __init__(self) -> None:
        known: dict[int, Handle] = {}

        def forget(reference: Any) -> None:
            known.pop(reference.key, None)

        #: The handles by their ``id``.
        self.known, self._forget = known, forget

    def add(self, handle: Any, index: int) -> None:
        """Note the record of the call that returned a handle."""
        reference = Handle(handle, self._forget)
        reference.key = key = id(handle)
        reference.index = index
        self.known[key] = reference

    def get(self, handle: Any) -> int | None:
        """The index of a handle's record; None if there is none."""
        found = self.known.get(id(handle))
        return None if found is None else found.index

    def clear(self) -> None:
        """Forget all of them."""
        self.known.clear()
