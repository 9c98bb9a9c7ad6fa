"""Faults while packages are built and imported (stage A)."""
