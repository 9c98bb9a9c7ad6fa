"""Opens a view of a run by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import api
from ..host.errors import SessionError
from ..views.bundle import Displayable, Message
from ..views.stacks import StacksView

if TYPE_CHECKING:
    from ..host.result import RunResult

#: Every view of a run, by the name under which %ddt_show knows it.
VIEWS: dict[str, Callable[[RunResult], Displayable]] = {
    "stacks": lambda run: StacksView(run.snapshot),
    "collectives": api.collectives,
    "timeline": api.timeline,
    "placement": api.placement,
    "partition": api.partition,
    "parity": api.parity,
    "memory": api.memory,
}


def look(name: str, run: RunResult | None) -> Displayable:
    """A view of a run, or the reason for which there is none."""
    if run is None:
        return Message("nothing has run on ranks yet")
    try:
        return VIEWS[name](run)
    except (SessionError, ValueError) as error:
        return Message(f"{name}: {error}")
