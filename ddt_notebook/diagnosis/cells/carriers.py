"""Which functions of a cell carry values from rank to rank."""

from __future__ import annotations

import ast

from .source import Sources
from .usage import called_name

#: Calls of ``torch.distributed``, and of libraries that reduce or gather for the user.
COLLECTIVES = frozenset({
    "all_reduce", "reduce", "broadcast", "broadcast_object_list", "all_gather", "all_gather_object",
    "all_gather_into_tensor", "gather", "gather_object", "scatter", "scatter_object_list",
    "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "send", "recv",
    "isend", "irecv", "all_reduce_coalesced", "gather_for_metrics", "sync", "compute",
})  # fmt: skip


def carriers(sources: Sources) -> frozenset[str]:
    """Names of collectives, and of the functions of all cells in which one is called."""
    found = set(COLLECTIVES)
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
