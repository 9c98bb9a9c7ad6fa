"""Hints about settings that cost time but may be intended."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Place, RankReport
from ddt_notebook.model.meetings import call_bytes

# The brackets give the range in which no hint on the recorded runs changes
# (`benchmarks.thresholds`).
#: Buckets are small up to this size (0.25 to 4; DDP's own limit is 25 MiB), and many from this
#: number on (6 to 8).
_SMALL_BUCKET_MB, _MANY_BUCKETS = 1.0, 8
#: A shorter run has no time to save (0.05 to 0.4 s).
_WORTH_S = 0.2
#: Number of collectives from one line whose size is read (50 to 800).
_SAMPLE = 200
#: Collectives count as small up to this size (16 to 256 KiB), as many from this number on per step
#: (2 to 10) and in all (25 to 200), and as expensive above this share of the time (0.075 to 0.375).
_SMALL_BYTES, _PER_STEP, _IN_ALL, _TIME = 1 << 16, 8, 100, 0.3

#: A program keeps graphs if this many of 32 backward passes are alive; a loop keeps one or two (6
#: to 96).
_KEPT_GRAPHS = 24


def small_buckets(context: Context) -> Iterator[Finding]:
    """Report, as a hint, gradients that DDP sends in many small pieces."""
    by_model: dict[str, tuple[list[int], float, int]] = {}
    for training in context.snapshot.training:
        for model in training.models:
            size, buckets = model.bucket_cap_mb, model.buckets
            if model.forwards and size is not None and buckets is not None:
                by_model.setdefault(model.name, ([], size, buckets))[0].append(training.rank)
    for name, (ranks, size, buckets) in by_model.items():
        if size <= _SMALL_BUCKET_MB and buckets >= _MANY_BUCKETS:
            yield conclude(
                "D.2.3",
                "small-buckets",
                cause="small-buckets",
                ranks=ranks,
                values={"model": name, "buckets": buckets, "limit_mib": size},
                facts=[Fact(kind="bucket-limit", values={"buckets": buckets, "limit_mib": size})],
                confidence="possible",
                op="DDP",
            )


def oversubscribed_threads(context: Context) -> Iterator[Finding]:
    """Report, as a hint, ranks that together compute in more threads than there are processors."""
    trainings = context.snapshot.training
    longest = max((p.ran_s for p in context.snapshot.performance), default=0.0)
    processors = max((training.processors for training in trainings), default=0)
    many = [training.rank for training in trainings if training.threads > 1]
    threads = sum(training.threads for training in trainings)
    if longest < _WORTH_S or not many or not processors or threads <= processors:
        return
    most = max(training.threads for training in trainings)
    yield conclude(
        "D.2.3",
        "more-threads-than-processors",
        cause="oversubscribed-threads",
        ranks=many,
        values={"size": len(trainings), "threads": threads, "processors": processors},
        facts=[Fact(kind="threads-of-torch", ranks=tuple(many), values={"threads": most})],
        confidence="possible",
    )


def small_collectives(context: Context) -> Iterator[Finding]:
    """Report, as a hint, lines that issue many small collectives in each training step."""
    steps = max((training.backwards for training in context.snapshot.training), default=0)
    if steps < 2:
        return
    ran_s = {p.rank: p.ran_s for p in context.snapshot.performance}
    found: dict[Place | None, dict[int, tuple[float, float, int, Call]]] = defaultdict(dict)
    for report in context.snapshot.ranks:
        for place, calls in _by_line(context, report).items():
            number = len(calls) * (1 + report.calls_dropped / len(report.calls))
            spent = sum((c.left_s or 0.0) - (c.entered_s or 0.0) for c in calls)
            spent *= number / len(calls)
            if number < max(_IN_ALL, _PER_STEP * steps):
                continue
            size = statistics.median(call_bytes(c) or 0 for c in calls[:_SAMPLE])
            if size <= _SMALL_BYTES and spent > max(
                _TIME * ran_s.get(report.rank, 0.0), _WORTH_S / 2
            ):
                found[place][report.rank] = (number, spent, int(size), calls[0])
    for place, by_rank in found.items():
        number, spent, size, call = next(iter(by_rank.values()))
        if len(by_rank) == len(call.members):
            yield conclude(
                "D.2.3",
                "small-collectives",
                cause="small-collectives",
                ranks=by_rank,
                places=dict.fromkeys(sorted(by_rank), place),
                values={"op": call.op, "per_step": round(number / steps), "size_bytes": size},
                facts=[
                    Fact(
                        kind="calls-took",
                        values={"calls": round(number), "steps": steps, "took_s": spent},
                    )
                ],
                confidence="possible",
                op=call.op,
            )


def kept_graphs(context: Context) -> Iterator[Finding]:
    """Report, as a hint, losses that are kept with their graphs over many steps."""
    kept = {one.rank: one for one in context.snapshot.training if one.graphs_kept >= _KEPT_GRAPHS}
    if context.snapshot.outcome == "ok" and kept:
        first = kept[min(kept)]
        yield conclude(
            "D.1.2",
            "graphs-kept",
            cause="loss-keeps-graph",
            ranks=kept,
            values={"graphs": first.graphs_kept},
            places={rank: context.place(one.where, "runs") for rank, one in kept.items()},
            facts=[Fact(kind="graphs-alive", values={"graphs": first.graphs_kept})],
            confidence="possible",
        )


def _by_line(context: Context, report: RankReport) -> dict[Place | None, list[Call]]:
    """Return the collectives of the user's lines that waited for their result."""
    found: dict[tuple[str, int], list[Call]] = defaultdict(list)
    for call in report.calls:
        own = call.kind == "collective" and call.source == "call log" and not call.asynchronous
        if own and call.where is not None and call.left_s is not None and call.shapes:
            found[call.where.file, call.where.line].append(call)
    return {context.place(calls[0].where, "called"): calls for calls in found.values()}


HINTS = (small_buckets, oversubscribed_threads, small_collectives, kept_graphs)
