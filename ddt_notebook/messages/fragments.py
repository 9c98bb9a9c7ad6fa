"""Finds texts that every match of a pattern contains.

Python looks for a fixed text many times faster than for a pattern, and most patterns of the
catalogue match no given text: they are not searched for where none of these texts occurs.
"""

from __future__ import annotations

import importlib
from typing import Any

#: A shorter text occurs in most lines and excludes none; more texts take as long as the pattern.
_SHORTEST, _MOST = 3, 24
#: Longer texts exclude no more.
_LONG_ENOUGH = 5


def fragments(pattern: str) -> tuple[str, ...]:
    """Return texts of which each match contains at least one; none if there are no such texts."""
    try:
        # Private, and only a matter of speed.
        parser = importlib.import_module("re._parser")
    except ImportError:
        return ()
    found = _of(parser.parse(pattern)) or ()
    return found if _is_useful(found) else ()


def _is_useful(found: tuple[str, ...]) -> bool:
    return 0 < len(found) <= _MOST and min(map(len, found)) >= _SHORTEST


def _of(sequence: Any) -> tuple[str, ...] | None:
    """Return the best such texts of what has to match in sequence, None without any."""
    candidates: list[tuple[str, ...]] = []
    run = ""
    for operation, value in [*sequence, ("END", None)]:
        name = str(operation)
        if name == "LITERAL":
            run += chr(value)
            continue
        if run:
            candidates.append((run,))
            run = ""
        if inner := _inside(name, value):
            candidates.append(inner)
    useful = [one for one in candidates if _is_useful(one)]
    return max(useful or candidates, key=_worth, default=None)


def _inside(name: str, value: Any) -> tuple[str, ...] | None:
    """Return the texts of a group, of alternatives, or of what is repeated at least once."""
    if name == "SUBPATTERN":
        return _of(value[3])
    if name == "BRANCH":
        parts = [_of(branch) for branch in value[1]]
        if any(part is None for part in parts):
            return None
        return tuple(dict.fromkeys(text for part in parts for text in part or ()))
    if name in ("MAX_REPEAT", "MIN_REPEAT") and value[0] >= 1:
        return _of(value[2])
    return None


def _worth(found: tuple[str, ...]) -> tuple[int, int]:
    return min(*map(len, found), _LONG_ENOUGH), -len(found)
