"""The groups of a rank of Megatron-core: those of its own state, or those that the program makes.

Checked with Megatron-core 0.16. Every attribute is looked up with a default: with a version that
lacks one, the rank works as without this module.
"""

from __future__ import annotations

import sys
from typing import Any

import torch.distributed as dist

STATE = "megatron.core.parallel_state"
#: What its functions raise for a group that is not there.
_NO_GROUP = (AssertionError, AttributeError, TypeError, ValueError, RuntimeError)
#: How the descriptions of its groups end.
_ENDINGS = ("_gloo", "_with_cp", "_group", "_parallel")
#: By the axis: the function of its state that gives the group, its options, and the name that the
#: group has in a collection of a program's own.
_GROUPS: dict[str, tuple[str, dict[str, Any], str]] = {
    "model": ("get_model_parallel_group", {}, "mp"),
    "pipeline": ("get_pipeline_model_parallel_group", {}, "pp"),
    "data": ("get_data_parallel_group", {}, "dp"),
    "data and context": ("get_data_parallel_group", {"with_context_parallel": True}, "dp_cp"),
    "context": ("get_context_parallel_group", {}, "cp"),
    "tensor": ("get_tensor_model_parallel_group", {}, "tp"),
}
#: The axes of its mesh, the one first whose ranks hold the whole model.
_AXES = ("pipeline", "data", "context", "tensor")
#: Other groups of a collection, by their names there.
_OTHERS = {"ep": "expert", "expt_dp": "expert data", "embd": "embedding"}


class Mesh:
    """The groups of this rank.

    A program may form groups of its own, and pass a collection of them to a model and to each step.
    """

    def __init__(self) -> None:
        self._collection: Any = None

    @property
    def known(self) -> bool:
        """Whether there are groups."""
        return self._collection is not None or state() is not None

    def use(self, collection: Any) -> None:
        """Take the groups of a collection; with None, those of Megatron-core's state."""
        self._collection = collection

    def members(self, axis: str) -> tuple[int, ...]:
        """The ranks of this rank's group on an axis; none if there is no such group."""
        return ranks_of(self._group(axis))

    def axes(self) -> dict[str, tuple[int, int]]:
        """The place of this rank on each axis of the mesh, and how many there are."""
        found = {}
        for axis in _AXES:
            try:
                group = self._group(axis)
                if group is not None and group.size() > 1:
                    found[axis] = group.rank(), group.size()
            except _NO_GROUP:  # the rank did not come so far, or the groups have ended
                return {}
        return found

    def coordinate(self, axis: str) -> str:
        """``pipeline 1``; empty if the axis has one rank."""
        place = self.axes().get(axis)
        return "" if place is None else f"{axis} {place[0]}"

    def names(self) -> dict[str, str]:
        """The axes of the groups in a program's collection, by their names in torch."""
        named = {field: axis for axis, (_, _, field) in _GROUPS.items()} | _OTHERS
        found: dict[str, str] = {}
        for field, axis in named.items():
            group = getattr(self._collection, field, None)
            if len(ranks_of(group)) > 1:
                found.setdefault(group.group_name, axis)
        return found

    def _group(self, axis: str) -> Any:
        function, options, field = _GROUPS[axis]
        if self._collection is not None:
            return getattr(self._collection, field, None)
        try:
            return getattr(state(), function)(**options)
        except _NO_GROUP:
            return None


def state() -> Any:
    """The module that keeps the groups; None if there are none."""
    module = sys.modules.get(STATE)
    return module if module is not None and module.model_parallel_is_initialized() else None


def ranks_of(group: Any) -> tuple[int, ...]:
    """The ranks of a group; none if it is none, or has ended."""
    if not isinstance(group, dist.ProcessGroup):
        return ()
    try:
        return tuple(dist.get_process_group_ranks(group))
    except _NO_GROUP:
        return ()


def in_words(described: str) -> str:
    """``tensor`` of ``TENSOR_MODEL_PARALLEL_GROUP``."""
    text = described.lower()
    for ending in _ENDINGS:
        text = text.removesuffix(ending)
    axis = text.removesuffix("_model")
    return (text if axis.endswith("_and") else axis).replace("_", " ")
