"""Lets training use the DDP wrapper instead of the bare model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.program.names import DDP
from ddt_notebook.program.nodes import assigned_calls, calls_in, is_call, keywords, statements_of
from ddt_notebook.program.tree import Tree

from .fault import Correction, Fault

_WRAPPER = DDP.rpartition(".")[2]
#: Attributes that a wrapped model has with the same meaning as the bare one.
_SHARED = frozenset(
    "parameters named_parameters buffers train eval zero_grad state_dict requires_grad_ training "
    "modules named_modules apply forward".split()
)


def wrap(fault: Fault) -> Correction | None:
    """Insert ``model = DDP(model)`` before the optimizer that gets its parameters."""
    for scope in fault.tree.scopes:
        made = [
            (statement, name)
            for statement in statements_of(scope)
            if isinstance(statement, ast.Assign)
            for call in calls_in(statement.value)
            if (name := _parameters_of(call)) is not None
        ]
        if len(made) != 1:
            continue
        statement, model = made[0]
        set_before = any(name == model for name, _ in assigned_calls(scope))
        used = {
            node.attr
            for node in fault.tree.of_kind(ast.Attribute)
            if isinstance(node.value, ast.Name)
            and node.value.id == model
            and node.lineno > statement.lineno
        }
        if not set_before or not used <= _SHARED:
            continue
        line = f"{model} = {_wrapper_name(fault.tree)}({model})"
        return Correction(fault.insert(statement, line), f"`{line}` comes before the optimizer")
    return None


def _parameters_of(node: ast.Call) -> str | None:
    """Return ``model`` for ``torch.optim.SGD(model.parameters(), …)``."""
    if not node.args or "optim" not in ast.unparse(node.func):
        return None
    first = node.args[0]
    if isinstance(first, ast.Call) and is_call(first, "parameters"):
        owner = first.func.value if isinstance(first.func, ast.Attribute) else None
        return owner.id if isinstance(owner, ast.Name) else None
    return None


def _wrapper_name(tree: Tree) -> str:
    """Return the name under which the cell imports DDP; every cell can use ``DDP``."""
    imported = (alias for node in tree.of_kind(ast.ImportFrom) for alias in node.names)
    names = (one.asname or one.name for one in imported if one.name == _WRAPPER)
    return next(names, "DDP")


def through_wrapper(fault: Fault) -> Correction | None:
    """Call ``model(x)`` instead of ``model.module(x)``."""
    calls = fault.calls("module")
    past = [call.func for call in calls if isinstance(call.func, ast.Attribute)]
    lines = fault.lines_of(list(fault.finding.places))
    chosen = [function for function in past if function.lineno in lines]
    if not chosen and len(past) == 1:
        chosen = past
    if not chosen:
        return None
    bare = ast.unparse(chosen[0].value)
    spans = [(function, ast.unparse(function.value)) for function in chosen]
    return fault.replaced(spans, f"`{bare}(…)` is called, not `{bare}.module(…)`")


def below_wrapper(fault: Fault) -> Correction | None:
    """Read ``model.module.head`` instead of ``model.head``."""
    name = fault.finding.values.get("name")
    lines = fault.lines_of(list(fault.finding.places))
    if name is None or not lines:
        return None
    own = {name} | next((names for names in _classes(fault.tree) if name in names), frozenset())
    accesses = [
        node
        for node in fault.tree.of_kind(ast.Attribute)
        if node.attr in own - _SHARED and isinstance(node.value, ast.Name)
    ]
    owners = {ast.unparse(n.value) for n in accesses if n.lineno in lines and n.attr == name}
    if len(owners) != 1:
        return None
    (owner,) = owners
    chosen = [
        (node, f"{owner}.module.{node.attr}")
        for node in accesses
        if ast.unparse(node.value) == owner and node.lineno >= min(lines)
    ]
    says = f"`{owner}.module.{name}` replaces `{owner}.{name}`"
    return fault.replaced(chosen, says)


def _classes(tree: Tree) -> Iterator[frozenset[str]]:
    """Yield, for each class, its methods and the attributes that they set on ``self``."""
    for node in tree.of_kind(ast.ClassDef):
        inner = list(ast.walk(node))
        methods = {n.name for n in inner if isinstance(n, ast.FunctionDef)}
        set_on_self = {
            n.attr
            for n in inner
            if isinstance(n, ast.Attribute)
            and isinstance(n.ctx, ast.Store)
            and isinstance(n.value, ast.Name)
            and n.value.id == "self"
        }
        yield frozenset(methods | set_on_self)


def without_device_ids(fault: Fault) -> Correction | None:
    """Use ``DDP(model)`` without ``device_ids`` if the model is on the CPU."""
    lines = fault.lines_of(list(fault.finding.places))
    calls = [call for call in fault.calls(lines=lines) if "device_ids" in keywords(call)]
    if len(calls) != 1:
        return None
    (call,) = calls
    given = [one for one in call.keywords if one.arg not in ("device_ids", "output_device")]
    new = ast.unparse(ast.Call(func=call.func, args=call.args, keywords=given))
    return fault.replaced([(call, new)], f"`{new}` names no devices")
