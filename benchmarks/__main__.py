"""Measure everything, or the named topics, one after the other, and print the table."""

from __future__ import annotations

import argparse
import sys

from . import (
    advice,
    branches,
    busy_machine,
    call_log,
    diagnosis,
    dumps,
    failures,
    idle,
    import_time,
    job_recording,
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
    several_hosts,
    simulated_hosts,
    start,
    text_diagnosis,
    timeline_view,
    tracing,
    viewer,
    views,
    watched_ranks,
)
from .common import HEADER, machine

TOPICS = (
    start,
    round_trip,
    several_hosts,
    simulated_hosts,
    memory,
    failures,
    diagnosis,
    many_ranks,
    watched_ranks,
    dumps,
    recording,
    call_log,
    branches,
    tracing,
    memory_sampling,
    timeline_view,
    viewer,
    views,
    lint,
    text_diagnosis,
    advice,
    live_panel,
    lab_extension,
    lab_responsive,
    idle,
    kernel_kill,
    import_time,
    job_recording,
    busy_machine,
)


def main() -> int:
    topics = {topic.__name__.rpartition(".")[2]: topic for topic in TOPICS}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"one of {', '.join(topics)}")
    named = parser.parse_args().topics
    if unknown := [name for name in named if name not in topics]:
        parser.error(f"there is no topic {unknown[0]!r}; there is: {', '.join(topics)}")
    print(machine(), "", HEADER, sep="\n", flush=True)
    held = True
    for topic in [topics[name] for name in named] or TOPICS:
        for figure in topic.measure():
            print(figure.row(), flush=True)
            held = held and figure.held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
