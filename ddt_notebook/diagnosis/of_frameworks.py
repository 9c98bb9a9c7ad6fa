"""The rules of frameworks and the words of their findings, by `model.frameworks`."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from ddt_notebook.model.frameworks import known_frameworks


@functools.cache
def rule_modules() -> tuple[ModuleType, ...]:
    """The modules with rules of frameworks."""
    names = (one.rules for one in known_frameworks().values())
    return tuple(importlib.import_module(name) for name in names if name)


@functools.cache
def table(name: str) -> dict[str, Any]:
    """The ``TITLES`` or ``FACTS`` of all frameworks that bring their own."""
    modules = (one.words for one in known_frameworks().values())
    words = (importlib.import_module(module) for module in modules if module)
    return {kind: entry for module in words for kind, entry in getattr(module, name, {}).items()}
