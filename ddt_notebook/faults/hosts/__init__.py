"""Faults of several hosts, one a module. The study did not separate them from the others."""
