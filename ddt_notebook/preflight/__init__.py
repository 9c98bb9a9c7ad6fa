"""Pre-flight: what can be known before a job runs, as data."""

from .comparing import compare_machines
from .examination import examine

__all__ = ["compare_machines", "examine"]
