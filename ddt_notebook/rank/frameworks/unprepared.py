"""Refuses a framework for which the session has not prepared its ranks: each would train alone."""

from __future__ import annotations

import functools
import os
from types import ModuleType
from typing import Any

from ...model.frameworks import AloneBegin, prepared
from ..after_import import AfterImport


def refuse(framework: str, world_size: int) -> None:
    """Have the begin of each framework raise an error, other than that of the session.

    Parameters
    ----------
    framework
        The framework for which the ranks are prepared; empty for none.
    world_size
        Number of ranks of the session: a single one is alone anyway.
    """
    if world_size == 1:
        return
    for name, preparation in prepared().items():
        if name != framework and preparation.alone is not None:
            act = functools.partial(_refuse, name, world_size, preparation.alone)
            AfterImport(preparation.alone.module, act).install()


def _refuse(name: str, world_size: int, begin: AloneBegin, module: ModuleType) -> None:
    owner, _, method = begin.method.partition(".")
    where = getattr(module, owner, None)
    original = getattr(where, method, None)
    if original is None:
        return  # another version

    @functools.wraps(original)
    def begins(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if begin.variable and os.environ.get(begin.variable):
            return original(*args, **kwargs)
        raise RuntimeError(
            f"each of the {world_size} ranks would train alone, because this session has not "
            f"prepared them: %ddt_stop, then %ddt_start -n {world_size} --framework {name}"
        )

    setattr(where, method, begins)
