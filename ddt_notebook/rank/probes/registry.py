"""Runs the probes that the notebook requests from a rank.

A probe has the name of the field of `Snapshot` that it fills. It is a function
``observe(rank, namespace, names=None, **options)`` that runs in the rank at its prompt, finds the
user's objects in the namespace and returns that field of `Observation`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...model import Observation
from ...wire.messages import Observed
from ...wire.probe_names import ASKED, PROBES


def probe(name: str) -> Callable[..., object]:
    """The function of a probe; imports its module.

    Raises
    ------
    KeyError
        If there is no such probe.
    """
    module, _, function = (PROBES | ASKED)[name].partition(":")
    found: Callable[..., object] = getattr(
        importlib.import_module(f".{module}", __package__), function
    )
    return found


def observe(
    rank: int,
    what: Sequence[str],
    namespace: Mapping[str, Any],
    names: list[str] | None,
    options: Mapping[str, Any],
) -> Observed:
    """Run probes in this rank; returns what each observed, and why the others failed."""
    observed: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in what:
        try:
            observed[name] = probe(name)(rank, namespace, names=names, **options)
        except LookupError as error:
            failed[name] = str(error)
        except Exception as error:  # noqa: BLE001  (an object of the user may raise anything)
            failed[name] = f"{name} could not be observed: {type(error).__name__}: {error}"
    return Observed(
        observed=Observation(rank=rank, **observed) if observed else None, failed=failed
    )
