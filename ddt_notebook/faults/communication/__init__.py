"""Faults while communication is set up (stage B)."""
