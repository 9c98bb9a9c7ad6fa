"""Which record belongs to the handle of an asynchronous call."""

from __future__ import annotations

import weakref
from typing import Any


class Handles:
    """Indices of records by handles, which it does not keep alive.

    It does what a `weakref.WeakKeyDictionary` does, in less time: a wait looks into it.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, weakref.ref[Any]]] = {}

    def add(self, handle: Any, index: int) -> None:
        """Note the record of the call that returned a handle."""
        key, known = id(handle), self._known

        def forget(_: object) -> None:
            known.pop(key, None)

        known[key] = index, weakref.ref(handle, forget)

    def get(self, handle: Any) -> int | None:
        """The index of a handle's record; None if there is none."""
        found = self._known.get(id(handle))
        return None if found is None else found[0]

    def remove(self, handle: Any) -> None:
        """Forget a handle whose call is complete."""
        self._known.pop(id(handle), None)

    def clear(self) -> None:
        """Forget all of them."""
        self._known.clear()
