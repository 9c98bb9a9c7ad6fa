"""Gives a sampler the number of the epoch."""

from __future__ import annotations

import ast

from ddt_notebook.program.nodes import assigned_calls, is_call, keywords, statements_of

from .fault import Correction, Fault


def set_epoch(fault: Fault) -> Correction | None:
    """Insert ``sampler.set_epoch(epoch)`` at the start of the only loop over epochs."""
    for scope in fault.tree.scopes:
        samplers = [
            (name, call)
            for name, call in assigned_calls(scope)
            if is_call(call, "DistributedSampler") and not _unshuffled(call)
        ]
        loaders = [
            name
            for name, call in assigned_calls(scope)
            if is_call(call, "DataLoader")
            and isinstance(sampler := keywords(call).get("sampler"), ast.Call)
            and is_call(sampler, "DistributedSampler")
            and not _unshuffled(sampler)
        ]
        named = [name for name, _ in samplers] + [f"{loader}.sampler" for loader in loaders]
        loops = [
            node
            for node in statements_of(scope)
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
    shuffle = keywords(call).get("shuffle")
    return isinstance(shuffle, ast.Constant) and not shuffle.value
