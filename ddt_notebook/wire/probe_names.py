"""The list of all probes that can be run in a rank on request."""

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
    "shown": "shown:observe",
    "exchanged": "exchanged:observe",
}
#: Probes that are not part of a snapshot and run only if requested by name.
ASKED = {"environment": "environment:observe"}
