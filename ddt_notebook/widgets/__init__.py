"""Panels with buttons, for notebooks."""
