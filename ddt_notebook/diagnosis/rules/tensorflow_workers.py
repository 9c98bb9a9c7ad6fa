"""Rules about workers of TensorFlow that do not train the same thing, or not equally much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Position
from ddt_notebook.model.finding import Values
from ddt_notebook.model.parity import grouped, minority
from ddt_notebook.model.tensorflow import (
    MirroredState,
    MirroredVariables,
    PipelineRead,
    PipelineStep,
    RankTensorFlow,
    RestoredCheckpoint,
    VariableWrite,
)

_DIFFER = "tensorflow-workers-differ"
#: Steps of a pipeline that change no sample: they choose which ones a worker takes, and when. A
#: program that divides its data itself has other ones on each worker.
_NOT_PREPARING = frozenset({"Cache", "Options", "Prefetch", "Repeat", "Shard", "Skip", "Take"})
#: TensorFlow reads up to two batches ahead of the steps, and a division may leave a remainder.
_READ_AHEAD = 2
#: Shares that differ by a smaller part are of about the same size. Chosen, not measured.
_SLIGHT = 0.05


def trained_together(context: Context) -> bool:
    """Whether the run ended well and all workers trained, in a strategy that keeps them equal."""
    snapshot = context.snapshot
    seen, size = snapshot.tensorflow, snapshot.world_size
    if snapshot.outcome != "ok" or size < 2 or len(seen) < size:
        return False
    updates = [one.updates for one in seen]
    if not any(updates):
        return all(map(_updates_by_hand, seen))
    return all(some and all(one.replicas >= size for one in some) for some in updates)


def _updates_by_hand(seen: RankTensorFlow) -> bool:
    """Whether graphs with collectives change variables that a strategy mirrors, in user's lines."""
    return any(
        graph.states[0].values[at] != graph.states[-1].values[at]
        for graph in seen.mirrored
        if graph.states
        for at, line in enumerate(graph.assigned)
        if line is not None
    )


# -- variables -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Apart:
    """When variables of a graph first differed between workers."""

    graphs: Mapping[int, MirroredVariables]
    executed: int
    names: tuple[str, ...]
    numbers: Mapping[str, tuple[float, ...]]  # of those that are a number, by rank
    variables: int  # how many were compared


def variables_apart(context: Context) -> Iterator[Finding]:
    """Report variables that a strategy keeps equal and that differ between its workers.

    The strategy makes the same update on all workers: what a worker restores, assigns or computes
    alone stays apart.
    """
    if not trained_together(context) or any(not_finite(context)):
        return
    apart = _first_apart(context)
    if apart is None or (apart.executed == 0 and any(adapted_apart(context))):
        return
    seen = {one.rank: one for one in context.snapshot.tensorflow}
    single = [name for name in apart.names if name in apart.numbers]
    chosen = single[0] if single else apart.names[0]
    at_start = apart.executed == 0 or not single
    restored = _restored(seen) if at_start else None
    writes = _writes(seen, (*_of_no_graph(apart), chosen, *apart.names))
    ages = _ages(seen, writes) if at_start and restored is None else {}
    facts: list[Fact] = []
    values: Values
    ranks = list(seen)
    where: dict[int, Position | None] = {r: graph.where for r, graph in apart.graphs.items()}
    if restored is not None:
        found, where = restored
        ranks = [rank for rank, one in found.items() if not one]
        facts.append(
            Fact(kind="checkpoint-found", ranks=tuple(r for r, one in found.items() if one))
        )
    elif ages:
        where = {rank: one.where for rank, one in ages.items()}
        ranks = minority(grouped({rank: one.content for rank, one in ages.items()}).values())
        names = tuple(one.name for one in ages.values())
        facts.append(Fact(kind="checkpoints-differ", ranks=tuple(ages), values={"names": names}))
    elif writes:
        chosen = next(iter(writes.values())).variable
        where = {rank: one.where for rank, one in writes.items()}
        ranks = list(writes) if len(writes) < len(seen) else minority(_numbers(apart, chosen, seen))
        facts += [
            Fact(
                kind="variable-written",
                ranks=(rank,),
                place=context.place(one.where, "called"),
                values={"variable": one.variable, "times": one.times},
            )
            for rank, one in writes.items()
        ]
    elif not_summed := {
        rank: one for rank, of in seen.items() for one in of.updates if not one.aggregates
    }:
        where = {rank: one.where for rank, one in not_summed.items()}
        ranks = list(not_summed)
        optimizer = next(iter(not_summed.values())).optimizer
        facts.append(Fact(kind="gradients-not-summed", values={"optimizer": optimizer}))
    elif by_hand := _assigned_by_hand(apart, seen, single or apart.names):
        chosen, where = by_hand
        values = {"graph": next(iter(apart.graphs.values())).graph, "variable": chosen}
        at = context.place(next(iter(where.values())), "called")
        facts.append(Fact(kind="assigned-in-graph", place=at, values=values))
    facts.append(Fact(kind="strategy-keeps-equal"))
    values = {
        "graph": next(iter(apart.graphs.values())).graph,
        "executed": apart.executed,
        "variable": chosen,
        "apart": len(apart.names),
        "variables": apart.variables,
    }
    if chosen in apart.numbers:
        values["numbers"] = apart.numbers[chosen]
        values["holding"] = tuple(seen)
    yield conclude(
        "D.2.5",
        "workers-apart",
        cause=_DIFFER,
        ranks=ranks,
        places={rank: context.place(one, "called") for rank, one in where.items()},
        values=values,
        facts=facts,
        confidence="certain" if restored is not None or ages or writes else "likely",
    )


