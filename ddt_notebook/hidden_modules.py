"""Names files of the user that hide a module which ddt_notebook imports.

A ``random.py`` beside a script is imported instead of Python's own module of that name, also by
the packages that ddt_notebook needs. This module imports nothing that such a file could hide.
"""

# ruff: noqa: PTH100, PTH119, PTH120  (pathlib imports modules that could be hidden)

from __future__ import annotations

import os
import sys

#: The packages that the notebook's process imports, and those without which no session starts.
PACKAGES = ("IPython", "cloudpickle", "ipywidgets", "numpy", "pandas", "plotly", "psutil")
NEEDED = ("IPython", "cloudpickle", "psutil")


def hidden(names: tuple[str, ...]) -> str:
    """Which files hide which of these modules, and what to do, in one line; empty if none does."""
    found = []
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str) and os.path.basename(file) == f"{name}.py" and _is_users(file):
            what = "Python's own module" if name in sys.stdlib_module_names else "the package"
            found.append(f"{os.path.abspath(file)} hides {what} {name}: rename the file")
    return "; ".join(found)


def advice() -> str:
    """As `hidden`, of all modules: for an import that failed."""
    return hidden((*sorted(sys.stdlib_module_names), *PACKAGES))


def held() -> str:
    """As `hidden`, of the modules that this package's own modules work with."""
    ours = [m for name, m in [*sys.modules.items()] if name.partition(".")[0] == __package__]
    values = [value for module in ours for value in [*vars(module).values()]]
    names = {value.__name__ for value in values if isinstance(value, type(sys))}
    return hidden((*sorted(names & sys.stdlib_module_names), *NEEDED))


def _is_users(file: str) -> bool:
    """Whether a module is neither part of Python nor installed."""
    installed = ("site-packages", "dist-packages", "python-packages")
    return not file.startswith(os.path.dirname(os.__file__) + os.sep) and not any(
        f"{os.sep}{name}{os.sep}" in file for name in installed
    )
