"""What is noted on the way through a program, beside the calls that concern other ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

from .trace import Around
from .values import Foreign, Handle, Value


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a line.

    Attributes
    ----------
    what
        ``"save"``, ``"load"``, ``"read pending"`` and so on.
    values
        The values it concerns.
    text
        The expression it concerns, as written.
    around
        The choices and loops around it.
    """

    what: str
    line: int
    values: tuple[Value, ...] = ()
    text: str = ""
    around: tuple[Around, ...] = ()


@dataclass(slots=True)
class Facts:
    """Notes of one walk.

    Attributes
    ----------
    events
        In the order in which they happened.
    made
        Instances of foreign classes: samplers, loaders, wrappers, optimizers.
    handles
        Of asynchronous calls.
    """

    events: list[Event] = field(default_factory=list)
    made: list[Foreign] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)

    def of(self, what: str) -> list[Event]:
        """All events of one kind."""
        return [event for event in self.events if event.what == what]

    def kind(self, *kinds: str) -> list[Foreign]:
        """All foreign instances of these kinds."""
        return [one for one in self.made if one.kind in kinds]
