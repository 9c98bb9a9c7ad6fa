"""Reads the Flight Recorder's dumps of a real job as a snapshot."""

from .snapshot import load

__all__ = ["load"]
