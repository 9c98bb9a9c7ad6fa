"""Notes what a metric of torchmetrics computes without asking the other ranks.

A metric exchanges its state when it is computed, unless it was made with ``sync_on_compute=False``.
Its result is then the rank's own, whatever ranks exchanged for another metric just before.
"""

from __future__ import annotations

import functools
import sys
from types import FrameType, ModuleType
from typing import Any

from ...model.user_code import is_user_code, package_file
from ..after_import import AfterImport
from . import evaluations

_COLLECTIONS = "torchmetrics/collections.py"


def install() -> None:
    """Note results, once torchmetrics is imported."""
    AfterImport("torchmetrics.metric", _wrap).install()


def _wrap(module: ModuleType) -> None:
    metric = getattr(module, "Metric", None)
    original = getattr(metric, "_wrap_compute", None)
    if metric is None or original is None:
        return  # another version

    @functools.wraps(original)
    def wrap_compute(self: Any, compute: Any) -> Any:
        return _noting(self, original(self, compute))

    metric._wrap_compute = wrap_compute


def _noting(metric: Any, compute: Any) -> Any:
    @functools.wraps(compute)
    def noting(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        value = compute(*args, **kwargs)
        # `forward` computes the value of a batch, which is progress and no result
        synced = getattr(metric, "_to_sync", True) or getattr(metric, "_is_synced", True)
        if not synced and _is_asked_for(sys._getframe(1)):
            evaluations.RECORD.computes(value)
        return value

    return noting


def _is_asked_for(frame: FrameType | None) -> bool:
    """Whether the user's code computes a metric, or a collection of metrics."""
    while frame is not None and package_file(frame.f_code.co_filename) == _COLLECTIONS:
        frame = frame.f_back
    return frame is not None and is_user_code(frame.f_code.co_filename)
