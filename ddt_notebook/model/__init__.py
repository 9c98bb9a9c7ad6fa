"""What was seen: plain, frozen data that travels as JSON. Standard library only."""

from .collective import Call, Fingerprint
from .finding import Finding, Fix, Report
from .rank import Position, RankError, RankReport
from .rendezvous import Rendezvous
from .snapshot import Cell, Snapshot

__all__ = [
    "Call",
    "Cell",
    "Finding",
    "Fingerprint",
    "Fix",
    "Position",
    "RankError",
    "RankReport",
    "Rendezvous",
    "Report",
    "Snapshot",
]
