"""A fault that only several hosts can have, and the check that its card is complete."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from ddt_notebook.symptoms import loader as taxonomy

from .card import Advice, InvalidCard, Reference

_PARAGRAPHS = ("sees", "why", "cluster")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HostCard:
    """A fault of two hosts, ``node1`` and ``node2``, that can be produced, found and repaired.

    Attributes
    ----------
    id, title, symptoms, sees, why, cluster, fixes, references, apart
        As in `FaultCard`.
    commands
        What produces it: commands of a shell on ``node2``, as root. ``{node1}`` and ``{node2}``
        stand for the addresses, ``{names}`` for the file of host names.
    undo
        Commands that end it; empty if the host cannot come back.
    agent
        What stands before the command of the agent on ``node2``, if it must start differently.
    cell
        A cell in which it shows; empty if it shows in no result.
    cause
        The cause that the finding about this cell names; empty if the finding does not know it.
    check
        How the name of the doctor's check begins that finds it; empty if there is none.
    bandwidth
        Whether the doctor has to measure the bandwidth for that.
    """

    id: str
    title: str
    symptoms: tuple[str, ...]
    sees: str
    why: str
    cluster: str
    fixes: tuple[Advice, ...]
    references: tuple[Reference, ...]
    apart: Mapping[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    agent: str = ""
    cell: str = ""
    cause: str = ""
    check: str = ""
    bandwidth: bool = False

    def __post_init__(self) -> None:
        for name in _PARAGRAPHS:
            object.__setattr__(self, name, " ".join(getattr(self, name).split()))
        object.__setattr__(self, "cell", textwrap.dedent(self.cell).strip("\n"))
        problems = list(self._problems())
        if problems:
            raise InvalidCard(f"card {self.id!r}: {'; '.join(problems)}")

    def __repr__(self) -> str:
        return f"<HostCard {self.id}: {self.title}>"

    @property
    def symptom(self) -> str:
        """Code of the usual symptom."""
        return self.symptoms[0]

    def _problems(self) -> list[str]:
        for code in self.symptoms:
            taxonomy.symptom(code)  # raises if there is no such code
        found = [
            f"{name!r} explains nothing" for name in _PARAGRAPHS if len(getattr(self, name)) < 60
        ]
        if not self.commands and not self.agent:
            found.append("nothing produces it")
        if not self.check and not self.cause:
            found.append("nothing finds it")
        if not self.symptoms or not self.fixes or not self.references:
            found.append("it needs a symptom, a fix and a reference")
        known = taxonomy.fix_patterns()
        return found + [
            f"no fix pattern {a.pattern!r}" for a in self.fixes if a.pattern not in known
        ]
