"""The device, type, shape and size of a rank's tensors, by the object that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal[
    "parameter",
    "buffer",
    "attribute",  # of a module, but neither parameter nor buffer; ``to`` does not move it
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
        Name within its object, such as ``"fc1.weight"``; empty if the object is the tensor itself.
    role
        See `Role`.
    device, dtype
        Such as ``"cuda:0"`` and ``"float32"``.
    shape
        Shape of the whole tensor; a rank holds only a part of a DTensor.
    bytes
        Bytes that this rank holds.
    requires_grad
        Whether it is trained.
    placements, mesh
        For a DTensor: ``"Shard(0)"``, ``"dp=2"``.
    local_shape
        For a DTensor: shape of the part that this rank holds.
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
        """The name of the submodule that owns the tensor."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedObject:
    """A variable that holds tensors: a module, an optimizer, a batch.

    Attributes
    ----------
    name
        The variable: ``"model"``, ``"trainer.model"``, ``"batch[0]"``.
    kind, type
        Its kind, and the name of its class; for a wrapper, the class of the user's module in it.
    wrapper
        What distributes a module over the ranks; empty if nothing does.
    trained
        For a module: whether an optimizer holds its parameters, or they have gradients.
    stepped_alone
        For a module: whether an optimizer updated its parameters in this run while no wrapper held
        them. False for a model of an earlier run, or one that was wrapped at that time.
    also
        Other variables that refer to this object or a part of it.
    tensors
        The first tensors; ``tensors_left_out`` is the number of the others.
    bytes, tensors_left_out
        Bytes of all its tensors, and how many of them are not listed.
    loose_modules
        Attributes with modules in a plain list or dict, so their parameters are not registered.
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
        Its name on this rank, such as ``"cuda:0"``.
    identity
        Identifies the GPU; the same on every rank that sees it.
    name
        ``"NVIDIA H100"``; empty if the rank has not used it yet.
    simulated
        Whether the GPU is simulated: its tensors are in the memory of the CPU.
    """

    device: str
    identity: str
    name: str = ""
    simulated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """The tensors that one rank holds.

    Attributes
    ----------
    rank
        Global rank.
    objects
        Modules first, then optimizers, then other tensors.
    accelerators
        The GPUs that it can see.
    objects_left_out
        How many more variables hold tensors.
    unreadable
        Variables that raised an exception when they were inspected.
    """

    rank: int
    objects: tuple[PlacedObject, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    objects_left_out: int = 0
    unreadable: tuple[str, ...] = ()
