"""Where a rank's tensors live: device, type, shape and size, by the object that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal[
    "parameter",
    "buffer",
    "attribute",  # of a module, but neither parameter nor buffer: it stays where it is
    "state",  # of an optimizer
    "tensor",  # a variable, or within one
]
Wrapper = Literal["", "DDP", "FSDP", "FSDP2", "DTensor", "DeepSpeed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlacement:
    """One tensor on one rank.

    Attributes
    ----------
    name
        Within its object: ``"fc1.weight"``; empty if the object is the tensor itself.
    role
        See `Role`.
    device, dtype
        Like ``"cuda:0"`` and ``"float32"``.
    shape
        Of the whole tensor; of a DTensor, the rank holds a part of it only.
    bytes
        What this rank holds.
    requires_grad
        Whether it is trained.
    placements, mesh
        Of a DTensor: ``"Shard(0)"``, ``"dp=2"``.
    local_shape
        Of a DTensor: the part that this rank holds.
    """

    name: str
    role: Role
    device: str
    dtype: str
    shape: tuple[int, ...] = ()
    bytes: int = 0
    requires_grad: bool = False
    placements: str = ""
    mesh: str = ""
    local_shape: tuple[int, ...] | None = None

    @property
    def module(self) -> str:
        """The module within the object that owns the tensor."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedObject:
    """A variable that holds tensors: a module, an optimizer, a batch.

    Attributes
    ----------
    name
        The variable: ``"model"``, ``"trainer.model"``, ``"batch[0]"``.
    kind, type
        What it is, and the name of its class (of the user's module within a wrapper).
    wrapper
        What spreads a module over the ranks; empty if nothing does.
    trained
        Of a module: whether an optimizer holds its parameters, or they have gradients.
    stepped_alone
        Of a module: whether an optimizer stepped its parameters in this run while no wrapper
        held them; a model of an earlier run, or one that was wrapped then, has not.
    also
        Other variables that are this object or a part of it.
    tensors
        Bounded; `left_out` says how many are missing.
    bytes, tensors_left_out
        Of all its tensors, and how many of them are not listed.
    loose_modules
        Attributes that hold modules in a plain list or dict: their parameters are not registered.
    """

    name: str
    kind: Literal["module", "optimizer", "tensor"]
    type: str
    wrapper: Wrapper = ""
    trained: bool = False
    stepped_alone: bool = False
    also: tuple[str, ...] = ()
    tensors: tuple[TensorPlacement, ...] = ()
    bytes: int = 0
    tensors_left_out: int = 0
    loose_modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A GPU that a rank can see.

    Attributes
    ----------
    device
        As this rank calls it: ``"cuda:0"``.
    identity
        The same for every rank that means the same GPU.
    name
        ``"NVIDIA H100"``; empty if the rank has not touched it yet.
    simulated
        Whether it is not there: what is said to be on it is in the memory of the CPU.
    """

    device: str
    identity: str
    name: str = ""
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """Everything that one rank holds.

    Attributes
    ----------
    rank
        Global rank.
    objects
        Modules, then optimizers, then other tensors.
    accelerators
        GPUs that it can see.
    objects_left_out
        How many more variables hold tensors.
    unreadable
        Variables that raised an exception when they were looked at.
    """

    rank: int
    objects: tuple[PlacedObject, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    objects_left_out: int = 0
    unreadable: tuple[str, ...] = ()
