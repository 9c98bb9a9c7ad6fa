"""A sampler that is not told the epoch: it is."""

from __future__ import annotations

import ast

from ddt_notebook.diagnosis.cells import syntax

from .fault import Correction, Fault, assigned_calls, own, scopes


def set_epoch(fault: Fault) -> Correction | None:
    """`sampler.set_epoch(epoch)` at the start of the one loop over epochs."""
    for scope in scopes(fault.tree):
        samplers = [
            (name, call)
            for name, call in assigned_calls(scope)
            if syntax.calls(call, "DistributedSampler") and not _unshuffled(call)
        ]
        loaders = [
            name
            for name, call in assigned_calls(scope)
            if syntax.calls(call, "DataLoader")
            and any(
                keyword.arg == "sampler"
                and syntax.calls(keyword.value, "DistributedSampler")
                and isinstance(keyword.value, ast.Call)
                and not _unshuffled(keyword.value)
                for keyword in call.keywords
            )
        ]
        named = [name for name, _ in samplers] + [f"{loader}.sampler" for loader in loaders]
        loops = [
            node
            for node in own(scope)
            if isinstance(node, ast.For)
            and isinstance(node.target, ast.Name)
            and "epoch" in node.target.id.lower()
            and node.body[0].lineno > node.lineno
        ]
        if len(named) == len(loops) == 1:
            (loop,) = loops
            assert isinstance(loop.target, ast.Name)
            line = f"{named[0]}.set_epoch({loop.target.id})"
            return Correction(fault.insert(loop.body[0], line), f"`{line}` starts every epoch")
    return None


def _unshuffled(call: ast.Call) -> bool:
    return any(
        keyword.arg == "shuffle"
        and isinstance(keyword.value, ast.Constant)
        and not keyword.value.value
        for keyword in call.keywords
    )
