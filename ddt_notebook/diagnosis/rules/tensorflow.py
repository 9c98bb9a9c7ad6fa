"""Rules about workers of TensorFlow: what each trains with, and what each asked of Keras."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from ddt_notebook.diagnosis.advice import conclude, fixes
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Cell, Fact, Finding, Place, Position
from ddt_notebook.model.finding import Confidence
from ddt_notebook.model.partition import equal_by_chance
from ddt_notebook.model.rank import Activity, RankReport
from ddt_notebook.model.tensorflow import DistributedData, KerasFit, OptimizerUpdates
from ddt_notebook.program.nodes import covers

from .facts import blocked_in, ended_graph, functions_inside, of_call, of_wait
from .loaders import Loaders, loops, used_loaders
from .tensorflow_shown import mixed_curves, own_results
from .tensorflow_workers import (
    adapted_apart,
    not_finite,
    numbers_apart,
    pipelines_apart,
    trained_together,
    uneven_shares,
    variables_apart,
    weighed_apart,
)

#: The name that a session gives each rank, and the variables that tell a process its place.
_PLACES = frozenset({"rank", "local_rank", "RANK", "LOCAL_RANK", "TF_CONFIG"})

#: Optimizers whose steps do not depend on the size of gradients; other things may, such as
#: clipping.
_ADAPTIVE = frozenset(
    {"Adam", "AdamW", "Adamax", "Nadam", "Adagrad", "Adadelta", "Adafactor", "RMSprop", "Lion"}
)
_REPLICAS = "num_replicas_in_sync"
#: Stands for a cell that cannot be read.
_MAY_DIVIDE = ast.parse(f"strategy.reduce() / strategy.{_REPLICAS}")
#: What a pipeline is called that TensorFlow leaves as each worker made it.
_UNDIVIDED = ("", "AutoShardPolicy.OFF")
#: And one of which each worker gets every n-th sample.
_DIVIDED = ("AutoShardPolicy.AUTO", "AutoShardPolicy.DATA")
#: What does not happen by chance.
_UNLIKELY = 0.001
#: Of fewer batches the size may be that of a last one. Chosen, not measured.
_ENOUGH_BATCHES = 3
#: A function that has been running for this part of a wait holds it. Chosen, not measured.
_MOST_OF_A_WAIT = 0.5
#: Where a program ends TensorFlow's profiler; the callback TensorBoard does so, too.
_PROFILERS = ("tensorflow/python/profiler/profiler_v2.py", "tensorflow/python/eager/profiler.py")
#: Causes that only say that calls of different places met.
_OTHER_CALLS, _KEEPS = "different-collectives", "keeps-from-line"
_OUT_OF_STEP = frozenset({_OTHER_CALLS, "dtype-differs", "shape-differs", "uneven-iterations"})
#: Kinds of findings that say so, whatever their cause: where the ranks parted may be known.
_AT_OTHER_CALLS = frozenset({"never-entered", "out-of-step", _OTHER_CALLS})
_STEPS, _CHIEF = "tensorflow-steps-differ", "tensorflow-chief-alone"
#: What decides how often ``fit`` exchanges something, and the card if workers differ in it.
_ASKED = {
    "steps": _STEPS,
    "epochs": _STEPS,
    "epochs_left": _STEPS,
    "callbacks": _CHIEF,
    "validates": _CHIEF,
}
#: Causes of a graph that differs from those of other workers.
_IN_GRAPH = frozenset({"dtype-differs", "shape-differs"})


def undivided_data(context: Context) -> Iterator[Finding]:
    """Report a pipeline that is equal on all workers and that TensorFlow does not divide.

    If a run also distributes data that is divided, the undivided data may be for an evaluation.
    """
    seen = context.snapshot.tensorflow
    if not trained_together(context):
        return
    if len({len(one.data) for one in seen}) > 1:
        return
    together = list(zip(*(one.data for one in seen), strict=True))
    if not together or not all(map(_is_undivided, together)):
        return
    first = together[0]
    places: dict[int, Place | None] = {
        one.rank: context.place(data.where, "runs") for one, data in zip(seen, first, strict=True)
    }
    drawn = any(data.shuffled for data in first)
    yield conclude(
        "D.2.2",
        "undivided-pipeline",
        cause="tensorflow-data-undivided",
        ranks=[one.rank for one in seen],
        places=places,
        values={"policy": first[0].policy},
        facts=[Fact(kind="pipelines-equal", values={"shuffled": drawn})],
        confidence="possible" if drawn else "likely",
    )


def _is_undivided(data: tuple[DistributedData, ...]) -> bool:
    return bool(data[0].content) and len({one.content for one in data}) == 1


def trained_alone(context: Context) -> Iterator[Finding]:
    """Report workers that each train the same model without a strategy that connects them.

    If the program looks at its own place among the workers, each may train something of its own.
    """
    snapshot = context.snapshot
    seen = snapshot.tensorflow
    if snapshot.outcome != "ok" or snapshot.world_size < 2 or len(seen) < snapshot.world_size:
        return
    if not all(one.updates and all(u.replicas == 1 for u in one.updates) for one in seen):
        return
    if len({tuple(update.variables for update in one.updates) for one in seen}) > 1:
        return
    if any(call.kind != "setup" for report in context.reports.values() for call in report.calls):
        return
    confidence: Confidence = "possible" if _knows_its_place(context) else "likely"
    yield conclude(
        "D.2.2",
        "trained-without-strategy",
        cause="tensorflow-ranks-train-alone",
        ranks=[one.rank for one in seen],
        places={one.rank: context.place(one.updates[0].where, "steps") for one in seen},
        values={"size": snapshot.world_size},
        facts=[Fact(kind="updates-of-one-replica")],
        confidence=confidence,
    )


def _knows_its_place(context: Context) -> bool:
    for cell in (context.snapshot.cell, *context.snapshot.earlier_cells):
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:
            return True
        for node in ast.walk(tree):
            name = node.id if isinstance(node, ast.Name) else getattr(node, "value", None)
            if isinstance(name, str) and name in _PLACES:
                return True
    return False


def overlapping_shares(context: Context) -> Iterator[Finding]:
    """Report shares of the data that each worker made itself, and that hold the same samples.

    If a run also distributes data that do not overlap, the others may be for an evaluation.
    """
    made = _made_by_workers(context)
    if not made or any(undivided_data(context)):
        return
    data = [data for one in context.snapshot.tensorflow for data in one.data]
    before = bool(data) and all(one.shuffled_before_share for one in data)
    overlaps = {name: _common(loaders, reordered=before) for name, loaders in made.items()}
    if not all(overlaps.values()):
        return
    drawn = any(one.shuffled for one in data) and not before
    name, loaders = next(iter(made.items()))
    common = overlaps[name]
    contents = {rank: loader.epochs[-1].content for rank, loader in loaders.items()}
    yield conclude(
        "C.7",
        "contents-overlap",
        cause="tensorflow-shares-overlap",
        ranks=[rank for rank, content in contents.items() if common & {*content}],
        places=loops(context, loaders),
        values={"loader": name, "samples": len(common)},
        facts=[
            Fact(
                kind="samples-compared",
                ranks=tuple(contents),
                values={"samples": tuple(map(len, contents.values()))},
            ),
            *([Fact(kind="shuffled-before-share")] if before else []),
        ],
        confidence="possible" if drawn else "likely",
    )


def divided_in_other_orders(context: Context) -> Iterator[Finding]:
    """Report data that TensorFlow divides, and of which each worker took its part of another order.

    A shuffle of ``tf.data`` without a seed is left to the view of the partition: guides use it so.
    """
    if not trained_together(context):
        return
    if any(data.shuffled for one in context.snapshot.tensorflow for data in one.data):
        return
    for name, loaders in used_loaders(context).items():
        divided = all(x.sampler in _DIVIDED and x.trained for x in loaders.values())
        if len(loaders) < context.snapshot.world_size or not divided:
            continue
        contents = {rank: loader.epochs[-1].content for rank, loader in loaders.items()}
        common = _common(loaders)
        if len(common) < _more_than_repeats(loaders):
            continue
        yield conclude(
            "C.7",
            "divided-in-other-orders",
            cause="tensorflow-shares-overlap",
            ranks=[rank for rank, content in contents.items() if common & {*content}],
            places=loops(context, loaders),
            values={"loader": name, "samples": len(common)},
            facts=[
                Fact(
                    kind="samples-compared",
                    ranks=tuple(contents),
                    values={"samples": tuple(map(len, contents.values()))},
                )
            ],
            confidence="likely",
            case="divided",
        )
        return


def _more_than_repeats(loaders: Loaders) -> float:
    """How many samples that several workers read cannot be repetitions in the data.

    A pass may go through a part of the data again, or samples may be equal. One that comes twice
    goes to another worker with a probability of ``1 - 1 / n``; so many do so with that of
    `_UNLIKELY`, if no worker gets one again itself.
    """
    if any(len(x.epochs[-1].content) < x.epochs[-1].samples for x in loaders.values()):
        return math.inf
    return math.log(_UNLIKELY) / math.log(1 - 1 / len(loaders))


def uneven_batches(context: Context) -> Iterator[Finding]:
    """Report workers that read batches of different sizes, which count alike.

    Keras gives each worker's mean the same weight, as a loop with a mean over each worker's batch
    does. Another loop of the program's own may weigh them.
    """
    updates = [update for one in context.snapshot.tensorflow for update in one.updates]
    fits = any(one.fits for one in context.snapshot.tensorflow)
    means = [update.of_mean and update.divided_by is None for update in updates]
    fits = fits or (bool(means) and all(means))
    for name, loaders in _made_by_workers(context).items():
        sizes = {rank: loader.batch_size for rank, loader in loaders.items()}
        enough = all(x.epochs[-1].batches >= _ENOUGH_BATCHES for x in loaders.values())
        known = [size for size in sizes.values() if size]
        if len(known) < len(sizes) or len(set(known)) < 2 or not enough:
            continue
        smallest = min(known)
        yield conclude(
            "D.2.5",
            "batches-count-alike",
            cause="tensorflow-batches-uneven",
            ranks=[rank for rank, size in sizes.items() if size == smallest],
            places=loops(context, loaders),
            values={"loader": name, "sizes": tuple(known), "alike": fits},
            facts=[Fact(kind="batch-sizes", ranks=tuple(sizes), values={"sizes": tuple(known)})],
            confidence="likely" if fits else "possible",
        )


def undivided_loss(context: Context) -> Iterator[Finding]:
    """Report gradients of each worker's mean loss that the strategy sums.

    A program that divides anything else by the number of replicas, such as the learning rate, may
    mean it so, and optimizers such as Adam hide most of it.
    """
    snapshot = context.snapshot
    seen = snapshot.tensorflow
    if snapshot.outcome != "ok" or len(seen) < snapshot.world_size:
        return
    sizes = {
        one.rank: {x.batch_size for x in one.loaders if x.trained} for one in snapshot.partition
    }
    means = {
        one.rank: update
        for one in seen
        for update in one.updates
        if update.of_mean and not update.scaled and update.replicas > 1
        if update.divided_by is None or update.divided_by in sizes.get(one.rank, ())
    }
    if not means or len(means) < len(seen):
        return
    first = next(iter(means.values()))
    terms = () if first.scaled else first.terms_at
    hides = first.optimizer in _ADAPTIVE or _divides_by_replicas(context, but=terms)
    yield conclude(
        "D.2.4",
        "mean-losses-summed",
        cause="tensorflow-loss-not-divided",
        ranks=means,
        places={
            rank: context.place(update.mean_at or update.where, "called")
            for rank, update in means.items()
        },
        values={"optimizer": first.optimizer, "size": first.replicas},
        facts=[
            Fact(kind="strategy-sums-gradients", values={"optimizer": first.optimizer}),
            *_divisor(first),
        ],
        confidence="possible" if hides else "likely",
    )


def summed_terms(context: Context) -> Iterator[Finding]:
    """Report a term of variables alone that each replica adds to its loss, such as a penalty.

    Each replica adds the whole of it, and the strategy sums the gradients.
    """
    seen = context.snapshot.tensorflow
    if not trained_together(context) or any(undivided_loss(context)):
        return
    terms = {
        one.rank: update
        for one in seen
        for update in one.updates
        if update.own_term_at is not None and update.replicas > 1
    }
    if len(terms) < len(seen):
        return
    first = next(iter(terms.values()))
    yield conclude(
        "D.2.4",
        "own-terms-summed",
        cause="tensorflow-loss-not-divided",
        ranks=terms,
        places={rank: context.place(one.own_term_at, "called") for rank, one in terms.items()},
        values={"size": first.replicas},
        facts=[Fact(kind="own-term-whole")],
        confidence="possible" if _divides_by_replicas(context) else "likely",
    )


def summed_means(context: Context) -> Iterator[Finding]:
    """Report sums over all replicas of means over each replica's batch.

    If the program divides something by the number of replicas, it may divide such a sum.
    """
    seen = context.snapshot.tensorflow
    if not trained_together(context) or any(undivided_loss(context)):
        return
    sums = {one.rank: one.summed[0] for one in seen if one.summed}
    if len(sums) < len(seen):
        return
    first = next(iter(sums.values()))
    divided = _divides_by_replicas(context) or _divides_a_sum(context)
    yield conclude(
        "D.2.4",
        "replica-means-summed",
        cause="sum-shown-as-mean",
        ranks=sums,
        places={rank: context.place(one.where, "called") for rank, one in sums.items()},
        values={"size": first.replicas},
        facts=[Fact(kind="replica-mean-at", place=context.place(first.mean_at, "called"))],
        confidence="possible" if divided else "likely",
    )


def _divisor(update: OptimizerUpdates) -> Iterator[Fact]:
    if update.divided_by is not None:
        yield Fact(kind="divided-by-own-batch", values={"by": update.divided_by})


def _divides_by_replicas(context: Context, but: tuple[Position, ...] = ()) -> bool:
    """Whether the program divides something by the number of replicas, but not at these lines."""
    lines = {one.line for at in but if (one := context.place(at, "called")) is not None}
    return any(
        _REPLICAS in {getattr(one, "attr", None) for one in ast.walk(node.right)}
        and node.lineno + cell.first_line - 1 not in lines
        for cell, node in _divisions(context)
    )


def _divides_a_sum(context: Context) -> bool:
    """Whether the program divides what it reduces over replicas."""
    return any(
        isinstance(node.left, ast.Call) and getattr(node.left.func, "attr", None) == "reduce"
        for _, node in _divisions(context)
    )


def _divisions(context: Context) -> Iterator[tuple[Cell, ast.BinOp]]:
    for cell in (context.snapshot.cell, *context.snapshot.earlier_cells):
        try:
            tree = ast.parse(cell.source)
        except SyntaxError:  # IPython's own words
            tree = _MAY_DIVIDE
        for node in ast.walk(tree):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                yield cell, node


def _made_by_workers(context: Context) -> dict[str, Loaders]:
    """The data of this run if TensorFlow divided none of them: what is undivided may evaluate."""
    size = context.snapshot.world_size
    if not trained_together(context):
        return {}
    found: dict[str, Loaders] = {}
    for name, loaders in used_loaders(context).items():
        if not any(x.trained for x in loaders.values()):
            continue
        if len(loaders) < size or any(x.sampler not in _UNDIVIDED for x in loaders.values()):
            return {}
        found[name] = loaders
    return found


def _common(loaders: Loaders, *, reordered: bool = False) -> frozenset[int]:
    """Samples that more than one worker read, by content; none if there are only a few."""
    contents = [{*loader.epochs[-1].content} for loader in loaders.values()]
    times = Counter(chain.from_iterable(contents))
    common = frozenset(sample for sample, workers in times.items() if workers > 1)
    last = [loader.epochs[-1] for loader in loaders.values()]
    chance = equal_by_chance(last, reordered=reordered)
    return common if len(common) > chance else frozenset()


def explained(context: Context, finding: Finding) -> Finding:
    """Return a finding with its reason, if workers asked different things of TensorFlow."""
    finding = _kept_away(context, _other_graph(context, _profiler_crashed(finding)))
    finding = _other_precision(context, finding)
    return (
        _stopped_early(context, finding)
        or _resumed_alone(context, finding)
        or _asked_differently(context, finding)
    )


def _profiler_crashed(finding: Finding) -> Finding:
    """Return a finding that says so if TensorFlow's profiler crashed, which the program began."""
    places = [fact.place for fact in finding.facts if fact.kind == "crash-frame"]
    if not any(place is not None and place.file.endswith(_PROFILERS) for place in places):
        return finding
    return replace(finding, facts=[Fact(kind="profiler-crashed"), *finding.facts], fixes=[])


