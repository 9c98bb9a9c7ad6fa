"""The base of every exception that ddt_notebook raises on purpose."""

from __future__ import annotations


class DdtError(Exception):
    """An error that a user can act on; its text is one line that explains what to do.

    Every exception class of ddt_notebook derives from it and from the built-in exception that
    fits (`ValueError`, `LookupError`, …), so both can be caught. Arguments of a wrong type or value
    raise plain `TypeError` and `ValueError`, as everywhere in Python.
    """
