"""Loads and unloads the extension (``%load_ext ddt_notebook``)."""

from __future__ import annotations

import sys
from typing import NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from ..host import launcher
from ..host.session import active
from ..output_encoding import never_fail
from .classroom import ClassroomMagics
from .config import DDT
from .debugging import DebugMagics
from .doctor import DoctorMagics
from .live_panel import LiveMagics
from .loading import LoadMagics
from .magics import DDTMagics
from .misspelt import MisspeltMagics

_WITH_DEFAULTS = (DDTMagics, DebugMagics, ClassroomMagics)
_WITHOUT = (DoctorMagics, LiveMagics, LoadMagics)
_misspelt: dict[InteractiveShell, MisspeltMagics] = {}


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics, and start the fork server in the background."""
    never_fail(sys.stdout, sys.stderr)
    defaults = DDT(parent=shell)
    shell.configurables.append(defaults)  # type: ignore[arg-type]  # IPython's own hint is wrong
    shell.register_magics(
        *(magics(shell, defaults) for magics in _WITH_DEFAULTS),
        *(magics(shell) for magics in _WITHOUT),
    )
    _misspelt[shell] = MisspeltMagics(shell, {kind: _names(kind) for kind in ("line", "cell")})
    _misspelt[shell].begin()
    for name in _names("cell"):  # below another line, IPython takes ``%%ddt`` for a line magic
        shell.magics_manager.register_function(_Misplaced(name), "line", f"%{name}")
    if active.get() is None:  # else the ranks may be on other hosts
        launcher.warm()


def _names(kind: str) -> list[str]:
    """The names of the magics of a kind, ``"line"`` or ``"cell"``."""
    return [name for magics in (*_WITH_DEFAULTS, *_WITHOUT) for name in magics.magics[kind]]


class _Misplaced:
    """The error of ``%%ddt`` if it is not the first line of its cell."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, line: str) -> NoReturn:
        raise UsageError(
            f"%%{self._name} must be the first line of its cell: "
            "move it above everything else, including comments and imports"
        )


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Stop the session and take the magics away."""
    session = active.get()
    if session is not None:
        session.stop()
        print(f"ddt_notebook: the session of {session.world_size} ranks was stopped")
    active.keep(None)
    registry = shell.magics_manager.registry
    live = registry.pop(LiveMagics.__name__, None)
    if isinstance(live, LiveMagics):
        live.end()
    for magics in (*_WITH_DEFAULTS, *_WITHOUT):
        for kind, names in magics.magics.items():
            for name in names:
                shell.magics_manager.magics[kind].pop(name, None)
    if shell in _misspelt:
        _misspelt.pop(shell).end()
    for name in _names("cell"):
        shell.magics_manager.magics["line"].pop(f"%{name}", None)
    shell.configurables[:] = [c for c in shell.configurables if not isinstance(c, DDT)]