def _other_precision(context: Context, finding: Finding) -> Finding:
    """Return a finding with the global policies for data types, if workers have other ones."""
    if finding.cause not in _OUT_OF_STEP:
        return finding
    policies = {one.rank: one.policies[-1] for one in context.snapshot.tensorflow if one.policies}
    names = {policy.name for policy in policies.values()}
    if not names or (len(names) == 1 and len(policies) == context.snapshot.world_size):
        return finding
    facts = [
        Fact(
            kind="policy-set",
            ranks=(rank,),
            place=context.place(policy.where, "called"),
            values={"policy": policy.name},
        )
        for rank, policy in policies.items()
    ]
    return replace(finding, facts=[*facts, *finding.facts])


def _kept_away(context: Context, finding: Finding) -> Finding:
    """Return a finding whose culprits are the workers that a condition keeps from a collective."""
    if not context.snapshot.tensorflow or finding.kind != _OTHER_CALLS:
        return finding
    if finding.cause != "collective-under-rank-condition":
        return finding
    kept = sorted({rank for fact in finding.facts for rank in _kept_by(context, finding, fact)})
    others = [rank for rank in finding.ranks if rank not in kept]
    return replace(finding, ranks=kept, waiting=others) if kept and others else finding


def _kept_by(context: Context, finding: Finding, fact: Fact) -> Iterator[int]:
    """The workers that the condition of a fact keeps from a collective that others made in it."""
    if fact.kind == _KEEPS:
        yield from fact.ranks
    condition = context.program.statement_at(fact.place) if fact.place is not None else None
    if fact.kind == "parted" and fact.place is not None and isinstance(condition, ast.If):
        inside = {
            rank
            for rank, place in finding.places.items()
            if place.file == fact.place.file and covers(condition, place.line)
        }
        yield from (rank for rank in finding.ranks if inside and rank not in inside)


