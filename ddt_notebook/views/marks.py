"""Names by which views find each other's elements that show the same collective or line.

A mark is part of an element's class, which JupyterLab's sanitizer keeps. It holds no foreign text.
"""

from __future__ import annotations

import zlib

from ..model import Position


def of_call(group: str, sequence: int) -> str:
    """The mark of a collective."""
    return _mark(f"{group}\0{sequence}")


def of_line(where: Position) -> str:
    """The mark of a line of the program."""
    return _mark(f"{where.file}\0{where.line}")


def role(mark: str) -> str:
    """The role for `html.tag` of an element that shows what has a mark."""
    return f"at-{mark}"


def _mark(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'replace')):08x}"
