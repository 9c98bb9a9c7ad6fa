"""Keras 3 on torch, whose ``fit`` trains through ``torch.distributed``."""

from __future__ import annotations

from .description import Description

#: A rank records when ``stop_training`` of a model is set, which ends ``fit``. If an object of the
#: library sets it, its class is recorded as the detail.
STOPS = "Model.stop_training"

FRAMEWORK = Description(
    name="keras",
    title="Keras",
    in_ranks="ddt_notebook.rank.frameworks.keras:Keras",
    stops=frozenset({STOPS}),
)
