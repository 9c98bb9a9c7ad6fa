"""Ray Train, whose workers call the user's training function in a thread of their own."""

from __future__ import annotations

from .description import Description

FRAMEWORK = Description(
    name="ray",
    title="Ray Train",
    in_ranks="ddt_notebook.rank.frameworks.ray:RayTrain",
)
