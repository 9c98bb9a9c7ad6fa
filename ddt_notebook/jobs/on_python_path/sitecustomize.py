"""Begins to record where no entry point of torch does: in TensorFlow, and without entry points.

Python finds this module instead of another ``sitecustomize``, which it therefore runs as well.
"""

import functools
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

_STRATEGIES = "tensorflow.python.distribute.collective_all_reduce_strategy"


class _After:
    """Acts when the import of a module has ended."""

    def __init__(self, name: str, act: Any) -> None:
        self._name, self._act = name, act

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run, act = spec.loader.exec_module, self._act

        def exec_module(module):  # type: ignore[no-untyped-def]
            run(module)
            try:
                act(module)
            except BaseException:  # noqa: BLE001  (it would end the import)
                return

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _torch_is_imported(module):  # type: ignore[no-untyped-def]
    import ddt_notebook_recorder  # type: ignore[import-not-found]

    ddt_notebook_recorder.begin()


def _watch_strategies(module):  # type: ignore[no-untyped-def]
    """Begin only when a strategy of several workers is made: the recorder imports torch."""
    strategy = module.CollectiveAllReduceExtended
    make = strategy._initialize_multi_worker

    @functools.wraps(make)
    def begin_and_make(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        strategy._initialize_multi_worker = make
        try:
            import ddt_notebook_recorder
        except ImportError:
            pass
        else:
            ddt_notebook_recorder.begin_worker()
        return strategy._initialize_multi_worker(self, *args, **kwargs)

    strategy._initialize_multi_worker = begin_and_make


def _run_hidden() -> None:
    """Run the module that this one hides; Python itself reports its error."""
    own = Path(__file__).absolute().parent
    others = [entry for entry in sys.path if Path(entry).absolute() != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
    sys.meta_path.insert(0, _After("torch", _torch_is_imported))
sys.meta_path.insert(0, _After(_STRATEGIES, _watch_strategies))
_run_hidden()
