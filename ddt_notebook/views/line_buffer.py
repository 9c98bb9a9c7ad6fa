"""Splits the text of a rank into lines while it arrives."""

from __future__ import annotations

#: A line without an end is cut here, so that a rank cannot fill the memory.
LONGEST_LINE = 20_000


class LineBuffer:
    """Turns one stream's text, as it arrives, into lines.

    A carriage return moves the next text back to the start of the line, as on a terminal, so only
    the last state of a progress bar remains.
    """

    def __init__(self) -> None:
        self._line = ""
        self._returned = False
        self.rewritten = False

    @property
    def partial(self) -> str:
        """The line that is not finished."""
        return self._line

    def feed(self, text: str) -> list[str]:
        """Add text and take the lines that it finished."""
        finished = []
        *whole, last = text.split("\n")
        for part in whole:
            self._write(part)
            finished.append(self._take())
        self._write(last)
        while len(self._line) > LONGEST_LINE:
            finished.append(self._line[:LONGEST_LINE])
            self._line = self._line[LONGEST_LINE:]
        return finished

    def finish(self) -> list[str]:
        """Return the unfinished rest as a separate line."""
        return [self._take()] if self._line else []

    def _write(self, text: str) -> None:
        # a return only takes effect when something follows: "\r\n" is a plain end of line
        for number, part in enumerate(text.split("\r")):
            if number:
                self._returned = True
            if part:
                if self._returned:
                    self._line, self.rewritten = "", True
                self._returned = False
                self._line += part

    def _take(self) -> str:
        line, self._line = self._line, ""
        self._returned = self.rewritten = False
        return line
