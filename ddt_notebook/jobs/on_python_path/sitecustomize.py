"""Begins to record where no entry point of torch does: in other frameworks, and without any.

Python finds this module instead of another ``sitecustomize``, which it therefore runs as well.
"""

import functools
import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

#: The file with the methods of frameworks in which a process becomes a rank.
_BEGINS = "begins.json"


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


def _watch(path: str, framework: str) -> Any:
    """Begin only when this method is called: the recorder imports torch."""
    kind, _, name = path.partition(".")

    def act(module):  # type: ignore[no-untyped-def]
        owner = getattr(module, kind)
        make = getattr(owner, name)

        @functools.wraps(make)
        def begin_and_make(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            setattr(owner, name, make)
            try:
                import ddt_notebook_recorder
            except ImportError:
                pass
            else:
                ddt_notebook_recorder.begin_worker(framework)
            return getattr(owner, name)(self, *args, **kwargs)

        setattr(owner, name, begin_and_make)

    return act


def _watch_frameworks() -> None:
    try:
        begins = json.loads(Path(__file__).with_name(_BEGINS).read_text())
    except (OSError, ValueError):
        return
    for module, path, framework in begins:
        sys.meta_path.insert(0, _After(module, _watch(path, framework)))


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
_watch_frameworks()
_run_hidden()
