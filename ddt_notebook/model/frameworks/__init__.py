"""The frameworks that the package knows: each is described by one module of this folder.

An installed package can bring another one: an entry point of the group ``ddt_notebook.frameworks``
names its `Description`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import warnings
from collections.abc import Collection, Mapping, Sequence
from importlib import metadata

from ..operations import BARRIERS, OPERATIONS, Operation, operation_of
from ..position import Position
from ..user_code import is_user_code
from .description import AloneBegin, Description, JobBegin, Preparation

__all__ = [
    "AloneBegin",
    "Description",
    "JobBegin",
    "Preparation",
    "asks_to_stop",
    "called_on_first_of_host",
    "described",
    "ends_framework",
    "ends_waits",
    "framework_of",
    "is_barrier",
    "is_meeting",
    "known_frameworks",
    "known_operation",
    "meets_by_tensor",
    "prepared",
    "waits_in",
]

ENTRY_POINTS = "ddt_notebook.frameworks"
_PLAIN = Description(name="", title="torch.distributed", in_ranks="")
#: What forms a process group of torch.
_INIT = "init_process_group"


@functools.cache
def known_frameworks() -> Mapping[str, Description]:
    """The frameworks by their names: ours in the order of their modules, then those installed."""
    found: dict[str, Description] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        one = getattr(importlib.import_module(module.name), "FRAMEWORK", None)
        if isinstance(one, Description):
            found[one.name] = one
    for point in metadata.entry_points(group=ENTRY_POINTS):
        try:
            one = point.load()
        except Exception as error:  # noqa: BLE001  (a broken package must not end our sessions)
            warnings.warn(
                f"the framework {point.name!r} of {point.value} is not known: "
                f"{type(error).__name__}: {error}",
                stacklevel=2,
            )
            continue
        if isinstance(one, Description):
            found.setdefault(one.name, one)
    return found


def described(name: str) -> Description:
    """A framework; for an empty or unknown name, one that is as ``torch.distributed``."""
    return known_frameworks().get(name, _PLAIN) if name else _PLAIN


def prepared() -> dict[str, Preparation]:
    """How a session prepares its ranks, by the names that ``--framework`` takes."""
    known = known_frameworks().values()
    return {one.name: one.preparation for one in known if one.preparation is not None}


def meets_by_tensor(name: str) -> bool:
    """Whether ranks of a framework meet by the name of a tensor; see `Description.by_tensor`."""
    return described(name).by_tensor


def is_meeting(op: str) -> bool:
    """Whether ranks find each other in this call, by what each was told of the others."""
    return op == _INIT or op in _meetings()


def waits_in(stack: Sequence[Position]) -> str:
    """The operation inside which a stack ends, of torch or a framework; empty if it is in none.

    Of a framework, the name of the function; else as `operations.operation_of`.
    """
    return _framework_at(stack)[1] or operation_of(stack)


def framework_of(stack: Sequence[Position]) -> str:
    """The title of the framework in whose functions a stack waits; empty for torch and for none."""
    return _framework_at(stack)[0]


def _framework_at(stack: Sequence[Position]) -> tuple[str, str]:
    last = max((at for at, frame in enumerate(stack) if is_user_code(frame.file)), default=-1)
    for frame in stack[last + 1 :]:
        for one in known_frameworks().values():
            for file, functions in one.waits_in.items():
                if frame.file.endswith(file) and frame.function in functions:
                    return one.title, frame.function
    return "", ""


def ends_waits(error: str) -> bool:
    """Whether operations of a framework raise this type; see `Description.failures`."""
    return error in _failures()


def asks_to_stop(op: str) -> bool:
    """Whether a rank asks a trainer to end its loop by this call; see `Description.stops`."""
    return op in _stops()


def ends_framework(op: str) -> str:
    """The title of the framework that a rank ends on all ranks by this call; empty for others.

    See `Description.ends`.
    """
    return _ends().get(op, "")


def called_on_first_of_host(method: str, bases: Collection[str]) -> str:
    """The title of the library that calls a method on the first rank of each host only, if any.

    Parameters
    ----------
    bases
        The classes from which the method's class derives.
    """
    for one in known_frameworks().values():
        if any(method in one.first_of_host.get(base, ()) for base in bases):
            return one.title
    return ""


def known_operation(op: str) -> Operation | None:
    """The operation of torch or a framework with this name; None for graphs and what is unknown."""
    return OPERATIONS.get(op) or _operations().get(op)


def is_barrier(op: str) -> bool:
    """Whether ranks only wait for each other in this collective, of torch or a framework."""
    return op in BARRIERS or ((own := _operations().get(op)) is not None and own.payload is None)


@functools.cache
def _meetings() -> frozenset[str]:
    return frozenset().union(*(one.meetings for one in known_frameworks().values()))


@functools.cache
def _stops() -> frozenset[str]:
    return frozenset().union(*(one.stops for one in known_frameworks().values()))


@functools.cache
def _ends() -> dict[str, str]:
    return {op: one.title for one in known_frameworks().values() for op in one.ends}


@functools.cache
def _failures() -> frozenset[str]:
    return frozenset().union(*(one.failures for one in known_frameworks().values()))


@functools.cache
def _operations() -> dict[str, Operation]:
    known = known_frameworks().values()
    return {name: op for one in known for name, op in one.operations.items()}
