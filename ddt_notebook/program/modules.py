"""Finds the names of a program that hold modules of torch."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise

from ddt_notebook.model import Position

from .names import WRAPPERS
from .nodes import called_name, calls_in, last_name
from .program import Program

_IN_TORCH = "/torch/nn/modules/"
#: Prefixes of module classes, as programs write them.
_PACKAGES = ("nn.", "torch.nn.")
#: Names under which programs import the wrappers.
_SHORT = frozenset({"DDP", "FSDP"})


def module_names(program: Program, frames: Sequence[Position]) -> frozenset[str]:
    """The last parts of the variables and attributes that hold a module.

    The program assigns a module to them, or lines of a stack called them when torch ran a module.

    Parameters
    ----------
    frames
        The stack of an exception, innermost last.
    """
    makers = WRAPPERS | _SHORT | _makers(program)
    found = {
        last_name(target)
        for node in program.nodes
        if isinstance(node, ast.Assign) and _makes(node.value, makers)
        for target in node.targets
    }
    for outer, inner in pairwise(frames):
        line = program.statement_at(outer) if _IN_TORCH in inner.file else None
        called = {called_name(call) for call in calls_in(line)} if line is not None else set()
        found |= called - program.functions.keys()
    return frozenset(found - {""})


def _makers(program: Program) -> set[str]:
    """Classes of the program that are modules, and functions that return a new module."""
    known = {
        node.name
        for node in program.nodes
        if isinstance(node, ast.ClassDef)
        and any(last_name(base) == "Module" for base in node.bases)
    }
    functions = (one for several in program.functions.values() for one in several)
    return known | {
        function.name
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and node.value and _makes(node.value, known)
    }


def _makes(value: ast.expr, makers: set[str] | frozenset[str]) -> bool:
    """Whether an expression makes a module, and perhaps moves it."""
    while isinstance(value, ast.Call):
        if called_name(value) in makers or ast.unparse(value.func).startswith(_PACKAGES):
            return True
        if not isinstance(value.func, ast.Attribute):
            return False
        value = value.func.value  # Net().to(device)
    return False
