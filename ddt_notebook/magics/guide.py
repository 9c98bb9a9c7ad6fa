"""The guided tree behind ``%ddt_debug``: keeps the answers between two calls of the magic."""

from __future__ import annotations

from IPython.core.error import UsageError

from ..diagnose.known import begin
from ..diagnose.tree import Interview
from ..model import Snapshot
from ..views.bundle import Displayable, Message
from ..views.interview import InterviewView

UNKNOWN = ("unknown", "?")
WORDS = (*UNKNOWN, "ask", "undo", "restart", "leave")


class Guide:
    """One interview at a time."""

    def __init__(self) -> None:
        self._interview: Interview | None = None

    def open(self, snapshot: Snapshot | None) -> InterviewView:
        """Begin, with what the last run tells already answered."""
        return self._show(begin(snapshot))

    @staticmethod
    def understands(word: str) -> bool:
        """Whether a word belongs to the interview and is no text to be diagnosed."""
        return word in WORDS or word.isdigit()

    def say(self, word: str, snapshot: Snapshot | None) -> Displayable:
        """Take an answer, or ``undo``, ``restart``, ``leave``; ``ask`` begins anew.

        Raises
        ------
        UsageError
            If nothing was asked, or there is no such answer.
        """
        if word == "ask" or (word == "restart" and self._interview is not None):
            return self.open(snapshot)
        if self._interview is None:
            raise UsageError("ddt_debug: nothing was asked; %ddt_debug ask begins")
        if word == "leave":
            self._interview = None
            return Message("the questions are put away; %ddt_debug ask begins anew")
        if word == "undo":
            return self._show(self._interview.without_last())
        try:
            return self._show(self._interview.answered(None if word in UNKNOWN else int(word) - 1))
        except ValueError as error:
            raise UsageError(f"ddt_debug: {error}; undo takes the last answer back") from error

    def _show(self, interview: Interview) -> InterviewView:
        self._interview = interview
        return InterviewView(interview)
