"""Takes the place of torch's entry points where a job switches them off; see `job_hook`."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from . import job_hook


def begin(file: str) -> None:
    """Record this process after its import of torch, and run the hidden ``sitecustomize``.

    Parameters
    ----------
    file
        The ``sitecustomize.py`` that calls this.
    """
    sys.meta_path.insert(0, _AfterTorch())
    own = str(Path(file).parent)
    others = [entry for entry in sys.path if entry != own]
    hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if hidden is not None and hidden.loader is not None:
        hidden.loader.exec_module(importlib.util.module_from_spec(hidden))


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Calls the hook when the import of torch has ended."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            job_hook.begin()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
