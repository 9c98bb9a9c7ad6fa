"""Finds names that the ranks lack and the notebook has; its variables are not sent to ranks."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType

from ..model import RankError
from ..model.snapshot import NotebookName


def missing_names(errors: Iterable[RankError | None]) -> dict[str, NotebookName]:
    """The names that ranks lacked and the notebook defines, with what they are there."""
    lacked = {error.undefined_name for error in errors if error is not None} - {""}
    known = _variables() if lacked else {}
    return {
        name: "module" if isinstance(known[name], ModuleType) else "variable"
        for name in sorted(lacked & known.keys())
    }


def _variables() -> Mapping[str, object]:
    """The variables that the user defined in the notebook or the script that holds the session."""
    # IPython puts this function there for as long as a cell runs.
    get_ipython = getattr(builtins, "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    if shell is None:
        names = vars(sys.modules["__main__"])
        return {k: v for k, v in names.items() if not k.startswith("__")}  # __file__ is Python's
    return {k: v for k, v in shell.user_ns.items() if k not in shell.user_ns_hidden}
