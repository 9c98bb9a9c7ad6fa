"""Rules about slow runs with the right result: a rank that lags, or data that arrives late."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Place, Position
from ddt_notebook.model.finding import Values
from ddt_notebook.model.partition import LoaderPartition
from ddt_notebook.model.stragglers import Laggard, laggard
from ddt_notebook.program.parse import Document

# Each threshold names the range in which no verdict on the recorded runs changes
# (`benchmarks.thresholds`); the value is chosen within it.
#: A rank lags if the others wait for it during this share of the time (0.1 to 0.4), and for at
#: least this long (0.01 to 0.2 s).
_SHARE, _LEAST_S = 0.2, 0.05
#: It is late in this share of the steps (0.3 to 0.9), the run has at least this many steps (5
#: to 10), and it delays the others this many times longer than any other rank does (0.75 to 12).
_REGULAR, _STEPS, _DOMINANT = 0.6, 5, 3.0
#: With fewer collectives, a rank may be late by chance, as in the views.
_COLLECTIVES = 10
#: What it did instead takes this share of that time (0.2 to 0.8; 0.03 to 0.4).
_EXPLAINED, _NOTICEABLE = 0.4, 0.1
#: It spent this many times more on it (0.25 to 2); a smaller excess may come from a busy machine.
_FAR_MORE = 1.0
#: A longer delay is sleep and not jitter of the machine (1 to 10 ms).
_DELAY_S = 5e-3
#: Number of conditions of one rank that are shown. Chosen, not measured.
_MAX_FOUND = 3
#: Batches that are larger than those of the others by this factor take longer (1.3 to 2.6).
_LARGER = 1.3
_OF_LOADERS = frozenset({"straggler-data", "uneven-batch-sizes"})
#: Data is late if ranks wait this share of the time for it (0.6 to 0.75), this long in all (0.05 to
#: 0.4 s), and this long for each batch (1 to 16 ms).
_STARVED, _STARVED_S, _BATCH_S = 0.6, 0.2, 4e-3


@dataclass(frozen=True, slots=True)
class _Excess:
    """What the lagging rank did longer than the others, in seconds."""

    cause: str
    spent_s: float
    fact: Fact


def stragglers(context: Context) -> Iterator[Finding]:
    """Report a rank for which the others wait in many steps, and what it does meanwhile."""
    snapshot = context.snapshot
    if snapshot.outcome != "ok" or not snapshot.performance:
        return
    found = laggard(snapshot)
    if found is None or not _lags(found):
        return
    reasons = [
        one for one in _excesses(context, found) if one.spent_s > _EXPLAINED * found.held_up_s
    ]
    if not reasons:
        return  # it waited for a processor, as any rank may
    reason = max(reasons, key=lambda one: one.spent_s)
    call = found.call
    members = call.members or snapshot.groups.get(call.group, ())
    others = [rank for rank in members if rank != found.rank]
    yield conclude(
        "D.2.3",
        "rank-lags",
        cause=reason.cause,
        ranks=[found.rank],
        waiting=others,
        places=_places(context, found, in_loop=reason.cause in _OF_LOADERS),
        values={"share": found.held_up_s / found.window_s},
        facts=[
            Fact(
                kind="came-last",
                ranks=(found.rank,),
                values={
                    "times": found.times,
                    "steps": found.steps,
                    "others": others,
                    "stood_s": found.held_up_s,
                    "window_s": found.window_s,
                },
            ),
            reason.fact,
            *(
                Fact(kind="runs-alone", ranks=(found.rank,), place=place)
                for place in _only_for(context, found.rank)
            ),
        ],
        confidence="likely",
        op=call.op,
    )


def _only_for(context: Context, rank: int) -> list[Place]:
    """Return the lines of conditions in the cell that only this rank meets."""
    cell = Document.of(context.snapshot.cell).name
    return list(context.program.conditions_only_on(rank, cell))[:_MAX_FOUND]


def _lags(found: Laggard) -> bool:
    return (
        found.held_up_s >= max(_LEAST_S, _SHARE * found.window_s, _DOMINANT * found.others_s)
        and found.steps >= _STEPS
        and found.collectives >= _COLLECTIVES
        and found.times >= _REGULAR * found.steps
    )


def _places(context: Context, found: Laggard, *, in_loop: bool) -> dict[int, Place | None]:
    """Return the loop over the loader, the collective that it entered late, or the model's call."""
    run, loaders = _loaders(context).get(found.rank, (0, []))
    loops = [e for loader in loaders for e in loader.epochs if e.run == run and e.trained]
    if in_loop and loops and loops[-1].where:
        return {found.rank: context.place(loops[-1].where, "loops")}
    if found.call.where is not None:
        return {found.rank: context.place(found.call.where, "called")}
    for training in context.snapshot.training:
        if training.rank == found.rank:
            places = [model.where for model in training.models if model.where is not None]
            return {found.rank: context.place(places[0], "called")} if places else {}
    return {}


