"""Errors name magics in the assistant, and the Python API elsewhere."""

from __future__ import annotations

from ddt_notebook.assistant.errors import in_magics
from ddt_notebook.host.errors import SessionError
from ddt_notebook.runs import NotRecorded


def test_the_error_of_a_stopped_session_names_a_magic() -> None:
    error = SessionError("it is stopped", "start a new Session", reason="stopped")
    assert "Session" in str(error)
    assert "%ddt_start" in in_magics(error)
    assert "Session" not in in_magics(error)


def test_the_error_of_a_view_that_was_not_recorded_names_a_magic() -> None:
    error = NotRecorded("parity")
    assert "session.run" in str(error)
    assert "%%ddt_debug" in in_magics(error)
    assert "session.run" not in in_magics(error)


def test_other_errors_are_not_changed() -> None:
    assert in_magics(ValueError("there is no answer 7")) == "there is no answer 7"
