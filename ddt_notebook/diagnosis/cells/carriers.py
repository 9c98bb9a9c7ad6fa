"""Which functions of a cell carry values from rank to rank."""

from __future__ import annotations

import ast

from ddt_notebook.program.names import CARRYING

from .source import Sources
from .usage import called_name


def carriers(sources: Sources) -> frozenset[str]:
    """Names of collectives, and of the functions of all cells in which one is called."""
    found = set(CARRYING)
    grown = True
    while grown:
        new = {
            name
            for name, functions in sources.functions.items()
            if name not in found
            and any(
                isinstance(node, ast.Call) and called_name(node) in found
                for function in functions
                for node in ast.walk(function)
            )
        }
        found |= new
        grown = bool(new)
    return frozenset(found)
