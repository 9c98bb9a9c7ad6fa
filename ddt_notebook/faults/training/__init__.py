"""Faults while training and evaluating (stage D)."""
