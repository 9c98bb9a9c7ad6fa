"""Finds texts that every match of a pattern contains.

Python looks for a fixed text many times faster than for a pattern, and most patterns of the
catalogue match no given text: they are not searched for where none of these texts occurs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

#: A shorter text occurs in most lines and excludes none; more texts take as long as the pattern.
_SHORTEST, _MOST = 3, 24
#: Longer texts exclude no more.
_LONG_ENOUGH = 5
_END = ord("\n")
#: The kinds of signs that the end of a line belongs to.
_WITH_END = ("CATEGORY_SPACE", "CATEGORY_NOT_WORD", "CATEGORY_NOT_DIGIT")


def searched(pattern: str) -> tuple[tuple[str, ...], bool]:
    """Return how a pattern can be searched for.

    Returns
    -------
    tuple of str
        Texts of which each match contains at least one; none if there are no such texts.
    bool
        Whether no match goes over the end of a line, as far as that is known.
    """
    parsed = _parsed(pattern)
    found = _of(parsed) or ()
    return found if _is_useful(found) else (), bool(parsed) and not _crosses(parsed)


def lines_with(parts: tuple[str, ...], text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of the lines of a text that contain one of these parts, in order."""
    following = {part: at for part in parts if (at := text.find(part)) >= 0}
    while following:
        first = min(following.values())
        start = text.rfind("\n", 0, first) + 1
        end = text.find("\n", first)
        end = len(text) if end < 0 else end
        yield start, end
        passed = [part for part, at in following.items() if at < end]
        for part in passed:
            at = text.find(part, end)
            if at < 0:
                del following[part]
            else:
                following[part] = at


def _parsed(pattern: str) -> Any:
    """Return what a pattern consists of; nothing if this Python does not tell."""
    try:
        # Private, and only a matter of speed.
        parser = importlib.import_module("re._parser")
    except ImportError:
        return ()
    return parser.parse(pattern)


def _crosses(sequence: Any) -> bool:
    for operation, value in sequence:
        name = str(operation)
        if name == "LITERAL":
            crosses = value == _END
        elif name == "NOT_LITERAL":
            crosses = value != _END
        elif name == "IN":
            crosses = _has_end(value)
        elif name == "BRANCH":
            crosses = any(map(_crosses, value[1]))
        elif name == "SUBPATTERN":
            crosses = _crosses(value[3])
        else:
            crosses = name.endswith("_REPEAT") and _crosses(value[2])
        if crosses:
            return True
    return False


def _has_end(items: Any) -> bool:
    """Whether a set of signs has the end of a line."""
    negated = found = False
    for operation, value in items:
        name = str(operation)
        if name == "NEGATE":
            negated = True
        elif name == "RANGE":
            found |= value[0] <= _END <= value[1]
        else:
            found |= value == _END or str(value) in _WITH_END
    return found != negated


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
