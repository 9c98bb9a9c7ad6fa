"""What can be observed in a rank on request: the one list of its probes.

A probe is named like the field of `Snapshot` that it fills. It is a function
``observe(namespace, names=None, **options) -> dict`` that runs in the rank at its prompt, finds
the user's objects in the namespace and returns plain data for JSON, which `model.codec` reads.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

#: Name of the probe, to the module in this package that holds it and the function.
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


def probe(name: str) -> Callable[..., dict[str, Any]]:
    """The function of a probe, imported now.

    Raises
    ------
    KeyError
        If there is no such probe.
    """
    module, _, function = (PROBES | ASKED)[name].partition(":")
    found: Callable[..., dict[str, Any]] = getattr(
        importlib.import_module(f".{module}", __package__), function
    )
    return found


def observe(
    what: list[str],
    namespace: Mapping[str, Any],
    names: list[str] | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Run probes in this rank: what each saw, and what was wrong with those that failed."""
    observed, failed = {}, {}
    for name in what:
        try:
            observed[name] = probe(name)(namespace, names=names, **options)
        except LookupError as error:
            failed[name] = str(error)
        except Exception as error:  # noqa: BLE001  (an object of the user can fail in any way)
            failed[name] = f"{name} could not be observed: {type(error).__name__}: {error}"
    return {"observed": observed, "failed": failed}