def _of_no_graph(apart: _Apart) -> list[str]:
    """Those that no graph assigns, as a learning rate: only a line outside can set them apart.

    What graphs assign may have been equal after such a line, and differ since.
    """
    return [
        name
        for name in apart.names
        if all(
            graph.assigned and graph.assigned[graph.names.index(name)] is None
            for graph in apart.graphs.values()
        )
    ]


def _assigned_by_hand(
    apart: _Apart, seen: Mapping[int, RankTensorFlow], names: Sequence[str]
) -> tuple[str, dict[int, Position | None]] | None:
    """The first of some variables that differs and that a line other than an optimizer's assigns.

    Where a strategy runs the step, its line may be the one that assigns what the optimizer updates.
    """
    updates = [update for one in seen.values() for update in one.updates]
    updated = {update.where for update in updates}
    optimizers = {update.optimizer for update in updates}
    for graph in apart.graphs.values():
        of_optimizer = (name.partition("/")[0] in optimizers for name in graph.names)
        updated |= {line for line, own in zip(graph.assigned, of_optimizer, strict=False) if own}
    for name in names:
        lines = {
            rank: graph.assigned[graph.names.index(name)] if graph.assigned else None
            for rank, graph in apart.graphs.items()
        }
        if not {*lines.values()} & {None, *updated}:
            return name, lines
    return None


def _numbers(apart: _Apart, name: str, seen: Mapping[int, Any]) -> list[list[int]]:
    if name not in apart.numbers:
        return [[rank] for rank in seen]
    return list(grouped(dict(zip(seen, apart.numbers[name], strict=True))).values())


def _first_apart(context: Context) -> _Apart | None:
    seen = context.snapshot.tensorflow
    by_graph = [{one.graph: one for one in rank.mirrored} for rank in seen]
    found: _Apart | None = None
    for name in by_graph[0]:
        if not all(name in graphs for graphs in by_graph):
            continue
        graphs = {rank.rank: one[name] for rank, one in zip(seen, by_graph, strict=True)}
        first = next(iter(graphs.values()))
        if any(graph.names != first.names for graph in graphs.values()):
            continue
        apart = _apart_in(graphs)
        if apart is not None and (found is None or apart.executed < found.executed):
            found = apart
    return found


