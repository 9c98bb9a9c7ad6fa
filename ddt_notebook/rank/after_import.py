"""Calls a function when a module has been imported, which costs nothing until then."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class AfterImport:
    """A finder on ``sys.meta_path`` that finds nothing itself and waits for one module.

    Parameters
    ----------
    name
        The full name of the module.
    act
        Called with the module once it has been executed.
    """

    def __init__(self, name: str, act: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._act = act

    def install(self) -> None:
        """Wait for the module; act at once if it is there already."""
        module = sys.modules.get(self._name)
        if module is not None:
            self._act(module)
        else:
            sys.meta_path.insert(0, self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of the module, whose loader then acts; None for every other module."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._act(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
