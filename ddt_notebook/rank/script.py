"""Runs a script in a rank as a process of torchrun would run it."""

from __future__ import annotations

import builtins
import contextlib
import functools
import itertools
import linecache
import logging
import os
import random
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import torch

from ..model.user_code import is_user_code

#: Files that are reported for one run.
_MOST_FILES = 200


def seed(number: int | None, rank: int) -> None:
    """Set the random states of Python, NumPy and torch, which a fork shares with other ranks.

    Parameters
    ----------
    number
        The rank begins with this number plus its own; None for fresh entropy, with which a process
        that torchrun starts begins.
    rank
        The rank.
    """
    numpy = sys.modules.get("numpy")
    if number is None:
        torch.seed()
        random.seed()
        if numpy is not None:
            # without a number, NumPy keeps the place in its state, which an earlier seed has set
            numpy.random.seed(secrets.randbits(32))
        return
    torch.manual_seed(number + rank)
    random.seed(number + rank)
    if numpy is not None:
        numpy.random.seed((number + rank) % (1 << 32))


@contextlib.contextmanager
def as_main(
    path: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> Iterator[ModuleType]:
    """Make this process look like a fresh one that runs a script; restores it afterwards.

    The script has a ``__main__`` module, ``sys.argv``, ``sys.path`` and environment of its own, and
    imports the modules of its project again. Settings of libraries that it changes, such as torch's
    default dtype, remain, since the process remains.

    Parameters
    ----------
    path
        Absolute path of the script.
    arguments
        Its arguments.
    environment
        The variables that torchrun sets.

    Yields
    ------
    ModuleType
        The script's ``__main__``.
    """
    main = ModuleType("__main__")
    main.__file__ = path
    main.__dict__.update(__builtins__=builtins, __cached__=None, __annotations__={})
    root = logging.getLogger()
    before = sys.argv, sys.path[:], dict(os.environ), os.getcwd(), root.handlers[:], root.level
    earlier = _users_modules() | {"__main__": sys.modules["__main__"]}
    for name in earlier:
        del sys.modules[name]
    sys.modules["__main__"] = main
    sys.argv = [path, *arguments]
    sys.path[:] = [str(Path(path).parent), *(entry for entry in sys.path if entry)]
    os.environ.update(environment)
    linecache.checkcache()
    try:
        yield main
    finally:
        # children that multiprocessing has spawned may still import it
        sys.argv, sys.path[:] = before[0], before[1]
        for name in [name for name in os.environ if name not in before[2]]:
            del os.environ[name]
        os.environ.update(before[2])
        with contextlib.suppress(OSError):
            os.chdir(before[3])
        root.handlers[:] = before[4]
        root.setLevel(before[5])
        for name in _users_modules():
            del sys.modules[name]
        sys.modules.update(earlier)


class ImportedFiles:
    """The user's files whose modules this process has imported."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._modules = 0

    def new(self) -> tuple[str, ...]:
        """The files that were imported since the last call."""
        if len(sys.modules) == self._modules:
            return ()
        self._modules = len(sys.modules)
        files = {module.__file__ or "" for module in _users_modules().values()}
        found = sorted(files - self._known)[:_MOST_FILES]
        self._known |= files
        return tuple(found)


@functools.cache
def last_module_at_start() -> str:
    """The module that this process imported last when this was first called.

    A rank calls it before it runs any code of the user.
    """
    return next(reversed(sys.modules))


def _users_modules() -> dict[str, ModuleType]:
    """The modules of `sys.modules` that are files of the user's, by their names.

    Only modules that were imported later than `last_module_at_start` are looked at: a look at each
    of torch's modules would copy 12 MB of memory that a rank shares with the others.
    """
    later = list(itertools.takewhile(last_module_at_start().__ne__, reversed(sys.modules)))
    found = {name: sys.modules[name] for name in reversed(later)}
    return {name: module for name, module in found.items() if _is_users(module)}


def _is_users(module: object) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and is_user_code(file)
