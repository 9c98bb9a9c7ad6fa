"""Measure everything, one after the other, and print the table."""

from __future__ import annotations

import sys

from . import (
    branches,
    busy_machine,
    diagnosis,
    dumps,
    failures,
    idle,
    import_time,
    kernel_kill,
    lab_extension,
    lab_responsive,
    lint,
    live_panel,
    many_ranks,
    memory,
    memory_sampling,
    recording,
    round_trip,
    start,
    text_diagnosis,
    timeline_view,
    tracing,
    views,
)
from .common import HEADER, machine

TOPICS = (
    start,
    round_trip,
    memory,
    failures,
    diagnosis,
    many_ranks,
    dumps,
    recording,
    branches,
    tracing,
    memory_sampling,
    timeline_view,
    views,
    lint,
    text_diagnosis,
    live_panel,
    lab_extension,
    lab_responsive,
    idle,
    kernel_kill,
    import_time,
    busy_machine,
)


def main() -> int:
    print(machine(), "", HEADER, sep="\n", flush=True)
    held = True
    for topic in TOPICS:
        for figure in topic.measure():
            print(figure.row(), flush=True)
            held = held and figure.held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
