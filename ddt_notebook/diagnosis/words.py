"""Wording that findings and views share."""

from __future__ import annotations

from collections.abc import Iterable

#: From this many consecutive ranks on, a list is written as a range.
_RANGE_FROM = 3


def rank_list(ranks: Iterable[int]) -> str:
    """``0, 2, 3``; three or more in a row become a range: ``0-3, 6``."""
    numbers = sorted(set(ranks))
    parts: list[str] = []
    start = 0
    while start < len(numbers):
        end = start
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        if end - start + 1 >= _RANGE_FROM:
            parts.append(f"{numbers[start]}-{numbers[end]}")
        else:
            parts.extend(map(str, numbers[start : end + 1]))
        start = end + 1
    return ", ".join(parts)


def ranks_text(ranks: Iterable[int]) -> str:
    """``rank 1`` or ``ranks 0, 2, 3``."""
    numbers = set(ranks)
    return f"rank{'' if len(numbers) == 1 else 's'} {rank_list(numbers)}"


def agree(ranks: Iterable[int], one: str, several: str) -> str:
    """The verb form that fits the number of ranks: ``waits`` or ``wait``."""
    return one if len(set(ranks)) == 1 else several


def count(number: int, noun: str) -> str:
    """``1 group``, ``12 collectives``, ``2,000 calls``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seconds(value: float) -> str:
    """``2.1 s``; whole seconds from ten on."""
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"


def listing(items: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    parts = list(items)
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
