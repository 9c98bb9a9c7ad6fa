"""Reads dumps for `readers`: ``python -m ddt_notebook.dumps.child``.

Each line on stdin names a rank and its file; the answer on stdout is a kind, a length and data.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from ..model.codec import FormatError
from . import columns
from .columns import StrangeEntries
from .readers import LENGTH_BYTES, READ, REFUSED, STRANGE


def main() -> None:
    """Answer until stdin is closed."""
    gc.disable()  # it would visit every dict of a dump repeatedly, in a third of the time
    for line in sys.stdin.buffer:
        rank, name = line.split()
        try:
            kind, data = READ, columns.read(_path(name), int(rank)).to_bytes()
        except StrangeEntries as error:
            kind, data = STRANGE, str(error).encode()
        except (FormatError, OSError) as error:
            kind, data = REFUSED, str(error).encode()
        sys.stdout.buffer.write(kind + len(data).to_bytes(LENGTH_BYTES, "big") + data)
        sys.stdout.buffer.flush()


def _path(name: bytes) -> Path:
    return Path(os.fsdecode(bytes.fromhex(name.decode())))


if __name__ == "__main__":
    main()