def _excesses(context: Context, found: Laggard) -> Iterator[_Excess]:
    """Yield what the rank spent more time on than the others (their median).

    All ranks run equally long. While the others waited for the rank, it computed longer, queued
    longer for a processor, or slept; sleep is not measured directly.
    """
    rank, reports = found.rank, {p.rank: p for p in context.snapshot.performance}
    if rank not in reports or len(reports) < 2:
        return
    queued = max(0.0, _more({r: p.queued_s or 0.0 for r, p in reports.items()}, rank))
    data_s = {
        r: sum(e.waited_s for x in xs for e in x.epochs if e.run == run)
        for r, (run, xs) in _loaders(context).items()
    }
    computed = {r: p.cpu_s for r, p in reports.items()}
    more_data = max(0.0, _more(data_s, rank))
    more_cpu = max(0.0, _more(computed, rank))
    # a rank that computes far more also queues longer if processors are scarce
    taken = more_cpu + queued if more_cpu > _NOTICEABLE * found.held_up_s else 0.0
    computed_longer: Values = {"longer_s": more_cpu}
    larger = _larger_batches(context, rank)
    if larger and more_cpu > (_LARGER - 1) * _others(computed, rank):
        fact = Fact(kind="larger-batches", ranks=(rank,), values=larger | computed_longer)
        yield _Excess("uneven-batch-sizes", taken, fact)
        return
    if more_data > _FAR_MORE * _others(data_s, rank):
        yield _Excess(
            "straggler-data",
            more_data - queued,
            Fact(kind="waited-for-data", ranks=(rank,), values={"longer_s": more_data}),
        )
        taken -= more_data
    else:
        more_data = 0.0
    if more_cpu > _FAR_MORE * _others(computed, rank):
        fact = Fact(kind="computed-longer", ranks=(rank,), values=computed_longer)
        yield _Excess("straggler-compute", taken, fact)
    # a busy machine delays ranks unevenly, also through the threads that send for them
    sent_late = max(report.queued_beside_s for report in reports.values())
    known = all(report.queued_s is not None for report in reports.values())
    if known and found.alone and found.even and found.usual_s > _DELAY_S:
        yield _Excess(
            "straggler-compute",
            found.held_up_s - queued - more_cpu - more_data - sent_late,
            Fact(kind="slept", ranks=(rank,), values={"each_s": found.usual_s}),
        )


def _others(spent: Mapping[int, float], rank: int) -> float:
    """Return the median of the other ranks."""
    others = [value for one, value in spent.items() if one != rank]
    return statistics.median(others) if others else 0.0


def _more(spent: Mapping[int, float], rank: int) -> float:
    return spent[rank] - _others(spent, rank) if rank in spent and len(spent) > 1 else 0.0


def _loaders(context: Context) -> dict[int, tuple[int, list[LoaderPartition]]]:
    """Return the loaders that each rank used in this run, with the number of the run."""
    return {
        p.rank: (p.run, [x for x in p.loaders if x.last is not None and x.last.run == p.run])
        for p in context.snapshot.partition
    }


def _larger_batches(context: Context, rank: int) -> Values:
    """Return the loader with larger batches and their number of samples; empty without one."""
    sizes: dict[str, dict[int, float]] = {}
    for one, (_, loaders) in _loaders(context).items():
        for loader in loaders:
            last = loader.epochs[-1]
            if last.trained and last.batches:
                sizes.setdefault(loader.name, {})[one] = last.samples / last.batches
    for name, by_rank in sizes.items():
        others = [size for one, size in by_rank.items() if one != rank]
        if rank in by_rank and others and by_rank[rank] > _LARGER * statistics.median(others):
            return {
                "loader": name,
                "samples": round(by_rank[rank]),
                "others_samples": round(statistics.median(others)),
            }
    return {}


def starving_loaders(context: Context) -> Iterator[Finding]:
    """Report loaders for which every rank waits longer than it trains."""
    if context.snapshot.outcome != "ok":
        return
    by_name: dict[str, dict[int, tuple[float, float, int, Position | None]]] = {}
    used = _loaders(context)
    for rank, (run, loaders) in used.items():
        for loader in loaders:
            mine = [e for e in loader.epochs if e.run == run and e.trained]
            waited, lasted = sum(e.waited_s for e in mine), sum(e.lasted_s for e in mine)
            batches = sum(max(0, e.batches - 1) for e in mine)
            if mine:
                by_name.setdefault(loader.name, {})[rank] = (
                    waited,
                    lasted,
                    batches,
                    mine[-1].where,
                )
    for name, spent in by_name.items():
        starved = all(
            waited > max(_STARVED * lasted, _STARVED_S, _BATCH_S * batches)
            for waited, lasted, batches, _ in spent.values()
        )
        if not starved or len(spent) < len(used):
            continue
        share = statistics.fmean(waited / lasted for waited, lasted, *_ in spent.values())
        yield conclude(
            "D.2.3",
            "loader-starves-ranks",
            cause="dataloader-starves",
            ranks=spent,
            places={rank: context.place(one[3], "loops") for rank, one in spent.items() if one[3]},
            values={"loader": name, "share": share},
            facts=[
                Fact(
                    kind="waited-for-batches",
                    ranks=(rank,),
                    values={"waited_s": waited, "lasted_s": lasted, "batches": batches},
                )
                for rank, (waited, lasted, batches, _) in spent.items()
            ],
            confidence="likely",
        )


RULES = (stragglers, starving_loaders)