def _other_graph(context: Context, finding: Finding) -> Finding:
    """Return a finding with the line of a collective that only some workers have in a graph."""
    if finding.cause not in _IN_GRAPH:
        return finding
    calls = [context.last_call(rank) for rank in finding.places]
    names = {call.op for call in calls if call is not None}
    for name in names:
        graphs = {
            one.rank: graph.where
            for one in context.snapshot.tensorflow
            for graph in one.graphs
            if graph.name == name
        }
        counts = {rank: len(where) for rank, where in graphs.items()}
        if len(graphs) < context.snapshot.world_size or len(set(counts.values())) < 2:
            continue
        most, fewest = max(counts.values()), min(counts.values())
        rank = next(rank for rank, count in counts.items() if count == most)
        other = next(where for where in graphs.values() if len(where) == fewest)
        extra = _added(graphs[rank], other)
        without = [rank for rank, count in counts.items() if count == fewest]
        return replace(
            finding,
            kind="graphs-differ",
            cause=_OTHER_CALLS,
            ranks=without,
            waiting=[one for one in counts if one in context.halted and one not in without],
            values=finding.values | {"graph": name, "most": most, "fewest": fewest},
            facts=[
                Fact(
                    kind="only-in-graph-of",
                    ranks=tuple(rank for rank, count in counts.items() if count == most),
                    place=context.place(extra, "called"),
                ),
                *finding.facts,
            ],
            fixes=fixes(finding.symptom, _OTHER_CALLS),
        )
    return finding


