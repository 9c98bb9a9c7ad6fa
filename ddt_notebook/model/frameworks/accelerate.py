"""Hugging Face Accelerate, which trains through ``torch.distributed``."""

from __future__ import annotations

from .description import Description

FRAMEWORK = Description(
    name="accelerate",
    title="Accelerate",
    in_ranks="ddt_notebook.rank.frameworks.accelerate:Accelerate",
)
