"""What a rank's memory contained, and how it changed while a cell ran."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from .position import Position

MemoryKind = Literal[
    "parameters", "gradients", "optimizer state", "buffers", "DDP buckets", "activations", "tensors"
]

#: In the order in which views show them.
KINDS: tuple[MemoryKind, ...] = (
    "parameters",
    "gradients",
    "optimizer state",
    "buffers",
    "DDP buckets",
    "activations",
    "tensors",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCount:
    """The parts of a rank's memory at one moment of a traced run.

    Attributes
    ----------
    at_ms
        Milliseconds since sampling started.
    parts
        Bytes by `MemoryKind`.
    """

    at_ms: int
    parts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """The memory of one rank.

    Attributes
    ----------
    rank
        Global rank.
    device
        Where the parts are: ``"cpu"`` or the name of a GPU such as ``"cuda:0"``.
    parts
        Bytes by `MemoryKind`; each storage is counted once. ``"activations"`` is what backward
        keeps after a forward pass; ``"tensors"`` are other variables of the cell.
    measured
        When the parts were measured: at ``"step 2"``, at the ``"end"`` of the cell, or while the
        rank was ``"running"``.
    optimizer
        Class of the optimizer, empty if there is none.
    parameter_count
        Number of elements of all parameters.
    trained_count
        Number of elements of the trained parameters.
    wrapper
        What distributes the model over the ranks: ``"DDP"``, ``"FSDP2"``; empty if nothing does.
    rss_bytes, pss_bytes
        Resident and proportional set size at the end of the cell. The latter divides the pages
        that processes share among them.
    peak_bytes
        The largest resident set while the cell ran, as the operating system counted it.
    data_bytes
        Private memory that was mapped at the end; ``limits["rank"]`` limits this quantity.
    gpu_allocated, gpu_reserved, gpu_peak
        Bytes that PyTorch's allocator reports, None without a GPU.
    limits
        Limits in bytes, of the ``"rank"``, ``"cgroup"``, ``"machine"`` and ``"GPU"``.
    started_s
        When sampling started, on the monotonic clock in seconds.
    at_ms, rss_kb, data_kb, gpu_kb
        Samples while the cell ran: milliseconds since ``started_s``, resident set, private mapped
        memory and GPU memory in kibibytes. ``gpu_kb`` is empty without a GPU.
    counts
        The parts after each of the first forward passes and steps of a traced run, and at its end.
    highest_at_ms, highest_where
        When the sampled memory last rose to a new peak by more than 1 %, and the user's line at
        which the main thread stood. None if it stood in no line of the user.
    """

    rank: int
    device: str = "cpu"
    parts: dict[str, int] = field(default_factory=dict)
    measured: str = "end"
    optimizer: str = ""
    parameter_count: int = 0
    trained_count: int = 0
    wrapper: str = ""
    rss_bytes: int = 0
    pss_bytes: int | None = None
    peak_bytes: int | None = None
    data_bytes: int | None = None
    gpu_allocated: int | None = None
    gpu_reserved: int | None = None
    gpu_peak: int | None = None
    limits: dict[str, int] = field(default_factory=dict)
    started_s: float = 0.0
    at_ms: tuple[int, ...] = ()
    rss_kb: tuple[int, ...] = ()
    data_kb: tuple[int, ...] = ()
    gpu_kb: tuple[int, ...] = ()
    counts: tuple[MemoryCount, ...] = ()
    highest_at_ms: int | None = None
    highest_where: Position | None = None

    @property
    def known_bytes(self) -> int:
        """Sum of the parts."""
        return sum(self.parts.values())

    def with_course_of(self, run: RankMemory) -> RankMemory:
        """These figures with activations, peak and samples from a traced run."""
        kept = {kind: size for kind, size in run.parts.items() if kind == "activations"}
        return replace(
            self,
            parts=self.parts | kept,
            peak_bytes=run.peak_bytes,
            started_s=run.started_s,
            at_ms=run.at_ms,
            rss_kb=run.rss_kb,
            data_kb=run.data_kb,
            gpu_kb=run.gpu_kb,
            counts=run.counts,
            highest_at_ms=run.highest_at_ms,
            highest_where=run.highest_where,
        )