def _added(
    longer: tuple[Position | None, ...], shorter: tuple[Position | None, ...]
) -> Position | None:
    """The line of the first collective that only the longer list has."""
    lines = Counter((one.file, one.line) for one in shorter if one is not None)
    for one in longer:
        if one is None:
            continue
        if not lines[one.file, one.line]:
            return one
        lines[one.file, one.line] -= 1
    return None


def _stopped_early(context: Context, finding: Finding) -> Finding | None:
    """Return a finding with the line at which only some workers ended ``fit``."""
    fits = {one.rank: one.fits[-1] for one in context.snapshot.tensorflow if one.fits}
    stopped = {rank: fit.stopped for rank, fit in fits.items() if fit.stopped is not None}
    if len(fits) < context.snapshot.world_size or not 0 < len(stopped) < len(fits):
        return None
    if finding.kind not in _AT_OTHER_CALLS and finding.cause not in _OUT_OF_STEP:
        return None
    if not _concerns(context, finding, fits):
        return None
    return replace(
        finding,
        cause=_STEPS,
        ranks=list(stopped),
        waiting=[rank for rank in fits if rank not in stopped],
        facts=[
            Fact(kind="stopped-training", ranks=(rank,), place=context.place(where, "called"))
            for rank, where in stopped.items()
        ]
        + list(finding.facts),
        fixes=fixes(finding.symptom, _STEPS),
    )


