"""What each cell may rely on, put back after a cell deleted or broke it."""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch.distributed as dist

from ..model.operations import COLLECTIVES, MESSAGES, SETUP

#: The built-in names, and one of them that is needed to put the others back.
_BUILTINS, _callable = vars(builtins), callable
#: How many names a note lists.
_NAMES_LISTED = 8


@functools.cache
def modules_at_start() -> Mapping[str, ModuleType]:
    """The modules that were there at the first call.

    The process from which ranks are forked calls it first: each module counts its references, so a
    copy in every rank would take a page of memory for almost each of some 2,500 modules.
    """
    return dict(sys.modules)


class GivenNames:
    """The names that a session defines, and the functions of ``torch.distributed`` it records.

    Parameters
    ----------
    rank
        The rank, for the notes.
    namespace
        The namespace of the cells.
    given
        What the session defines in it.
    """

    def __init__(self, rank: int, namespace: dict[str, Any], given: Mapping[str, Any]) -> None:
        self._rank = rank
        self._namespace = namespace
        self._given = dict(given)
        self._functions = {
            name: getattr(dist, name)
            for name in (*COLLECTIVES, *MESSAGES, *SETUP)
            if hasattr(dist, name)
        }
        self._replaced: set[str] = set()
        modules_at_start()
        self._builtins = tuple(
            (name, value)
            for name, value in _BUILTINS.items()
            if _callable(value) and name not in ("exit", "quit")  # IPython hides these two
        )
        self._notes: list[str] = []

    def restore_python(self) -> None:
        """Put back built-in names and modules that a cell removed, so that Python works again.

        This must come before anything else at the end of a cell, and before its exception is
        shown. A built-in function that a cell replaced by one of its own stays.
        """
        broken = []
        # A tuple: without memory, Python 3.11 crashes where it iterates over the items of a dict.
        for name, value in self._builtins:
            if not _callable(_BUILTINS.get(name)):
                _BUILTINS[name] = value
                broken.append(name)
        if broken:
            shown = ", ".join(broken[:_NAMES_LISTED]) + (", …" * (len(broken) > _NAMES_LISTED))
            self._notes.append(
                f"rank {self._rank} had removed built-in names ({shown}); they were put back"
            )
        if "sys" not in sys.modules:  # users remove single modules to import them again
            for name, module in modules_at_start().items():
                sys.modules.setdefault(name, module)
            self._notes.append(f"rank {self._rank} had emptied sys.modules; it was filled again")

    def restore(self) -> tuple[str, ...]:
        """Put back what a cell removed; returns a note on each.

        A name that a cell bound to something else, and a function that it replaced by one of its
        own, stay as they are; a function is noted once. The session needs those that form and
        destroy groups, so these are always put back.
        """
        notes, self._notes = self._notes, []
        if deleted := [name for name in self._given if name not in self._namespace]:
            self._namespace.update((name, self._given[name]) for name in deleted)
            notes.append(f"rank {self._rank} had deleted {', '.join(deleted)}; defined again")
        for name, function in self._functions.items():
            now = getattr(dist, name, None)
            if now is function:
                self._replaced.discard(name)
            elif name in SETUP or not callable(now):
                setattr(dist, name, function)
                notes.append(f"rank {self._rank} had replaced dist.{name}; it was put back")
            elif name not in self._replaced:
                self._replaced.add(name)
                notes.append(
                    f"rank {self._rank} has replaced dist.{name} by a function of its own, which "
                    "later cells call, too; session.restart() brings PyTorch's back"
                )
        return tuple(notes)
