"""The report of the checks before a job runs, and the facts behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from . import codec
from .hosts import HostLink

Verdict = Literal["ok", "warning", "error"]
#: From the best to the worst.
VERDICTS: tuple[Verdict, ...] = ("ok", "warning", "error")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a pre-flight report.

    Attributes
    ----------
    topic
        ``"versions"``, ``"backends"``, ``"environment"``, ``"timeouts"``, ``"network"``,
        ``"resources"``, ``"modules"``, ``"ranks"``, ``"machines"``, ``"hosts"`` or
        ``"connections"``.
    name
        What was checked: ``"gloo"``, ``"open files"``.
    verdict
        ``"ok"``, ``"warning"`` or ``"error"``.
    seen
        What was found.
    meaning
        What that means for a job; empty if ``seen`` already explains it.
    fix
        What to do; empty if nothing has to be done.
    card
        Id of the fault card that explains it; empty without one.
    """

    topic: str
    name: str
    verdict: Verdict
    seen: str
    meaning: str = ""
    fix: str = ""
    card: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """A pre-flight report.

    Attributes
    ----------
    machine
        Name of the machine, or the names of several.
    created
        Wall-clock time, ISO 8601 with offset.
    checks
        The checks, in the order in which they matter to a job.
    facts
        What was found, by topic and name such as ``"versions.torch"``, for comparison with other
        machines.
    links
        The connections between the hosts of a session.
    """

    machine: str
    created: str = ""
    checks: tuple[Check, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    links: tuple[HostLink, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no check has the verdict ``"error"``."""
        return all(check.verdict != "error" for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Plain data; every key is always present."""
        return {
            "ok": self.ok,
            "machine": self.machine,
            "created": self.created,
            "checks": [
                {name: getattr(check, name) for name in Check.__dataclass_fields__}
                for check in self.checks
            ],
            "facts": dict(self.facts),
            "links": codec.to_plain(self.links),
        }

    @classmethod
    def from_json(cls, plain: Any) -> Preflight:
        """The inverse of `to_json`; raises `FormatError` for anything else."""
        if not isinstance(plain, dict) or "machine" not in plain or "checks" not in plain:
            raise codec.FormatError("this is not a pre-flight report (ddt-notebook doctor --json)")
        return codec.from_plain(cls, plain)
