"""Decides which files are the user's code and which belong to Python or installed libraries."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import site
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from .position import Position

#: Code that was generated at run time, but not what a user typed at a prompt.
_GENERATED = re.compile(r"<(?!stdin>|ipython-input)")
#: Where Python and its packages are installed on any machine: a path may come from another one.
_INSTALLED = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]"
    r"|[/\\]lib(?:64)?[/\\]python\d"
    r"|[/\\]__autograph_generated_file\w*\.py$"  # TensorFlow's copy of a function
    r"|[/\\]ddt_notebook[/\\](?:host|magics|model|probes|rank|session|wire)[/\\]"
)


@functools.lru_cache(maxsize=4096)
def is_user_code(file: str) -> bool:
    """Whether a file is the user's own: a cell, or a file outside Python and installed libraries.

    Parameters
    ----------
    file
        The file name of a code object: ``"cell[3]"``, a path of this or another machine, or a name
        such as ``"<string>"`` of code that was generated at run time.
    """
    if not file or _GENERATED.match(file):
        return False
    return not (
        _INSTALLED.search(file) or file.startswith(_library_folders()) or _was_installed(file)
    )


#: A file of an installed package; frames of torch and of this package do not help a reader.
_PACKAGE_FILE = re.compile(
    r".*[/\\](?:site|dist)-packages[/\\](?!(?:torch|ddt_notebook)[/\\])(.+)", re.DOTALL
)


@functools.lru_cache(maxsize=4096)
def package_file(file: str) -> str | None:
    """``accelerate/utils/operations.py`` for a file of an installed package other than torch."""
    found = _PACKAGE_FILE.match(file)
    return found[1].replace("\\", "/") if found else None


def users_line(stack: Sequence[Position]) -> Position | None:
    """The innermost line of the user's code in a stack, outermost frame first."""
    return next((frame for frame in reversed(stack) if is_user_code(frame.file)), None)


@functools.cache
def _library_folders() -> tuple[str, ...]:
    """Python's own modules, the folders for packages, torch (which may be a build), this package.

    ``sysconfig`` and ``site`` give the first two.
    """
    paths = sysconfig.get_paths()
    found = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += site.getsitepackages()
    if user := site.getusersitepackages():
        found.append(user)
    torch = importlib.util.find_spec("torch")
    found += (torch.submodule_search_locations or ()) if torch is not None else ()
    found.append(str(Path(__file__).parents[1]))
    return tuple({folder.rstrip(os.sep) + os.sep for folder in found})


def _was_installed(file: str) -> bool:
    """Whether a file was installed to a folder of ``sys.path``, as by ``pip install --target``."""
    return any(
        _has_installed(folder, file[len(folder) :].lstrip(os.sep).partition(os.sep)[0])
        for folder in sys.path
        if folder and file.startswith(folder.rstrip(os.sep) + os.sep)
    )


@functools.lru_cache(maxsize=1024)
def _has_installed(folder: str, name: str) -> bool:
    """Whether a distribution that was installed to a folder lists a module or package there."""
    try:
        return any(
            re.search(
                rf"^{re.escape(name)}[/,]", record.read_text("utf-8", "replace"), re.MULTILINE
            )
            for record in Path(folder).glob("*.dist-info/RECORD")
        )
    except OSError:
        return False
