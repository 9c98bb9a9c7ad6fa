"""Text for streams that cannot encode every character, such as those of an ASCII locale."""

from __future__ import annotations

import codecs
import io
import json
import sys
from typing import Any

#: The name of the error handler, as streams know it.
_HANDLER = "ddt_notebook.similar"
#: What Python sets for standard output, for that of the C locale, and for standard error.
_DEFAULTS = ("strict", "surrogateescape", "backslashreplace")
#: ASCII characters that look or read like the signs of reports and views.
_SIMILAR = {
    "…": "...", "·": "-", "×": "x", "✖": "x", "✓": "v", "▲": "!", "µ": "u", "│": "|", "⋮": ":",
    "≤": "<=", "≥": ">=", "≠": "!=", "→": "->", "‖": "||", "»": ">>", "«": "<<", "▸": ">",
    "◀": "<", "▶": ">", "○": "o", "●": "*", "■": "#", "“": '"', "”": '"', "’": "'", "‘": "'",
    "↑": "^", "↓": "v", "—": "-", "–": "-", "−": "-", "─": "-", " ": " ",
    **dict.fromkeys("█▓", "#"), **dict.fromkeys("▒▇▆▅", "="), **dict.fromkeys("░▄▃▂▁", "."),
}  # fmt: skip


def _similar(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_SIMILAR.get(sign, "?") for sign in missing), error.end


codecs.register_error(_HANDLER, _similar)


def never_fail(*streams: object) -> None:
    """Make streams show similar characters instead of those that they cannot encode.

    What a user has set (``PYTHONIOENCODING=ascii:replace``) stays, and so do streams of other
    kinds, such as those of a notebook.
    """
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and stream.errors in _DEFAULTS:
            stream.reconfigure(errors=_HANDLER)


def printable(text: str) -> str:
    """The text as standard output can show it."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.encode("ascii", _HANDLER).decode("ascii")
    return text


def print_json(plain: dict[str, Any] | list[Any]) -> None:
    """Print plain data as JSON, with escapes where standard output needs them."""
    text = json.dumps(plain, indent=2, ensure_ascii=False)
    print(text if printable(text) == text else json.dumps(plain, indent=2))
