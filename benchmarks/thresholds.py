"""Measures how far each threshold of the rules can change before a verdict changes.

``python -m benchmarks.thresholds FOLDER``: the folder holds the snapshots that
``python -m benchmarks.conclusions record FOLDER`` has made. The benchmark multiplies each threshold
in turn by several factors, and prints how many runs then get another verdict from the rules that
use it, or another result if the timeline uses it. The comments beside the thresholds name the range
without a change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ddt_notebook.diagnosis import communication
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.rules import (
    data,
    economy,
    epochs,
    normalisation,
    performance,
    steps,
    unwrapped,
    values,
)
from ddt_notebook.model import Finding, Snapshot, meetings, shares, stragglers
from ddt_notebook.model.numbering import in_session_numbers

Rules = tuple[Callable[[Context], Iterable[Any]], ...]

FACTORS = (0.25, 0.5, 0.75, 1.25, 1.5, 2.0, 4.0)


def _ends(context: Context) -> Iterator[object]:
    """When the calls of each rank ended."""
    timelines = {one.rank: one for one in context.snapshot.timeline}
    for report in context.snapshot.ranks:
        if report.rank in timelines:
            yield meetings.call_ends(report.calls, timelines[report.rank], issued=False)


def _window(context: Context) -> Iterator[object]:
    """The time of which the shares are taken."""
    if context.snapshot.timeline:
        yield shares.time_window(context.snapshot, [])


_SPEED: Rules = (performance.stragglers, performance.starving_loaders)
_HINTS: Rules = (
    economy.small_buckets,
    economy.oversubscribed_threads,
    economy.small_collectives,
    economy.kept_graphs,
)
#: Module, names of its thresholds, and the rules that use them.
THRESHOLDS: tuple[tuple[ModuleType, str, Rules], ...] = (
    (
        performance,
        (
            "_SHARE _LEAST_S _REGULAR _STEPS _DOMINANT _EXPLAINED _NOTICEABLE _FAR_MORE _DELAY_S "
            "_LARGER _STARVED _STARVED_S _BATCH_S"
        ),
        _SPEED,
    ),
    (stragglers, "_EXCEPTIONS _NOISE _EVEN", _SPEED),
    (
        economy,
        (
            "_SMALL_BUCKET_MB _MANY_BUCKETS _WORTH_S _SAMPLE _SMALL_BYTES _PER_STEP _IN_ALL _TIME "
            "_KEPT_GRAPHS"
        ),
        _HINTS,
    ),
    (data, "_SPLIT_OFF NEARLY_ALL", (data.same_data, data.wrong_shards)),
    (steps, "_STEPS_TO_JUDGE", steps.RULES),
    (meetings, "_TOLERANCE_S _LATEST_START_S", (_ends,)),
    (shares, "_STEPS_FOR_A_WINDOW", (_window,)),
    (epochs, "_ENOUGH", (epochs.undivided_streams,)),
    (normalisation, "_LOOKED_OFTEN_ENOUGH", (normalisation.needless_search,)),
    (
        communication,
        "_METRIC",
        (unwrapped.unwrapped, unwrapped.perhaps_unwrapped, values.unregistered),
    ),
)


def contexts(folder: Path) -> list[Context]:
    """The runs of a folder that finished."""
    found = []
    for path in sorted(folder.glob("*.ddt.json")):
        snapshot = Snapshot.load(path)
        if snapshot.outcome == "ok":
            found.append(Context(replace(snapshot, ranks=in_session_numbers(snapshot.ranks))))
    return found


def verdicts(runs: list[Context], rules: Rules) -> list[list[object]]:
    """What rules conclude of each run."""
    return [[_verdict(found) for rule in rules for found in rule(run)] for run in runs]


def _verdict(found: object) -> object:
    if isinstance(found, Finding):
        return (found.cause, *found.ranks, found.confidence)
    return found


def main() -> int:
    runs = contexts(Path(sys.argv[1]))
    print(f"{len(runs)} runs; factors {FACTORS}")
    for module, names, rules in THRESHOLDS:
        usual = verdicts(runs, rules)
        for name in names.split():
            value = getattr(module, name)
            changed = []
            for factor in FACTORS:
                setattr(module, name, type(value)(value * factor))
                pairs = zip(usual, verdicts(runs, rules), strict=True)
                changed.append(sum(before != after for before, after in pairs))
            setattr(module, name, value)
            print(f"{module.__name__}.{name} = {value}: {changed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
