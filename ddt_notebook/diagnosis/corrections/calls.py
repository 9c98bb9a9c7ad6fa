"""A single call with other arguments, another name, or under a condition."""

from __future__ import annotations

import ast
from collections.abc import Container

from ddt_notebook.diagnosis.cells import syntax

from .fault import Correction, Fault, assigned_calls, scopes


def divide_data(fault: Fault) -> Correction | None:
    """A DataLoader with a DistributedSampler, in place of a sampler of each rank's own."""
    plain = [
        (name, call)
        for scope in scopes(fault.tree)
        for name, call in assigned_calls(scope)
        if syntax.calls(call, "DataLoader")
        and name == fault.finding.values.get("loader")
        and not {"sampler", "batch_sampler"} & {keyword.arg for keyword in call.keywords}
    ]
    if len(plain) != 1:
        return None
    name, call = plain[0]
    if not 1 <= len(call.args) <= 2 or not isinstance(call.args[0], ast.Name):
        return None
    data = call.args[0].id
    sampler = ast.parse(f"torch.utils.data.DistributedSampler({data})", mode="eval").body
    keywords = [k for k in call.keywords if k.arg != "shuffle"]
    keywords.append(ast.keyword(arg="sampler", value=sampler))
    says = (
        f"`{name}` divides `{data}` among the ranks; where there are several epochs, call "
        f"`{name}.sampler.set_epoch(epoch)` before each"
    )
    return fault.replaced([(call, _call(call.func, call.args, keywords))], says)


def ask_the_group(fault: Fault) -> Correction | None:
    """A DistributedSampler that asks the process group for its number and for that of the ranks."""
    calls = [
        node
        for node in ast.walk(fault.tree)
        if isinstance(node, ast.Call)
        and syntax.calls(node, "DistributedSampler")
        and {"num_replicas", "rank"} & {keyword.arg for keyword in node.keywords}
    ]
    if len(calls) != 1 or len(calls[0].args) != 1:
        return None
    new = _without(calls[0], ("num_replicas", "rank"))
    return fault.replaced([(calls[0], new)], f"`{new}` asks the process group")


def leave_shuffling(fault: Fault) -> Correction | None:
    """A loader that leaves the order to its sampler."""
    lines = fault.lines_of(list(fault.finding.places))
    calls = [
        node
        for node in ast.walk(fault.tree)
        if isinstance(node, ast.Call)
        and node.lineno in lines
        and {"sampler", "shuffle"} <= {keyword.arg for keyword in node.keywords}
    ]
    if len(calls) != 1:
        return None
    new = _without(calls[0], ("shuffle",))
    return fault.replaced([(calls[0], new)], f"`{new}` leaves the order to the sampler")


def reduce_for_all(fault: Fault) -> Correction | None:
    """``all_reduce`` in place of ``reduce``."""
    lines = fault.lines_of_facts("reduced-to")
    calls = [
        node
        for node in ast.walk(fault.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "reduce"
        and node.lineno in lines
    ]
    if len(calls) != 1 or not 1 <= len(calls[0].args) <= 2:
        return None
    (call,) = calls
    assert isinstance(call.func, ast.Attribute)
    function = ast.Attribute(value=call.func.value, attr="all_reduce", ctx=ast.Load())
    keywords = [keyword for keyword in call.keywords if keyword.arg not in ("dst", "group_dst")]
    new = _call(function, call.args[:1], keywords)
    return fault.replaced([(call, new)], f"`{new}` gives every rank the result")


def form_group_once(fault: Fault) -> Correction | None:
    """``init_process_group`` only where there is no group yet."""
    lines = fault.lines_of(list(fault.finding.places))
    for node in ast.walk(fault.tree):
        call = node.value if isinstance(node, ast.Expr) else None
        if (
            isinstance(node, ast.Expr)
            and isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "init_process_group"
            and node.lineno in lines
        ):
            own = fault.slice(node.lineno, syntax.end(node))
            if own[0][: node.col_offset].strip():
                return None  # behind another statement
            condition = f"if not {ast.unparse(call.func.value)}.is_initialized():"
            new = [own[0][: node.col_offset] + condition, *(f"    {line}" for line in own)]
            changed = fault.with_lines(node.lineno, syntax.end(node), new)
            return Correction(changed, f"`{condition}` stands above it")
    return None


def keep_no_graph(fault: Fault) -> Correction | None:
    """``loss.detach()`` where a loss is added up or kept."""
    lines = fault.lines_of_facts("keeps-graph")
    kept: list[ast.expr] = []
    for node in ast.walk(fault.tree):
        if isinstance(node, ast.AugAssign) and node.lineno in lines:
            kept.append(node.value)
        elif isinstance(node, ast.Call) and syntax.calls(node, "append") and node.lineno in lines:
            kept += node.args
    if len(kept) != 1 or not isinstance(kept[0], ast.Name) or _backward_of_sum(fault, lines):
        return None
    new = f"{kept[0].id}.detach()"
    return fault.replaced([(kept[0], new)], f"`{new}` is kept, without its graph")


def _backward_of_sum(fault: Fault, lines: Container[int]) -> bool:
    """Whether ``backward`` starts at what is added up: its graph is then meant to be kept."""
    sums = {
        ast.unparse(node.target)
        for node in ast.walk(fault.tree)
        if isinstance(node, ast.AugAssign) and node.lineno in lines
    }
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "backward"
        and ast.unparse(node.value) in sums
        for node in ast.walk(fault.tree)
    )


def _without(call: ast.Call, names: Container[str | None]) -> str:
    return _call(call.func, call.args, [k for k in call.keywords if k.arg not in names])


def _call(function: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]) -> str:
    return ast.unparse(ast.Call(func=function, args=args, keywords=keywords))
