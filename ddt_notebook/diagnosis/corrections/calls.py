"""Rewrites a single call: other arguments, another name, or a condition around it."""

from __future__ import annotations

import ast
from collections.abc import Container

from ddt_notebook.program.nodes import assigned_calls, end, is_call, keywords

from .fault import Correction, Fault


def divide_data(fault: Fault) -> Correction | None:
    """Give a DataLoader a DistributedSampler in place of each rank's own sampler."""
    plain = [
        (name, call)
        for scope in fault.tree.scopes
        for name, call in assigned_calls(scope)
        if is_call(call, "DataLoader")
        and name == fault.finding.values.get("loader")
        and not {"sampler", "batch_sampler"} & keywords(call).keys()
    ]
    if len(plain) != 1:
        return None
    name, call = plain[0]
    if not 1 <= len(call.args) <= 2 or not isinstance(call.args[0], ast.Name):
        return None
    data = call.args[0].id
    sampler = ast.parse(f"torch.utils.data.DistributedSampler({data})", mode="eval").body
    given = [one for one in call.keywords if one.arg != "shuffle"]
    given.append(ast.keyword(arg="sampler", value=sampler))
    says = (
        f"`{name}` divides `{data}` among the ranks; where there are several epochs, call "
        f"`{name}.sampler.set_epoch(epoch)` before each"
    )
    return fault.replaced([(call, _call(call.func, call.args, given))], says)


def ask_the_group(fault: Fault) -> Correction | None:
    """Let a DistributedSampler ask the process group for the rank and the number of ranks."""
    calls = [
        call
        for call in fault.calls("DistributedSampler")
        if {"num_replicas", "rank"} & keywords(call).keys()
    ]
    if len(calls) != 1 or len(calls[0].args) != 1:
        return None
    new = _without(calls[0], ("num_replicas", "rank"))
    return fault.replaced([(calls[0], new)], f"`{new}` asks the process group")


def leave_shuffling(fault: Fault) -> Correction | None:
    """Leave the order of the samples to the loader's sampler."""
    calls = [
        call
        for call in fault.calls(lines=fault.lines_of(list(fault.finding.places)))
        if {"sampler", "shuffle"} <= keywords(call).keys()
    ]
    if len(calls) != 1:
        return None
    new = _without(calls[0], ("shuffle",))
    return fault.replaced([(calls[0], new)], f"`{new}` leaves the order to the sampler")


def reduce_for_all(fault: Fault) -> Correction | None:
    """Replace ``reduce`` by ``all_reduce``."""
    calls = fault.calls("reduce", fault.lines_of_facts("reduced-to"))
    if len(calls) != 1 or not 1 <= len(calls[0].args) <= 2:
        return None
    (call,) = calls
    if not isinstance(call.func, ast.Attribute):
        return None
    function = ast.Attribute(value=call.func.value, attr="all_reduce", ctx=ast.Load())
    given = [one for one in call.keywords if one.arg not in ("dst", "group_dst")]
    new = _call(function, call.args[:1], given)
    return fault.replaced([(call, new)], f"`{new}` gives every rank the result")


def form_group_once(fault: Fault) -> Correction | None:
    """Call ``init_process_group`` only if there is no group yet."""
    lines = fault.lines_of(list(fault.finding.places))
    for call in fault.calls("init_process_group", lines):
        node = fault.tree.parents[call]
        if not isinstance(node, ast.Expr) or not isinstance(call.func, ast.Attribute):
            continue
        own = fault.slice(node.lineno, end(node))
        if own[0][: node.col_offset].strip():
            return None  # it follows another statement on its line
        condition = f"if not {ast.unparse(call.func.value)}.is_initialized():"
        indentation = own[0][: node.col_offset]
        # what follows on the same line is not under the condition; columns count bytes
        last = own[-1].encode()
        rest = last[node.end_col_offset :].decode()
        following = rest.lstrip()[1:].lstrip() if rest.lstrip().startswith(";") else ""
        if following:
            own[-1] = last[: node.end_col_offset].decode()
        new = [indentation + condition, *(f"    {line}" for line in own)]
        new += [indentation + following] if following else []
        changed = fault.with_lines(node.lineno, end(node), new)
        return Correction(changed, f"`{condition}` is above it")
    return None


def keep_no_graph(fault: Fault) -> Correction | None:
    """Use ``loss.detach()`` where a loss is summed or stored."""
    lines = fault.lines_of_facts("keeps-graph")
    sums = [one for one in fault.tree.of_kind(ast.AugAssign) if one.lineno in lines]
    kept = [one.value for one in sums]
    kept += [value for call in fault.calls("append", lines) for value in call.args]
    if len(kept) != 1 or not isinstance(kept[0], ast.Name) or _backward_of(fault, sums):
        return None
    new = f"{kept[0].id}.detach()"
    return fault.replaced([(kept[0], new)], f"`{new}` is kept, without its graph")


def _backward_of(fault: Fault, sums: list[ast.AugAssign]) -> bool:
    """Whether ``backward`` is called on the sum; its graph is then needed."""
    added = {ast.unparse(one.target) for one in sums}
    return any(
        isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in added
        for call in fault.calls("backward")
    )


def _without(call: ast.Call, names: Container[str | None]) -> str:
    return _call(call.func, call.args, [k for k in call.keywords if k.arg not in names])


def _call(function: ast.expr, args: list[ast.expr], keywords: list[ast.keyword]) -> str:
    return ast.unparse(ast.Call(func=function, args=args, keywords=keywords))
