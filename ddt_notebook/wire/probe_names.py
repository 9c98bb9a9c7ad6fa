"""What can be observed in a rank on request: the one list of its probes."""

from __future__ import annotations

#: Name of the probe, and the module of `ddt_notebook.rank.probes` with its function.
PROBES = {
    "placement": "placement:observe",
    "partition": "partition:observe",
    "parity": "parity:observe",
    "memory": "memory:observe",
    "performance": "performance:observe",
    "training": "training:observe",
    "checkpoints": "checkpoints:observe",
}
#: Asked for by name only; no part of a snapshot.
ASKED = {"environment": "environment:observe"}