def _apart_in(graphs: Mapping[int, MirroredVariables]) -> _Apart | None:
    states = [{state.executed: state for state in graph.states} for graph in graphs.values()]
    names = next(iter(graphs.values())).names
    for executed in sorted(set.intersection(*({*one} for one in states))):
        here = [one[executed] for one in states]
        found = [
            at
            for at in range(len(names))
            if len({state.values[at] for state in here}) > 1
            and all(state.values[at] >= 0 for state in here)
        ]
        if found:
            numbers = {names[at]: tuple(state.numbers[at] for state in here) for at in found}
            return _Apart(
                graphs=graphs,
                executed=executed,
                names=tuple(names[at] for at in found),
                numbers={
                    name: tuple(n for n in given if n is not None)
                    for name, given in numbers.items()
                    if None not in given
                },
                variables=len(names),
            )
    return None


def _restored(
    seen: Mapping[int, RankTensorFlow],
) -> tuple[dict[int, bool], dict[int, Position | None]] | None:
    """Which workers found a checkpoint, and where they looked, if only some did."""
    found = {rank: any(one.found for one in seen[rank].restored) for rank in seen}
    if len(set(found.values())) < 2:
        return None
    lines = {
        rank: next((x.where for x in one.restored if x.found == found[rank]), None)
        for rank, one in seen.items()
    }
    return found, lines


def _ages(
    seen: Mapping[int, RankTensorFlow], writes: Mapping[int, VariableWrite]
) -> dict[int, RestoredCheckpoint]:
    """The checkpoints that workers restored last, if they hold different things.

    What was assigned before that does not count any more.
    """
    last = {
        rank: found[-1]
        for rank, of in seen.items()
        if (found := [x for x in of.restored if x.found])
    }
    contents = {one.content for one in last.values()}
    if len(last) < len(seen) or len(contents) < 2 or 0 in contents:
        return {}
    return {} if any(one.moment > last[rank].moment for rank, one in writes.items()) else last


def _writes(seen: Mapping[int, RankTensorFlow], names: tuple[str, ...]) -> dict[int, VariableWrite]:
    """The writes of the first of these variables that some worker wrote, those of one only first.

    Lines that wrote it as often on all workers count only if there are no others.
    """
    for name in names:
        writes = {
            rank: own
            for rank, of in seen.items()
            if (own := [one for one in of.writes if one.variable == name.partition(" (")[0]])
        }
        if not writes:
            continue
        alike = Counter((_line(one), one.times) for own in writes.values() for one in own)
        alone = {
            rank: rest
            for rank, own in writes.items()
            if (rest := [one for one in own if alike[_line(one), one.times] < len(seen)])
        }
        return {rank: max(own, key=lambda one: one.last) for rank, own in (alone or writes).items()}
    return {}


def _line(write: VariableWrite) -> tuple[str, int] | None:
    return (write.where.file, write.where.line) if write.where is not None else None


# -- what each worker computed from its own data ---------------------------------------------------


def adapted_apart(context: Context) -> Iterator[Finding]:
    """Report layers whose statistics or vocabulary differ between workers."""
    seen = context.snapshot.tensorflow
    if not trained_together(context):
        return
    for together in zip(*(one.adapted for one in seen), strict=False):
        lines = {(x.layer, x.where.line if x.where is not None else None) for x in together}
        contents = {one.content for one in together}
        if len(lines) == 1 and len(contents) > 1 and 0 not in contents:
            lines_of = [one.where for one in together]
            yield _of_own_data(context, "adapted-apart", {"layer": together[0].layer}, lines_of)
            return


def weighed_apart(context: Context) -> Iterator[Finding]:
    """Report calls of ``fit`` whose class weights differ between workers."""
    seen = context.snapshot.tensorflow
    if not trained_together(context):
        return
    for together in zip(*(one.fits for one in seen), strict=False):
        if len({one.class_weight for one in together}) > 1:
            yield _of_own_data(context, "weighed-apart", {}, [one.where for one in together])
            return


