"""The frameworks that ranks know."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...model.frameworks import Description, known_frameworks
from ..probes.calls import CallLog
from .framework import Framework

if TYPE_CHECKING:
    from ...model import Observation
    from ...model.agreements import RankAgreements
    from ..probes.pieces import Piece


def make(name: str) -> Framework:
    """What acts in this rank for a framework."""
    return _made(known_frameworks()[name])


def _made(description: Description) -> Framework:
    module, _, name = description.in_ranks.partition(":")
    made = getattr(importlib.import_module(module), name)()
    assert isinstance(made, Framework)
    return made


#: Those that train through ``torch.distributed``; a session prepares its ranks for any other.
FRAMEWORKS: list[Framework] = [
    _made(one) for one in known_frameworks().values() if one.preparation is None
]


def watch(calls: CallLog) -> None:
    """Prepare to record what each framework does; see `Framework.watch`."""
    for framework in FRAMEWORKS:
        framework.watch(calls)


def add(framework: Framework) -> None:
    """Also observe a framework for which no session prepares this process."""
    FRAMEWORKS.append(framework)


def install(calls: CallLog) -> None:
    """Prepare to change what each framework does, too; see `Framework.install`."""
    watch(calls)
    for framework in FRAMEWORKS:
        framework.install()


def begin_script() -> None:
    """Forget what an earlier script has left in this process."""
    for framework in FRAMEWORKS:
        framework.begin_script()


def begin_run() -> None:
    """Begin to observe another cell or script."""
    for framework in FRAMEWORKS:
        framework.begin_run()


def observed(rank: int, namespace: Mapping[str, Any]) -> Observation | None:
    """What the frameworks observed since the run began; None if they observed nothing."""
    found: Observation | None = None
    for framework in FRAMEWORKS:
        seen = framework.observed(rank, namespace)
        if seen is not None:
            found = seen if found is None else found.updated(seen)
    return found


def given(rank: int) -> RankAgreements | None:
    """What the framework in use was given so far; see `Framework.given`."""
    return next(filter(None, (framework.given(rank) for framework in FRAMEWORKS)), None)


def parts(module: Any) -> dict[int, str]:
    """Which part of a whole each parameter or buffer is; see `Framework.parts`."""
    return {key: part for one in FRAMEWORKS for key, part in one.parts(module).items()}


def pieces(module: Any) -> tuple[str, list[Piece]] | None:
    """What this rank holds of a module that a framework divides; see `Framework.pieces`."""
    return next(filter(None, (framework.pieces(module) for framework in FRAMEWORKS)), None)


def free() -> None:
    """End this rank's wait in a framework's own connections; see `Framework.free`."""
    for framework in FRAMEWORKS:
        framework.free()


def forget_groups() -> list[str]:
    """Forget the groups that have ended; returns notes for the user."""
    return [note for framework in FRAMEWORKS for note in framework.forget_groups()]


def take_notes() -> list[str]:
    """Notes for the user since the last call."""
    return [note for framework in FRAMEWORKS for note in framework.take_notes()]
