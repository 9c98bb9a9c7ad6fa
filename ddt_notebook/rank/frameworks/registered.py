"""The frameworks that ranks know."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks import known_frameworks
from ..after_import import AfterImport
from ..probes.calls import CallLog
from ..user_signals import let_through
from . import unprepared
from .framework import Framework

if TYPE_CHECKING:
    from ...model import Observation
    from ...model.agreements import RankAgreements
    from ...wire.messages import RankSpec
    from ..probes.pieces import Piece


def make(name: str) -> Framework:
    """What acts in this rank for a framework."""
    return _made(known_frameworks()[name].in_ranks)


def _made(in_ranks: str, *arguments: Any) -> Framework:
    module, _, name = in_ranks.partition(":")
    made = getattr(importlib.import_module(module), name)(*arguments)
    assert isinstance(made, Framework)
    return made


#: Those that train through ``torch.distributed``; a session prepares its ranks for any other.
FRAMEWORKS: list[Framework] = [
    _made(one.in_ranks) for one in known_frameworks().values() if one.preparation is None
]


def watch(calls: CallLog) -> None:
    """Prepare to record what each framework does; see `Framework.watch`."""
    for framework in FRAMEWORKS:
        framework.watch(calls)


def watch_job(calls: CallLog, become_rank: Callable[..., object]) -> None:
    """Prepare to record what each framework does in a process of a job.

    Parameters
    ----------
    calls
        See `Framework.watch`.
    become_rank
        Is called when the process becomes a rank of a framework that does not form groups of
        ``torch.distributed``, with what a rank would give ``init_process_group``, and with the
        name of the framework as ``framework``.
    """
    watch(calls)
    for one in known_frameworks().values():
        if one.in_jobs is not None:
            become = functools.partial(become_rank, framework=one.name)
            begin = functools.partial(_begin_in_job, one.in_jobs.in_ranks, calls, become)
            AfterImport(one.in_jobs.after, begin).install()


def _begin_in_job(
    in_ranks: str, calls: CallLog, become_rank: Callable[..., object], _: ModuleType
) -> None:
    try:
        framework = _made(in_ranks, become_rank)
        framework.watch(calls)
        add(framework)
    except Exception as error:  # noqa: BLE001  (it would end the import)
        let_through(error)
        calls.problem = f"{type(error).__name__}: {error}"


def add(framework: Framework) -> None:
    """Also observe a framework for which no session prepares this process."""
    FRAMEWORKS.append(framework)


def install(calls: CallLog, spec: RankSpec) -> None:
    """Prepare to change what each framework does, too; see `Framework.install`.

    A framework for which this rank is not prepared is refused.
    """
    watch(calls)
    unprepared.refuse(spec.framework, spec.world_size)
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
