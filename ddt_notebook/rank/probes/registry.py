"""Runs the probes that the notebook requests from a rank.

A probe has the name of the field of `Snapshot` that it fills. It is a function
``observe(namespace, names=None, **options) -> dict`` that runs in the rank at its prompt, finds
the user's objects in the namespace and returns plain data for JSON, which `model.codec` reads.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ...wire.probe_names import ASKED, PROBES


def probe(name: str) -> Callable[..., dict[str, Any]]:
    """The function of a probe; imports its module.

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
    """Run probes in this rank; returns what each observed, and why the others failed."""
    observed, failed = {}, {}
    for name in what:
        try:
            observed[name] = probe(name)(namespace, names=names, **options)
        except LookupError as error:
            failed[name] = str(error)
        except Exception as error:  # noqa: BLE001  (an object of the user may raise anything)
            failed[name] = f"{name} could not be observed: {type(error).__name__}: {error}"
    return {"observed": observed, "failed": failed}
