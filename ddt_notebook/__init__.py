"""A debugging assistant for distributed training that lives in a Jupyter notebook."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import diagnose as diagnose
    from .api import explain as explain
    from .api import parity as parity
    from .api import partition as partition
    from .api import placement as placement
    from .model import Snapshot as Snapshot
    from .session.errors import SessionError as SessionError
    from .session.result import RunResult as RunResult
    from .session.session import Session as Session

__version__ = "0.1.0"

#: Loaded on first use, so that ``import ddt_notebook`` stays quick.
_PUBLIC = {
    "Session": ".session.session",
    "SessionError": ".session.errors",
    "RunResult": ".session.result",
    "Snapshot": ".model",
    "diagnose": ".api",
    "explain": ".api",
    "parity": ".api",
    "partition": ".api",
    "placement": ".api",
}

__all__ = ["__version__", "load_ipython_extension", "unload_ipython_extension", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics (``%load_ext ddt_notebook``) and warm the ranks' parent process."""
    from .magics.extension import load_ipython_extension as load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics and stop the session."""
    from .magics.extension import unload_ipython_extension as unload

    unload(shell)
