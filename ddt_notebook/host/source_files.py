"""The texts of the user's files that ranks have imported."""

from __future__ import annotations

import tokenize
from collections.abc import Iterable
from pathlib import Path

from ..model import SourceFile

#: A longer file is left out, and files together are limited, so that a saved run stays small.
_LONGEST_FILE, _LARGEST_SUM = 256 * 1024, 512 * 1024


class SourceFiles:
    """The texts of files as they were when a rank first ran them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, str]] = {}  # time of the last change, text

    def forget(self) -> None:
        """Forget all files: the ranks are new."""
        self._known.clear()

    def note(self, paths: Iterable[str]) -> None:
        """Read files that a rank has run."""
        for path in paths:
            if path not in self._known:
                text = _read(path)
                if text is not None:
                    self._known[path] = text

    def of(self, first: Iterable[str]) -> tuple[SourceFile, ...]:
        """The files in the order of importance, as far as the limit allows.

        Parameters
        ----------
        first
            Files that positions of the run name.
        """
        first = [path for path in dict.fromkeys(first) if not path.startswith(("cell[", "<"))]
        self.note(first)
        found, left = [], _LARGEST_SUM
        for path in dict.fromkeys([*first, *self._known]):
            time, text = self._known.get(path, (0, ""))
            if text and len(text) <= left:
                left -= len(text)
                changed = _changed_at(path) != time
                found.append(SourceFile(path=path, source=text, changed=changed))
        return tuple(found)


def _changed_at(path: str) -> int:
    """When a file was last changed; 0 if that is not known."""
    try:
        return Path(path).stat().st_mtime_ns
    except (OSError, ValueError):  # such as a name with a null byte, which no file has
        return 0


def _read(path: str) -> tuple[int, str] | None:
    """When a file was last changed, and its text; None for a file that is not Python source."""
    time = _changed_at(path)
    try:
        if not path.endswith(".py") or Path(path).stat().st_size > _LONGEST_FILE:
            return None
        with tokenize.open(path) as opened:
            return time, opened.read()
    except (OSError, SyntaxError, ValueError):
        return None
