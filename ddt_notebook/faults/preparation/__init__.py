"""Faults while data and model are prepared (stage C)."""
