"""Mistakes and limits that a user can act on; each text is one line that says what to do."""

from __future__ import annotations

from ddt_notebook.model.errors import DdtError


class SessionError(DdtError, RuntimeError):
    """The session cannot do what was asked; its text says why and what to do instead."""
