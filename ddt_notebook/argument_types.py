"""Types of arguments that the magics and the commands share; they go to argparse's ``type``."""

from __future__ import annotations

import argparse
import re


def seconds(text: str) -> float:
    """A time limit from ``"20"`` or ``"1.5"``."""
    try:
        number = float(text.removesuffix("s"))
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write seconds, like 20 or 1.5")
    return number


def whole_number(text: str) -> int:
    """A number of ranks."""
    return _number(text, "ranks")


def number_of_hosts(text: str) -> int:
    """A number of hosts."""
    return _number(text, "hosts")


def _number(text: str, of: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of {of}; write 1 or more")
    return int(text)
