"""A line of a log with the rank or the file that it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from ddt_notebook.model.log_facts import LogLine

#: Characters of a line that are quoted.
_EXCERPT = 240
#: A rank, or the name of a file whose lines no rank is named for.
Source = int | str


@dataclass(slots=True)
class Origin:
    """A line, and where it comes from.

    Attributes
    ----------
    number, rank, text
        As in `Line`.
    file
        Name of its file; empty for a single log.
    order
        Its place among all lines that were read. It is the order of time within a file only.
    """

    number: int
    rank: int | None
    text: str
    file: str
    order: int

    @property
    def source(self) -> Source:
        """The rank; the file without one."""
        return self.file if self.rank is None else self.rank

    def quoted(self) -> LogLine:
        """Return the line as a report quotes it."""
        text = " ".join(self.text[: 2 * _EXCERPT].split())
        if len(text) > _EXCERPT:
            text = f"{text[: _EXCERPT - 1]}…"
        return LogLine(number=self.number, text=text, rank=self.rank, file=self.file)
