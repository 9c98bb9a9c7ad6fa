"""Finds variables of TensorFlow in the user's objects: their values and the memory they take.

Only this worker's copy of a variable is read. Its combined value would take a collective.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from ...model.memory import RankMemory
from ...model.parity import ParityRole


@dataclass
class _Held:
    #: Name, role and this worker's copy of each variable.
    variables: list[tuple[str, ParityRole, Any]] = field(default_factory=list)
    optimizers: list[str] = field(default_factory=list)
    tensor_bytes: int = 0


def values(
    namespace: Mapping[str, Any], names: list[str] | None
) -> Iterator[tuple[str, ParityRole, torch.Tensor]]:
    """Name, role and value of each variable; those that cannot be read are left out."""
    for name, role, variable in _find(namespace, names).variables:
        value = None
        with contextlib.suppress(Exception):  # its strategy may have ended
            value = _tensor(variable)
        if value is not None:
            yield name, role, value


def with_variables(
    memory: RankMemory, namespace: Mapping[str, Any], names: list[str] | None = None
) -> RankMemory:
    """The memory of a rank with what variables and tensors of TensorFlow take."""
    found = _find(namespace, names)
    sizes = {"parameters": 0, "optimizer state": 0, "buffers": 0, "tensors": found.tensor_bytes}
    count = trained = 0
    kinds: dict[ParityRole, str] = {"state": "optimizer state", "buffer": "buffers"}
    for _, role, variable in found.variables:
        elements = variable.shape.num_elements() or 0
        sizes[kinds.get(role, "parameters")] += elements * variable.dtype.size
        count += elements if role != "state" else 0
        trained += elements if role == "parameter" else 0
    parts = {kind: size + memory.parts.get(kind, 0) for kind, size in sizes.items() if size}
    return replace(
        memory,
        parts=memory.parts | parts,
        optimizer=memory.optimizer or ", ".join(dict.fromkeys(found.optimizers)),
        parameter_count=memory.parameter_count + count,
        trained_count=memory.trained_count + trained,
    )


def _find(namespace: Mapping[str, Any], names: list[str] | None) -> _Held:
    import tensorflow as tf

    held = _Held()
    known: set[int] = set()

    def add(name: str, role: ParityRole, variable: Any) -> None:
        own = getattr(variable, "value", variable)  # Keras 3 wraps a variable
        own = variable if callable(own) else own
        copies = getattr(own, "values", ())  # of a distributed variable, this worker's
        own = copies[0] if isinstance(copies, tuple) and copies else own
        if id(own) not in known and hasattr(own, "shape") and own.dtype.size:
            known.add(id(own))
            held.variables.append((name, role, own))

    chosen = {name: namespace.get(name) for name in names} if names else namespace
    for name, value in chosen.items():
        if isinstance(value, tf.Module) and hasattr(value, "trainable_variables"):
            trained = {id(one) for one in value.trainable_variables}
            for one in value.variables:
                role: ParityRole = "parameter" if id(one) in trained else "buffer"
                add(f"{name}.{_own_name(one)}", role, one)
            _add_optimizer(held, f"{name}.optimizer", getattr(value, "optimizer", None), add)
        elif isinstance(value, tf.Variable):
            add(name, "parameter" if value.trainable else "buffer", value)
        elif isinstance(value, tf.Tensor):
            elements = value.shape.num_elements() or 0
            held.tensor_bytes += elements * value.dtype.size
        elif hasattr(value, "apply_gradients") and hasattr(value, "variables"):
            _add_optimizer(held, name, value, add)
    return held


def _add_optimizer(held: _Held, name: str, optimizer: Any, add: Any) -> None:
    found = getattr(optimizer, "variables", ())
    found = found() if callable(found) else found
    if optimizer is not None:
        held.optimizers.append(type(optimizer).__name__)
    for one in found:
        add(f"{name}.state.{_own_name(one)}", "state", one)


def _own_name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name).partition(":")[0]


def _tensor(variable: Any) -> torch.Tensor | None:
    """A copy of this worker's value; None if torch has no such type."""
    value = np.array(variable.numpy())
    if variable.dtype.name == "bfloat16":
        return torch.from_numpy(value.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(value) if value.dtype.kind in "biufc" else None
