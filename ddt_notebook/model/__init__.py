"""The observed data: plain, frozen dataclasses that travel as JSON. Standard library only."""

from .codec import FormatError
from .collective import Call, Fingerprint
from .errors import DdtError
from .finding import Fact, Finding, Fix, Report
from .observation import Observation
from .position import Place, Role
from .rank import Position, RankError, RankReport
from .rendezvous import Rendezvous
from .snapshot import Cell, Snapshot, SourceFile

__all__ = [
    "Call",
    "Cell",
    "DdtError",
    "Fact",
    "Finding",
    "Fingerprint",
    "Fix",
    "FormatError",
    "Observation",
    "Place",
    "Position",
    "RankError",
    "RankReport",
    "Rendezvous",
    "Report",
    "Role",
    "Snapshot",
    "SourceFile",
]
