"""Measure everything, one after the other, and print the table."""

from __future__ import annotations

import sys

from . import failures, import_time, kernel_kill, memory, recording, round_trip, start
from .common import HEADER, machine


def main() -> int:
    print(machine(), "", HEADER, sep="\n", flush=True)
    held = True
    for topic in (start, round_trip, memory, failures, recording, kernel_kill, import_time):
        for figure in topic.measure():
            print(figure.row(), flush=True)
            held = held and figure.held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