def _resumed_alone(context: Context, finding: Finding) -> Finding | None:
    """Return a finding with the workers on which ``fit`` resumed from a checkpoint."""
    fits = {one.rank: one.fits[-1] for one in context.snapshot.tensorflow if one.fits}
    if finding.cause not in _OUT_OF_STEP and finding.kind != "never-entered":
        return None
    if len(fits) < context.snapshot.world_size or not _concerns(context, finding, fits):
        return None
    resumed = [
        one.rank
        for one in context.snapshot.tensorflow
        if any(x.found and x.where == fits[one.rank].where for x in one.restored)
    ]
    if not 0 < len(resumed) < len(fits):
        return None
    return replace(
        finding,
        cause=_STEPS,
        ranks=resumed,
        waiting=[rank for rank in fits if rank not in resumed],
        facts=[Fact(kind="checkpoint-found", ranks=tuple(resumed)), *finding.facts],
        fixes=fixes(finding.symptom, _STEPS),
    )


def _concerns(context: Context, finding: Finding, fits: dict[int, KerasFit]) -> bool:
    """Whether a finding is about the lines that called ``fit``."""
    lines = {(place.cell, place.line) for place in finding.places.values()}
    places = [context.place(fit.where, "called") for fit in fits.values()]
    return any(place is not None and (place.cell, place.line) in lines for place in places)


