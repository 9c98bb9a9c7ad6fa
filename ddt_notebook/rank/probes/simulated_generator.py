"""Random numbers on simulated GPUs: each GPU has a state of its own, from which the CPU draws."""

from __future__ import annotations

from typing import Any

import torch

from .simulated import CPU, GPU, SimulatedGPUs, generators


class _LikeOriginal(type(torch.Generator)):  # type: ignore[misc]
    """Lets ``isinstance`` recognise the generators that torch itself made."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


def install(gpus: SimulatedGPUs) -> None:
    """Let ``torch.Generator`` accept simulated devices, and give each GPU its default generator."""

    class Generator(torch.Generator, metaclass=_LikeOriginal):
        def __new__(cls, device: Any = CPU) -> Any:
            where = gpus.resolve(device)
            made = super().__new__(cls, CPU if where is not None else device)
            generators[made] = where
            return made

        def __init__(self, device: Any = CPU) -> None:
            """Everything was done when it was made."""

        @property
        def device(self) -> torch.device:
            simulated = generators.get(self)
            return super().device if simulated is None else simulated

    Generator.__qualname__ = "Generator"
    Generator.__module__ = "torch"
    torch.Generator = Generator  # type: ignore[misc]
    gpus.generators = tuple(Generator(torch.device(GPU, index)) for index in range(gpus.count))
    cuda: Any = torch.cuda
    cuda.default_generators = gpus.generators
    for generator in gpus.generators:
        generator.manual_seed(torch.initial_seed())