def numbers_apart(context: Context) -> Iterator[Finding]:
    """Report graphs that are equal on all workers but for a number with which they compute."""
    seen = context.snapshot.tensorflow
    if not trained_together(context) or any(variables_apart(context)):
        return
    graphs = [{one.name: one for one in rank.graphs if one.form} for rank in seen]
    for name in graphs[0]:
        same = [of[name] for of in graphs if name in of]
        together = [one.numbers for one in same]
        lines = {tuple((x.where, len(x.numbers)) for x in numbers) for numbers in together}
        if len(same) < len(seen) or len({one.form for one in same}) > 1 or len(lines) > 1:
            continue  # other operations, or batches of another size
        for at in zip(*together, strict=True):
            apart = [x for x in zip(*(one.numbers for one in at), strict=True) if len({*x}) > 1]
            if apart:
                numbers = dict(zip((one.rank for one in seen), apart[0], strict=True))
                yield _with_other(context, "graph-numbers-apart", numbers, at[0].where, name)
                return


def _with_other(
    context: Context, kind: str, numbers: Mapping[int, float], where: Position, name: str
) -> Finding:
    place = context.place(where, "called")
    return conclude(
        "D.2.5",
        kind,
        cause=_DIFFER,
        ranks=minority(grouped(numbers).values()),
        places=dict.fromkeys(numbers, place),
        values={"graph": name, "holding": tuple(numbers), "numbers": tuple(numbers.values())},
        facts=[Fact(kind="one-model-trained")],
        confidence="likely",
    )


def pipelines_apart(context: Context) -> Iterator[Finding]:
    """Report data that the workers distribute at one line and prepare in other ways."""
    seen = context.snapshot.tensorflow
    if not trained_together(context):
        return
    for together in zip(*(one.data for one in seen), strict=False):
        lines = {(x.where, x.policy) for x in together}
        if len(lines) > 1 or any(not x.steps for x in together):
            continue
        steps = {
            one.rank: tuple(step for step in x.steps if step.name not in _NOT_PREPARING)
            for one, x in zip(seen, together, strict=True)
        }
        if len({*steps.values()}) < 2:
            continue
        yield conclude(
            "D.2.5",
            "pipelines-apart",
            cause=_DIFFER,
            ranks=minority(grouped(steps).values()),
            places={rank: context.place(together[0].where, "called") for rank in steps},
            facts=[_other_step(steps), Fact(kind="one-model-trained")],
            confidence="likely",
        )
        return


def _other_step(steps: Mapping[int, tuple[PipelineStep, ...]]) -> Fact:
    """The first step in which pipelines differ: other steps, or another function of one."""
    names = {rank: tuple(one.name for one in of) for rank, of in steps.items()}
    if len({*names.values()}) > 1:
        return Fact(
            kind="steps-of-pipelines", ranks=tuple(names), values={"steps": tuple(names.values())}
        )
    differs = (x[0].name for x in zip(*steps.values(), strict=True) if len({*x}) > 1)
    return Fact(kind="function-of-step", values={"step": next(differs)})


def _of_own_data(
    context: Context, kind: str, values: Values, where: list[Position | None]
) -> Finding:
    ranks = [one.rank for one in context.snapshot.tensorflow]
    places = zip(ranks, where, strict=True)
    return conclude(
        "D.2.5",
        kind,
        cause=_DIFFER,
        ranks=ranks,
        places={rank: context.place(one, "called") for rank, one in places},
        values=values,
        facts=[Fact(kind="own-data")],
        confidence="likely",
    )


# -- shares and numbers ----------------------------------------------------------------------------