def _asked_differently(context: Context, finding: Finding) -> Finding:
    """Return a finding with what workers gave ``fit``.

    That decides how often each worker comes to a collective inside it.
    """
    fits = {one.rank: one.fits[-1] for one in context.snapshot.tensorflow if one.fits}
    if finding.cause not in _OUT_OF_STEP or len(fits) < context.snapshot.world_size:
        return finding
    if not _concerns(context, finding, fits):
        return finding
    for what, cause in _ASKED.items():
        if cause == _CHIEF and finding.cause != _OTHER_CALLS:
            continue  # what a callback of one worker calls is another collective
        given = {rank: _asked(fit, what) for rank, fit in fits.items()}
        if len(set(given.values())) < 2 or None in given.values():
            continue
        fewest = min(given.values())
        ranks = [rank for rank, one in given.items() if one == fewest]
        fact = Fact(
            kind="fits-differ",
            ranks=tuple(given),
            values={"argument": what, "given": tuple(given.values())},
        )
        return replace(
            finding,
            cause=cause,
            ranks=ranks,
            waiting=[rank for rank in given if rank not in ranks],
            facts=[fact, *finding.facts],
            confidence="likely" if cause == _CHIEF else finding.confidence,
            fixes=fixes(finding.symptom, cause),
        )
    return finding


def _asked(fit: KerasFit, what: str) -> Any:
    return getattr(fit, what)


