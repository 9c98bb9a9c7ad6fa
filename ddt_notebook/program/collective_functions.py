"""Which functions of a program carry values from rank to rank."""

from __future__ import annotations

from .names import CARRYING
from .nodes import called_name, calls_in
from .program import Program


def collective_functions(program: Program) -> frozenset[str]:
    """Names of collectives, and of the program's functions that call one."""
    called = {
        name: {called_name(call) for function in functions for call in calls_in(function)}
        for name, functions in program.functions.items()
    }
    found = set(CARRYING)
    while new := {name for name, inner in called.items() if inner & found} - found:
        found |= new
    return frozenset(found)
