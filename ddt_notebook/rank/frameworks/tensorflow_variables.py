"""Finds variables of TensorFlow in the user's objects: their values, memory and devices.

Only this worker's copies of a variable are read. Its combined value would take a collective.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from ...model.memory import RankMemory
from ...model.parity import ParityRole
from ...model.placement import PlacedObject, RankPlacement, Role, TensorPlacement

#: Objects and tensors that a placement lists.
_MOST_OBJECTS, _MOST_TENSORS = 60, 1000
#: What Keras appends to the name of a layer if there was one of that name.
_NUMBER = re.compile(r"_\d+$")
_PLACED_AS: dict[ParityRole, Role] = {
    "parameter": "parameter",
    "buffer": "buffer",
    "state": "state",
}


@dataclass
class _Variable:
    root: str  # the user's variable that holds it
    kind: str  # the class of that
    name: str  # in there; empty if it is the variable itself
    role: ParityRole
    copies: tuple[Any, ...]  # of this worker, one for each replica
    own: bool  # whether each replica has a value of its own

    @property
    def full_name(self) -> str:
        state = ".state" if self.role == "state" else ""
        return f"{self.root}{state}.{self.name}" if self.name else self.root


@dataclass
class _Held:
    variables: list[_Variable] = field(default_factory=list)
    optimizers: list[str] = field(default_factory=list)
    tensor_bytes: int = 0


def values(
    namespace: Mapping[str, Any], names: list[str] | None
) -> Iterator[tuple[str, ParityRole, torch.Tensor]]:
    """Name, role and value of each variable; those that cannot be read are left out.

    So are those of which each replica has a value of its own until they are read together, such as
    a metric's sums and the moving averages of batch normalisation.
    """
    for held in _find(namespace, names).variables:
        if held.own:
            continue
        value = None
        with contextlib.suppress(Exception):  # its strategy may have ended
            value = _tensor(held.copies[0])
        if value is not None:
            yield held.full_name, held.role, value


def with_variables(
    memory: RankMemory, namespace: Mapping[str, Any], names: list[str] | None = None
) -> RankMemory:
    """The memory of a rank with what variables and tensors of TensorFlow take."""
    found = _find(namespace, names)
    sizes = {"parameters": 0, "optimizer state": 0, "buffers": 0, "tensors": found.tensor_bytes}
    count = trained = 0
    kinds: dict[ParityRole, str] = {"state": "optimizer state", "buffer": "buffers"}
    for held in found.variables:
        elements = held.copies[0].shape.num_elements() or 0
        size = elements * held.copies[0].dtype.size
        sizes[kinds.get(held.role, "parameters")] += size * len(held.copies)
        count += elements if held.role != "state" else 0
        trained += elements if held.role == "parameter" else 0
    parts = {kind: size + memory.parts.get(kind, 0) for kind, size in sizes.items() if size}
    return replace(
        memory,
        parts=memory.parts | parts,
        optimizer=memory.optimizer or ", ".join(dict.fromkeys(found.optimizers)),
        parameter_count=memory.parameter_count + count,
        trained_count=memory.trained_count + trained,
    )


def with_placement(
    placement: RankPlacement, namespace: Mapping[str, Any], names: list[str] | None = None
) -> RankPlacement:
    """The placement of a rank with the devices of TensorFlow on which its variables are."""
    found: dict[tuple[str, str], list[TensorPlacement]] = {}
    kinds: dict[str, str] = {}
    for held in _find(namespace, names).variables:
        kinds[held.root] = held.kind
        for number, copy in enumerate(held.copies):
            described = TensorPlacement(
                name=f"{held.name} (replica {number})" if number else held.name,
                role=_PLACED_AS[held.role],
                device=str(copy.device).rpartition("device:")[2].lower(),
                dtype=copy.dtype.name,
                shape=tuple(size or 0 for size in copy.shape.as_list()),
                bytes=(copy.shape.num_elements() or 0) * copy.dtype.size,
                requires_grad=held.role == "parameter",
            )
            what = "optimizer" if held.role == "state" else "module" if held.name else "tensor"
            found.setdefault((held.root, what), []).append(described)
    objects = [
        PlacedObject(
            name=root,
            kind=what,  # type: ignore[arg-type]
            type=kinds[root],
            tensors=tuple(tensors[:_MOST_TENSORS]),
            tensors_left_out=max(0, len(tensors) - _MOST_TENSORS),
            bytes=sum(tensor.bytes for tensor in tensors),
        )
        for (root, what), tensors in found.items()
    ]
    together = (*placement.objects, *objects)
    left_out = max(0, len(together) - _MOST_OBJECTS)
    return replace(
        placement,
        objects=together[:_MOST_OBJECTS],
        objects_left_out=placement.objects_left_out + left_out,
    )


def _find(namespace: Mapping[str, Any], names: list[str] | None) -> _Held:
    import tensorflow as tf

    held = _Held()
    known: set[int] = set()

    numbered: dict[tuple[str, str], list[str]] = {}

    def renumbered(root: str, path: str) -> str:
        """The path with layers numbered within their object; Keras counts those of a process."""
        parts = []
        for part in path.split("/"):
            base = _NUMBER.sub("", part)
            same = numbered.setdefault((root, base), [])
            if part not in same:
                same.append(part)
            at = same.index(part)
            parts.append(f"{base}_{at}" if at else base)
        return "/".join(parts)

    def add(root: str, kind: str, role: ParityRole, variable: Any, *, named: bool = True) -> None:
        copies = _copies(variable)
        if id(copies[0]) not in known and hasattr(copies[0], "shape") and copies[0].dtype.size:
            known.add(id(copies[0]))
            name = renumbered(root, _own_name(variable, copies[0])) if named else ""
            held.variables.append(_Variable(root, kind, name, role, copies, _is_own(variable)))

    def add_optimizer(root: str, optimizer: Any) -> None:
        found = getattr(optimizer, "variables", ())
        held.optimizers.append(type(optimizer).__name__)
        for one in found() if callable(found) else found:
            add(root, type(optimizer).__name__, "state", one)

    chosen = {name: namespace.get(name) for name in names} if names else namespace
    for name, value in chosen.items():
        if isinstance(value, type):
            continue  # its attributes are properties
        if isinstance(value, tf.Variable):
            role: ParityRole = "parameter" if value.trainable else "buffer"
            add(name, "Variable", role, value, named=False)
        elif isinstance(value, tf.distribute.DistributedValues):
            continue  # almost any attribute of it stands for the value of all workers
        elif isinstance(value, tf.Module) and hasattr(value, "trainable_variables"):
            trained = {id(one) for one in value.trainable_variables}
            for one in value.variables:
                role = "parameter" if id(one) in trained else "buffer"
                add(name, type(value).__name__, role, one)
            optimizer = getattr(value, "optimizer", None)
            if optimizer is not None:
                add_optimizer(f"{name}.optimizer", optimizer)
        elif isinstance(value, tf.Tensor):
            elements = value.shape.num_elements() or 0
            held.tensor_bytes += elements * value.dtype.size
        elif hasattr(value, "apply_gradients") and hasattr(value, "variables"):
            add_optimizer(name, value)
    return held


def _copies(variable: Any) -> tuple[Any, ...]:
    """List this worker's copies of a variable, one for each of its replicas.

    Reading any other attribute of a variable that a strategy distributes may take a collective.
    """
    import tensorflow as tf

    if not isinstance(variable, tf.distribute.DistributedValues):
        inner = getattr(variable, "value", variable)  # Keras 3 wraps a variable
        variable = variable if callable(inner) else inner
    if isinstance(variable, tf.distribute.DistributedValues):
        return tuple(variable.values)
    return (variable,)


def _is_own(variable: Any) -> bool:
    """Whether each replica has a value of its own, and they are combined only when it is read."""
    import tensorflow as tf

    if not isinstance(variable, tf.distribute.DistributedValues):
        return False
    return getattr(variable, "synchronization", None) is tf.VariableSynchronization.ON_READ


def _own_name(variable: Any, copy: Any) -> str:
    distributed = hasattr(type(variable), "values")
    path = None if distributed else getattr(variable, "path", None)
    return str(path or copy.name).partition(":")[0]


def _tensor(variable: Any) -> torch.Tensor | None:
    """A copy of this worker's value; None if torch has no such type."""
    value = np.array(variable.numpy())
    if variable.dtype.name == "bfloat16":
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value) if value.dtype.kind in "biufc" else None
