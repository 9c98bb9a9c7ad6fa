"""Recognises an exception by its type, its text and the place where it was raised."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddt_notebook.model import Call, RankError
from ddt_notebook.model.finding import Confidence


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an exception means.

    Attributes
    ----------
    symptom, cause
        A code of the taxonomy, and the id of a cause.
    message
        The id of its entry in the catalogue of messages, if its advice is that of the entry.
    """

    symptom: str
    cause: str | None
    confidence: Confidence = "certain"
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Pattern:
    """A symptom and a cause, recognised by the type, the text and the calls around.

    Attributes
    ----------
    symptom, cause
        What the exception means.
    text, types, ops, files
        Regular expressions that must all match: the message, the type's name, the call with the
        functions on the stack, and the path or the code of a line on the stack, if the stack is
        known.
    seen
        True if the pattern needs a known stack.
    confidence
        ``"likely"`` if the words have more than one cause.
    """

    symptom: str
    cause: str | None
    text: str = ""
    types: str = ""
    ops: str = ""
    files: str = ""
    seen: bool = False
    confidence: Confidence = "certain"

    def fits(self, error: RankError, call: Call | None) -> bool:
        """Whether an exception fits the pattern."""
        return (
            bool(re.search(self.types, error.type))
            and bool(re.search(self.text, error.message))
            and bool(re.search(self.ops, _operation(error, call)) if self.ops else True)
            and self._on_stack(error)
        )

    def _on_stack(self, error: RankError) -> bool:
        if not error.frames:
            return not self.seen
        lines = (f"{frame.file} {frame.code}" for frame in error.frames)
        return not self.files or any(re.search(self.files, line) for line in lines)


def _operation(error: RankError, call: Call | None) -> str:
    """Return the call in which it was raised and the functions on its stack."""
    return " ".join([call.op if call else "", *(frame.function for frame in error.frames)])