def uneven_shares(context: Context) -> Iterator[Finding]:
    """Report shares of the data that end long before those of other workers.

    TensorFlow gives a worker without data empty batches until the last worker has ended.
    """
    if not trained_together(context) or any(not_finite(context)):
        return
    found = _uneven(context)
    if found is None:
        return
    reads, at = found
    batches = {rank: read.batches[at] for rank, read in reads.items()}
    fewest = min(batches.values())
    yield conclude(
        "C.7",
        "shares-end-early",
        cause="tensorflow-shares-uneven",
        ranks=[rank for rank, count in batches.items() if count == fewest],
        places={rank: context.place(one.where, "runs") for rank, one in reads.items()},
        values={"fewest": fewest, "most": max(batches.values())},
        facts=[
            Fact(
                kind="batches-read",
                ranks=tuple(reads),
                values={
                    "batches": tuple(batches.values()),
                    "samples": tuple(read.samples[at] for read in reads.values()),
                },
            ),
            Fact(kind="batches-empty"),
            *_steps(context),
        ],
        confidence="likely",
    )


def _steps(context: Context) -> Iterator[Fact]:
    """Yield the line of the steps that went on."""
    for graph in context.snapshot.tensorflow[0].mirrored[:1]:
        yield Fact(kind="steps-went-on", place=context.place(graph.where, "called"))


def _uneven(context: Context) -> tuple[dict[int, PipelineRead], int] | None:
    """What the workers read from data that are uneven, and the number of the pass."""
    seen = context.snapshot.tensorflow
    for together in zip(*([x for x in one.reads if x.trains] for one in seen), strict=False):
        passes = min(len(one.batches) for one in together)
        if (
            len({one.where for one in together}) > 1
            and len({one.where.line for one in together if one.where is not None}) > 1
        ):
            continue
        for at in range(passes):
            batches = [one.batches[at] for one in together]
            most, fewest = max(batches), min(batches)
            ended = all(one.ended[at] for one in together if one.batches[at] == fewest)
            if ended and most - fewest > max(_READ_AHEAD, _SLIGHT * most):
                ranks = [one.rank for one in seen]
                return dict(zip(ranks, together, strict=True)), at
    return None


def not_finite(context: Context) -> Iterator[Finding]:
    """Report steps that return nan or inf from some moment on, or leave it in variables."""
    if not trained_together(context):
        return
    seen = {one.rank: one for one in context.snapshot.tensorflow}
    found = {
        rank: min(lasting, key=lambda x: x.executed)
        for rank, one in seen.items()
        if (lasting := [x for x in one.not_finite if x.lasting])
    }
    if found:
        first = min(found.values(), key=lambda x: x.executed)
        where = {rank: one.where for rank, one in found.items()}
        kind = "step-not-finite"
        values = {"graph": first.graph, "value": first.value, "executed": first.executed}
    else:
        holding = {rank: one for rank in seen if (one := _holds_not_finite(seen[rank]))}
        if not holding:
            return
        graph, state, name = next(iter(holding.values()))
        where = {rank: one.where for rank, (one, _, _) in holding.items()}
        kind = "variables-not-finite"
        values = {"graph": graph.graph, "variable": name, "executed": state.executed}
        values["holding"] = tuple(holding)
    bad = {
        rank: next(x.not_finite for x in one.reads if x.trains and x.not_finite)
        for rank, one in seen.items()
        if any(x.trains and x.not_finite for x in one.reads)
    }
    ranks = [*bad] or [*where]
    some = len(ranks) < len(seen)
    yield conclude(
        "D.2.5",
        kind,
        cause="nan-from-one-rank" if some else "loss-not-finite",
        ranks=ranks,
        waiting=[rank for rank in seen if some and rank not in ranks],
        places={rank: context.place(one, "called") for rank, one in where.items()},
        values=values,
        facts=[
            Fact(kind="batch-not-finite", ranks=(rank,), values={"batch": batch})
            for rank, batch in bad.items()
        ],
        confidence="certain" if bad and some else "likely",
    )


def _holds_not_finite(
    seen: RankTensorFlow,
) -> tuple[MirroredVariables, MirroredState, str] | None:
    """A variable that was finite before the first execution of a graph, and is not at the end."""
    for graph in seen.mirrored:
        for at, name in enumerate(graph.names):
            course = [state for state in graph.states if state.values[at] < 0]
            began = bool(graph.states) and graph.states[0].values[at] >= 0
            if began and course and graph.states[-1].values[at] < 0:
                return graph, course[0], name
    return None
