"""What was seen: plain, frozen data that travels as JSON. Standard library only."""

from .codec import FormatError
from .collective import Call, Fingerprint
from .errors import DdtError
from .finding import Finding, Fix, Report
from .rank import Position, RankError, RankReport
from .rendezvous import Rendezvous
from .snapshot import Cell, Snapshot

__all__ = [
    "Call",
    "Cell",
    "DdtError",
    "Finding",
    "Fingerprint",
    "Fix",
    "FormatError",
    "Position",
    "RankError",
    "RankReport",
    "Rendezvous",
    "Report",
    "Snapshot",
]
