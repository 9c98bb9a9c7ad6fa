"""A debugging assistant for distributed training in a Jupyter notebook."""

from __future__ import annotations

from . import hidden_modules as _hidden_modules

try:
    import importlib
    from typing import TYPE_CHECKING, Any

    from .views.registry import VIEWS as _VIEWS
except Exception as error:
    if _advice := _hidden_modules.advice():
        raise ImportError(_advice) from error
    raise

if TYPE_CHECKING:
    from .api import attach as attach
    from .api import compare as compare
    from .api import diagnose as diagnose
    from .api import diagnose_dumps as diagnose_dumps
    from .api import diagnose_text as diagnose_text
    from .api import estimate as estimate
    from .api import explain as explain
    from .api import export_report as export_report
    from .api import fault_cards as fault_cards
    from .api import lint as lint
    from .api import replay as replay
    from .api import single_rank as single_rank
    from .api import taxonomy as taxonomy
    from .classroom.exercise import UnknownExercise as UnknownExercise
    from .faults import FaultCard as FaultCard
    from .faults import UnknownCard as UnknownCard
    from .host.errors import SessionError as SessionError
    from .host.run_result import RunResult as RunResult
    from .host.session import Session as Session
    from .jobs.processes import CannotAttach as CannotAttach
    from .jobs.replay import CannotReplay as CannotReplay
    from .magics.failure import CellFailed as CellFailed
    from .model import DdtError as DdtError
    from .model import Fact as Fact
    from .model import Finding as Finding
    from .model import Fix as Fix
    from .model import FormatError as FormatError
    from .model import Observation as Observation
    from .model import Place as Place
    from .model import Report as Report
    from .model import Snapshot as Snapshot
    from .preflight.doctor import doctor as doctor
    from .symptoms import UnknownSymptom as UnknownSymptom
    from .wire.plain_unpickler import CannotTravel as CannotTravel

__version__ = "0.1.0"

#: Loaded on first use, so that ``import ddt_notebook`` is fast; views come from their registry.
_PUBLIC = {
    "CannotAttach": ".jobs.processes",
    "CannotReplay": ".jobs.replay",
    "CannotTravel": ".wire.plain_unpickler",
    "CellFailed": ".magics.failure",
    "DdtError": ".model",
    "FaultCard": ".faults",
    "Fact": ".model",
    "Finding": ".model",
    "Fix": ".model",
    "FormatError": ".model",
    "Observation": ".model",
    "Place": ".model",
    "Report": ".model",
    "Session": ".host.session",
    "SessionError": ".host.errors",
    "RunResult": ".host.run_result",
    "Snapshot": ".model",
    "UnknownCard": ".faults",
    "UnknownExercise": ".classroom.exercise",
    "UnknownSymptom": ".symptoms",
    "attach": ".api",
    "compare": ".api",
    "diagnose": ".api",
    "doctor": ".preflight.doctor",
    "diagnose_dumps": ".api",
    "diagnose_text": ".api",
    "estimate": ".api",
    "explain": ".api",
    "export_report": ".api",
    "fault_cards": ".api",
    "lint": ".api",
    "replay": ".api",
    "single_rank": ".api",
    "taxonomy": ".api",
}

__all__ = [
    "__version__",
    "load_ipython_extension",
    "unload_ipython_extension",
    *_PUBLIC,
    *_VIEWS,
]


def __getattr__(name: str) -> Any:
    if name not in _VIEWS and name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name in _VIEWS:
            value = importlib.import_module(".api", __name__).view_function(name)
        else:
            value = getattr(importlib.import_module(_PUBLIC[name], __name__), name)
    except Exception as error:
        if advice := _hidden_modules.advice():
            raise ImportError(advice) from error
        raise
    if advice := _hidden_modules.held():
        raise ImportError(advice)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics (``%load_ext ddt_notebook``) and start the ranks' parent process."""
    from .magics.extension import load_ipython_extension as load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics and stop the session."""
    from .magics.extension import unload_ipython_extension as unload

    unload(shell)
