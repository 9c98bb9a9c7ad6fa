"""Which functions of a program carry values from rank to rank."""

from __future__ import annotations

from .names import AVERAGING_METHODS, CARRYING
from .nodes import called_name, calls_in
from .program import Program


def collective_functions(program: Program) -> frozenset[str]:
    """Names of what carries values, and of the program's functions that call it."""
    called = {
        name: {called_name(call) for function in functions for call in calls_in(function)}
        for name, functions in program.functions.items()
    }
    found = set(CARRYING | (AVERAGING_METHODS - called.keys()))
    while new := {name for name, inner in called.items() if inner & found} - found:
        found |= new
    return frozenset(found)
