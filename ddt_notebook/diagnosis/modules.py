"""Which names of the cells stand for modules of torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from itertools import pairwise

from ddt_notebook.model import RankError
from ddt_notebook.program.names import WRAPPERS

from .context import Context

_IN_TORCH = "/torch/nn/modules/"
#: Packages whose classes are modules, as programs write them.
_PACKAGES = ("nn.", "torch.nn.")


def module_names(context: Context, error: RankError) -> frozenset[str]:
    """Variables and attributes that hold a module.

    They are those that the ranks reported, those that the cells assign a module, and those that
    lines in the stack of ``error`` called when torch ran a module.
    """
    snapshot = context.snapshot
    found = {item.name for p in snapshot.placement for item in p.objects if item.kind == "module"}
    found |= {model.name for training in snapshot.training for model in training.models}
    found |= {one.model for training in snapshot.training for one in training.optimizers}
    found = {name.rpartition(".")[2] for name in found}
    trees = list(context.sources.trees.values())
    makers = {*WRAPPERS, "DDP", "FSDP", *_makers(trees)}
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Assign) and _makes(node.value, makers):
            found |= {_last(target) for target in node.targets}
    for outer, inner in pairwise(error.frames):
        line = context.sources.statement(outer) if _IN_TORCH in inner.file else None
        calls = (node for node in ast.walk(line) if isinstance(node, ast.Call)) if line else ()
        found |= {_last(call.func) for call in calls} - context.sources.functions.keys()
    return frozenset(found - {""})


def _makers(trees: Iterable[ast.Module]) -> Iterator[str]:
    """Classes of the cells that are modules, and functions that return a new one."""
    known: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef) and any(_last(base) == "Module" for base in node.bases):
            known.add(node.name)
            yield node.name
        if isinstance(node, ast.FunctionDef):
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value]
            if any(_makes(value, known) for value in returned):
                yield node.name


def _makes(value: ast.expr, makers: set[str]) -> bool:
    """Whether an expression makes a module, or moves one that it makes."""
    while isinstance(value, ast.Call):
        if _last(value.func) in makers or ast.unparse(value.func).startswith(_PACKAGES):
            return True
        if not isinstance(value.func, ast.Attribute):
            return False
        value = value.func.value  # Net().to(device)
    return False


def _last(node: ast.expr) -> str:
    """``model`` of ``model``, ``self.model`` and ``trainer.model``; else empty."""
    return getattr(node, "id", getattr(node, "attr", ""))