def left_graphs(context: Context) -> Iterator[Finding]:
    """Report a worker that has ended a graph inside of which another still waits for it.

    The collectives of the graph are in a loop then, or in a branch.
    """
    if context.matching.mismatches:
        return  # the graphs, or the calls before them, are not the same
    for waiter, wait in context.waits.items():
        gone = {
            rank: call
            for rank in wait.missing
            if (call := ended_graph(context, wait.call, rank)) is not None
        }
        if not gone:
            continue
        given = {
            one.rank: graph.given
            for one in context.snapshot.tensorflow
            for graph in one.graphs
            if graph.name == wait.call.op and one.rank in (waiter, *gone)
        }
        facts = [
            Fact(kind="graph-given", ranks=(rank,), values={"graph": wait.call.op, "given": one})
            for rank, one in given.items()
            if len(set(given.values())) > 1
        ]
        yield conclude(
            "D.2.1",
            "left-graph",
            cause=_STEPS,
            ranks=gone,
            waiting=[waiter],
            values=of_call(context, wait.call) | of_wait(context, [waiter]),
            places=context.places([waiter])
            | {rank: context.place(call.where, "called") for rank, call in gone.items()},
            facts=[*facts, *blocked_in(context, sorted(gone))],
            confidence="certain" if facts else "likely",
            op=wait.call.op,
        )
        return


def held_in_pipelines(context: Context) -> Iterator[Finding]:
    """Report a worker that waits for a function of its own data in a graph where others wait."""
    if context.matching.mismatches:
        return
    held = {
        rank: seen
        for rank, call in context.halted.items()
        if call.is_graph and (seen := _held(context.reports[rank])) is not None
    }
    waiting = [rank for rank, call in context.halted.items() if rank not in held and call.is_graph]
    if not held or not waiting:
        return
    awaited = {rank: seen.file for rank, seen in held.items() if seen.waits_for == "missing file"}
    cause = "file-never-appears" if awaited else "rank-too-slow"
    call = context.halted[next(iter(held))]
    yield conclude(
        "D.2.1",
        "held-in-pipeline",
        cause=cause,
        ranks=held,
        waiting=waiting,
        values=of_call(context, call) | of_wait(context, waiting),
        places=context.places([*held, *waiting]),
        facts=[
            *functions_inside(context, held),
            *(
                Fact(kind="file-missing", ranks=(rank,), values={"file": file})
                for rank, file in awaited.items()
            ),
            *blocked_in(context, waiting),
        ],
        confidence="likely",
        op=call.op,
    )


def _held(report: RankReport) -> Activity | None:
    """What a rank does that waits for a function of the user most of the time it is blocked."""
    seen = report.activity
    if seen is None or seen.inside_s is None or report.blocked_s is None:
        return None
    return seen if seen.inside_s >= _MOST_OF_A_WAIT * report.blocked_s else None


def lost_errors(context: Context) -> Iterator[Finding]:
    """Report exceptions in Python code of a pipeline that TensorFlow took for the end of the data.

    If the program catches what TensorFlow raises, it knows of them.
    """
    if context.snapshot.outcome != "ok":
        return
    lost = {
        one.rank: error
        for one in context.snapshot.tensorflow
        if one.data
        for error in one.errors[:1]
        if not error.reached_program
    }
    if not lost:
        return
    first = next(iter(lost.values()))
    yield conclude(
        "C.2",
        "pipeline-error-lost",
        cause="tensorflow-pipeline-error-lost",
        ranks=lost,
        places={rank: context.place(error.where, "raised") for rank, error in lost.items()},
        values={"type": first.type, "message": first.message},
        facts=[Fact(kind="run-went-on")],
        confidence="likely",
    )


RULES = (
    left_graphs,
    held_in_pipelines,
    lost_errors,
    not_finite,
    adapted_apart,
    weighed_apart,
    variables_apart,
    numbers_apart,
    pipelines_apart,
    undivided_data,
    trained_alone,
    overlapping_shares,
    divided_in_other_orders,
    uneven_shares,
    uneven_batches,
    undivided_loss,
    summed_terms,
    summed_means,
    own_results,
    mixed_curves,
)
