"""Takes the place of torch's entry points in a job that switches them off.

Python finds this module instead of another ``sitecustomize``, which it therefore runs as well.
"""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path


class _AfterTorch:
    """Begins to record when the import of torch has ended."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            run(module)
            try:
                import ddt_notebook_recorder  # type: ignore[import-not-found]
            except BaseException:  # noqa: BLE001  (it would end the import of torch)
                return
            ddt_notebook_recorder.begin()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _run_hidden() -> None:
    """Run the module that this one hides; Python itself reports its error."""
    own = Path(__file__).absolute().parent
    others = [entry for entry in sys.path if Path(entry).absolute() != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _AfterTorch())
_run_hidden()
