"""The Flight Recorder's dumps of a real job, read as a snapshot."""

from .snapshot import load

__all__ = ["load"]
