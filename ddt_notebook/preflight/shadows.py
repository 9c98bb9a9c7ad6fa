"""Finds files of the user that hide an installed package of the same name."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

from ..model.preflight import Check

#: The largest number of files that are checked in a folder; a dataset's folder may have many more.
_MOST = 2000
#: Common names of users' files, which hide nothing that a job imports.
_OWN = frozenset({"setup", "conftest", "tests", "test", "docs", "examples", "scripts", "main"})


def shadow_checks(folders: Sequence[Path]) -> Iterator[Check]:
    """Check the modules in the folders from which a job starts."""
    installed = {name for name in packages_distributions() if name.isidentifier()} - _OWN
    hidden = False
    for folder in dict.fromkeys(path.resolve() for path in folders):
        if _is_of_packages(folder):
            continue
        for path in _modules(folder):
            name = path.stem
            builtin = name in sys.stdlib_module_names
            if name.startswith("_") or not (builtin or name in installed):
                continue
            if not builtin and _is_the_package_itself(path, name):
                continue
            hidden = True
            what = "Python's own module" if builtin else "the installed package"
            shown = path.name + ("/" if path.is_dir() else "")
            yield Check(
                "modules",
                name,
                "error" if name in ("torch", "numpy") or builtin else "warning",
                f"{shown} in {folder}",
                f"`import {name}` takes this file, not {what}",
                f"rename {shown}",
            )
    if not hidden:
        yield Check(
            "modules", "shadowing", "ok", "no file in this folder hides an installed package"
        )


def _modules(folder: Path) -> Iterator[Path]:
    """The modules that can be imported from a folder."""
    try:
        entries = sorted(folder.iterdir())[:_MOST]
    except OSError:
        return
    for path in entries:
        if path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").is_file()):
            yield path


def _is_of_packages(folder: Path) -> bool:
    return any(part in ("site-packages", "dist-packages") for part in folder.parts) or folder in (
        Path(path).resolve() for path in (sys.prefix, sys.base_prefix)
    )


def _is_the_package_itself(path: Path, name: str) -> bool:
    """Whether the package is installed from this folder, as ``pip install -e`` does."""
    module = sys.modules.get(name)
    if module is not None and getattr(module, "__file__", None):
        return Path(str(module.__file__)).resolve().is_relative_to(path.resolve())
    from importlib.metadata import PackageNotFoundError, distribution

    for name_of_distribution in packages_distributions().get(name, []):
        try:
            text = distribution(name_of_distribution).read_text("direct_url.json") or ""
        except PackageNotFoundError:
            continue
        if path.parent.resolve().as_uri() in text:
            return True
    return False
