"""Rules about models that are trained together but not kept equal on the ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.communication import communication, elements, teams_of_engines
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.gradients import overwritten, shared_and_own
from ddt_notebook.diagnosis.reductions import all_reduced_together, reducing, steps_of
from ddt_notebook.diagnosis.replicas import Replicas
from ddt_notebook.model import Fact, Finding, Place
from ddt_notebook.model.collective import shape_label
from ddt_notebook.model.finding import Confidence
from ddt_notebook.model.frameworks import known_operation
from ddt_notebook.model.training import NO_GRADIENT, OptimizerTraining, UsedModule
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program
from ddt_notebook.program.sharded_values import leaves_part_out, slices_by_rank

from .counted_alone import counted_alone
from .gradients import swapped

#: Lines of reductions in a finding; more would not help.
_MAX_LINES = 3
#: A parameter of at most this many elements is no part of a larger one on other ranks.
_FEW = 16


def unwrapped(context: Context) -> Iterator[Finding]:
    """Report replicas without DDP that drift apart, and gradients that are only partly reduced."""
    return (f for f in _unwrapped(context) if f.confidence != "possible")


def perhaps_unwrapped(context: Context) -> Iterator[Finding]:
    """Report, as a hint, ranks that train copies of one model without communication."""
    return (f for f in _unwrapped(context) if f.confidence == "possible")


def updated_by_hand(context: Context) -> Iterator[Finding]:
    """Report parameters that ranks update without an optimizer, and that drift apart."""
    return (f for f in _by_hand(context) if f.confidence != "possible")


def perhaps_updated_by_hand(context: Context) -> Iterator[Finding]:
    """Report, as a hint, such updates of ranks that may train models of their own."""
    return (f for f in _by_hand(context) if f.confidence == "possible")


def without_group(context: Context) -> Iterator[Finding]:
    """Report, as a hint, ranks that train the same model although no group was ever formed."""
    if context.snapshot.outcome != "ok" or _in_a_group(context):
        return
    for group in replicas.replicas(context.snapshot):
        if group.stepped and not group.first.wrapper:
            yield conclude(
                "D.2.2",
                "group-never-formed",
                cause="group-never-formed",
                ranks=group.ranks,
                values={"model": group.first.model, "optimizer": group.first.name},
                places=_steps_at(context, group),
                facts=[Fact(kind="no-group-formed", ranks=tuple(group.ranks))],
                confidence="possible",
            )
            return


def alone_in_ddp(context: Context) -> Iterator[Finding]:
    """Report copies of one model of which each is in a DDP whose group holds one rank only."""
    if context.snapshot.outcome != "ok" or any(x.not_finite for x in context.snapshot.training):
        return
    together: dict[tuple[object, ...], dict[int, OptimizerTraining]] = defaultdict(dict)
    for training in context.snapshot.training:
        for one in training.optimizers:
            if one.wrapper == "DDP" and len(one.members) == 1:
                key = (one.name, one.watched, tuple(sorted(one.shapes.items())))
                together[key][training.rank] = one
    for found in together.values():
        if len(found) < 2 or len(found) < len(context.reports):
            continue
        group = Replicas(found)
        equal_at_start = not group.apart(min(group.states))
        if group.first_apart is None or not equal_at_start or not _divided_by_sampler(context):
            continue
        if _own_data(context) or any(_exchanges(context, rank, group) for rank in found):
            continue
        yield conclude(
            "D.2.2",
            "alone-in-ddp",
            cause="model-not-wrapped",
            ranks=found,
            values={"model": group.first.model, "optimizer": group.first.name},
            places=_steps_at(context, group),
            facts=[
                Fact(
                    kind="copies-part",
                    values={"equal_at_start": True, "step": group.first_apart},
                ),
                Fact(kind="sampler-divides"),
            ],
            confidence="likely",
        )
        return


def _exchanges(context: Context, rank: int, group: Replicas) -> bool:
    """Whether a rank may exchange gradients or parameters with others, such as now and then."""
    report, shapes = context.reports[rank], group.first.shapes
    own = tuple(c for c in report.calls if c.source == "call log" and len(c.members) != 1)
    sent = communication(replace(report, calls=own))  # not those of DDP
    return bool(
        sent.is_opaque(shapes) or sent.reductions_of(shapes) or sent.broadcast or sent.messages
    )


def _unwrapped(context: Context) -> Iterator[Finding]:
    snapshot = context.snapshot
    if snapshot.outcome != "ok" or not _in_a_group(context) or any(swapped(context)):
        return  # gradients that changed places are reported
    if any(counted_alone(context)):
        return  # wrapping the model is the library's work
    for group in replicas.replicas(snapshot):
        if group.first_apart is None or not group.stepped:
            continue
        if any(one.not_finite for one in snapshot.training):
            continue
        judge = _outside_ddp if group.first.wrapper else _judge
        finding = judge(context, group)
        if finding is not None:
            yield finding


def _by_hand(context: Context) -> Iterator[Finding]:
    found = {one.rank: one.by_hand for one in context.snapshot.training if one.by_hand is not None}
    if len(found) < 2 or len(found) < len(context.reports) or not _in_a_group(context):
        return
    if context.snapshot.outcome != "ok" or any(x.not_finite for x in context.snapshot.training):
        return
    first = found[min(found)]
    alike = {(one.steps, one.watched, tuple(sorted(one.shapes.items()))) for one in found.values()}
    if len(alike) > 1:
        return
    group = Replicas(found)
    if group.apart(0) or len(group.apart(max(group.states))) < len(first.watched):
        return
    for rank in found:
        sent = communication(context.reports[rank])
        reduced = sent.reductions_of(first.shapes)
        # a metric may have the shape of a bias
        if sent.is_opaque(first.shapes) or all(reduced.get(shape) for shape in first.shapes):
            return
        if sent.broadcast or sent.messages or _compares(context, group):
            return
    sampled = _divided_by_sampler(context)
    this_cell = Program([Document.of(context.snapshot.cell)], context.snapshot.world_size)
    if not sampled and not slices_by_rank(this_cell):
        return
    yield conclude(
        "D.2.2",
        "updated-alone",
        cause="model-not-wrapped",
        ranks=found,
        values={"names": list(first.watched)},
        places={
            rank: place
            for rank, one in found.items()
            if (place := context.place(one.where, "runs")) is not None
        },
        facts=[
            Fact(kind="updated-without-sending", values={"steps": first.steps}),
            Fact(kind="copies-part", values={"equal_at_start": True, "step": first.steps}),
            Fact(kind="sampler-divides" if sampled else "ranks-take-parts"),
        ],
        confidence="likely" if sampled and not _own_data(context) else "possible",
    )


def changed_by_hand(context: Context) -> Iterator[Finding]:
    """Report parameters that differ although the program averages all gradients by hand."""
    group = _averaged_by_hand(context)
    if group is None or group.apart(0):
        return
    first, apart = group.first, group.apart(max(group.states))
    if not apart or len(apart) == len(first.watched):
        return  # all differ if the gradients were not averaged
    names = [first.watched[at] for at in apart]
    yield conclude(
        "D.2.5",
        "changed-by-hand",
        cause="model-reset-on-one-rank",
        ranks=group.ranks,
        values={"names": names},
        places={rank: context.place(one.where, "runs") for rank, one in group.ranks.items()},
        facts=[
            Fact(kind="gradients-averaged-by-hand", values={"steps": first.steps}),
            Fact(
                kind="equal-and-apart",
                values={"equal": len(first.watched) - len(apart)},
            ),
        ],
        confidence="likely",
    )


def started_apart_by_hand(context: Context) -> Iterator[Finding]:
    """Report parameters that began apart, and that averaged gradients alone keep apart."""
    group = _averaged_by_hand(context)
    if group is None or _compares(context, group) or _in_smaller_groups(context, group):
        return
    first, apart = group.first, group.apart(0)
    if not apart or group.apart(max(group.states)) != apart:
        return  # what was equal stays equal if the updates are
    names = [first.watched[at] for at in apart]
    sent = any(communication(context.reports[rank]).broadcast for rank in group.ranks)
    yield conclude(
        "D.2.5",
        "copies-start-apart-by-hand",
        cause="replicas-start-apart",
        ranks=group.ranks,
        values={"names": names},
        places={rank: context.place(one.where, "runs") for rank, one in group.ranks.items()},
        facts=[
            Fact(kind="gradients-averaged-by-hand", values={"steps": first.steps}),
            Fact(kind="apart-throughout", values={"name": names[0]}),
            *([] if sent else [Fact(kind="no-broadcast")]),
            *_seeded_apart(context, group),
        ],
        confidence="likely",
    )


def _averaged_by_hand(context: Context) -> Replicas | None:
    """What the ranks update alike without an optimizer, with gradients that they all reduce."""
    found = {one.rank: one.by_hand for one in context.snapshot.training if one.by_hand is not None}
    if len(found) < 2 or len(found) < len(context.reports) or context.snapshot.outcome != "ok":
        return None
    if any(x.not_finite for x in context.snapshot.training):
        return None
    first = found[min(found)]
    alike = {(one.steps, one.watched, tuple(sorted(one.shapes.items()))) for one in found.values()}
    if len(alike) > 1 or len(first.watched) < first.parameters:
        return None
    for rank in found:
        reduced = communication(context.reports[rank]).reductions_of(first.shapes)
        if any(reduced.get(s, 0) * 2 < first.steps * n for s, n in first.shapes.items()):
            return None
    return Replicas(found)


def _seeded_apart(context: Context, group: Replicas) -> Iterator[Fact]:
    """Yield the lines that gave the ranks other seeds before they trained."""
    seeded = {one.rank: one for one in context.snapshot.training if one.rank in group.ranks}
    if len({one.seed for one in seeded.values()}) < 2:
        return
    for line in dict.fromkeys(one.seeded_at for one in seeded.values()):
        at = [one for one in seeded.values() if one.seeded_at == line]
        if line is not None:
            yield Fact(
                kind="seeded-with",
                place=context.place(line, "called"),
                ranks=tuple(one.rank for one in at),
                values={"seeds": tuple(one.seed for one in at)},
            )


def _in_a_group(context: Context) -> bool:
    """Whether the ranks have a group, from the session or by themselves."""
    formed = any(report.calls or report.joined for report in context.reports.values())
    return context.snapshot.has_group or formed


def _judge(context: Context, group: Replicas) -> Finding | None:
    shapes = group.first.shapes
    reports = {rank: reducing(context, rank) for rank in group.ranks}
    if beside_ddp := _is_beside_ddp(context, group):  # DDP sends gradients of another model
        reports = {
            rank: replace(one, calls=tuple(c for c in one.calls if c.source == "call log"))
            for rank, one in reports.items()
        }
    sent = {rank: communication(one) for rank, one in reports.items()}
    reduced = {rank: one.reductions_of(shapes) for rank, one in sent.items()}
    if _in_smaller_groups(context, group):
        return None
    observed = _own_gradients(context, group) or _other_optimizer_reduces(context, group)
    if observed is not None:
        return observed
    if beside_ddp and _never_equal(group) and not any(x.messages for x in sent.values()):
        return _not_wrapped(context, group)  # whatever was sent, the gradients stayed each rank's
    if _is_beside_engine(context, group):
        return _not_wrapped(context, group, "outside-engine", case="engine")
    beside = {
        shape
        for training in context.snapshot.training
        for one in training.optimizers
        for shape in one.shapes
    }
    if any(one.is_opaque(shapes, beside) for one in sent.values()):
        return _started_apart(context, group, {})  # one bucket may hold all gradients
    if all(reduced.values()):
        fewest = min(reduced.values(), key=lambda r: sum(r.values()))
        return _partly_reduced(context, group, fewest) or _started_apart(context, group, fewest)
    if any(reduced.values()):
        return None
    broadcasts = max(sum(one.broadcast[s] for s in shapes) for one in sent.values())
    if broadcasts > sum(shapes.values()):
        return None  # a parameter server sends parameters
    return _not_wrapped(context, group)


def _is_beside_ddp(context: Context, group: Replicas) -> bool:
    """Whether every rank was seen to call the optimizer's module outside DDP."""
    named = {one.model for one in group.ranks.values()}
    begun = group.states[min(group.states)]
    return any(
        {one.name for one in part.values()} == named
        # a module is found by another name than its optimizer: it then has the same values
        or all(rank in begun and begun[rank].values == one.first for rank, one in part.items())
        for part in _parts_beside_ddp(context)
    )


def _is_beside_engine(context: Context, group: Replicas) -> bool:
    """Whether each rank stepped with its own gradients while DeepSpeed averaged those of an engine.

    An engine sends its own parameters only. What else was sent is the program's.
    """
    shapes, everyone = group.first.shapes, set(group.ranks)
    teams = teams_of_engines(context.reports.values())
    if not any(everyone <= set(team) for team in teams) or not _never_equal(group):
        return False
    for rank in group.ranks:
        report = context.reports[rank]
        own = tuple(c for c in report.calls if not (c.called_from or "").startswith("deepspeed/"))
        sent = communication(replace(report, calls=own))
        # a program may reduce through deepspeed.comm, too
        if communication(report).reductions_of(shapes) or sent.broadcast or sent.is_opaque(shapes):
            return False
    seen = [one for step in group.stepped if step for one in group.states[step].values()]
    return bool(seen) and all(one.local and one.local == one.used for one in seen)


def _never_equal(group: Replicas) -> bool:
    """Whether no gradient was equal on the ranks in any sampled step, nor any parameter later."""
    every = len(group.first.watched)
    first = min(group.states)
    return all(len(group.gradients_apart(step)) == every for step in group.stepped) and all(
        len(group.apart(step)) == every for step in group.states if step > first
    )


def _not_wrapped(
    context: Context, group: Replicas, kind: str = "model-not-wrapped", case: str = ""
) -> Finding | None:
    first = group.first
    started_equal = not group.apart(min(group.states))
    sampled = _divided_by_sampler(context)
    # an earlier cell may have divided something else
    this_cell = Program([Document.of(context.snapshot.cell)], context.snapshot.world_size)
    divided = sampled or slices_by_rank(this_cell)
    if not (started_equal or divided):
        return None
    alike = len({tuple(sorted(o.settings.items())) for o in group.ranks.values()}) == 1
    own = not alike or _own_data(context) or leaves_part_out(this_cell)
    meant = sampled or not (own or _compares(context, group))
    step = group.first_apart
    assert step is not None
    facts = [
        Fact(kind="nothing-sent", values={"optimizer": first.name, "steps": first.steps}),
        Fact(kind="copies-part", values={"equal_at_start": started_equal, "step": step}),
    ]
    if divided:
        facts.append(Fact(kind="sampler-divides" if sampled else "ranks-take-parts"))
    return conclude(
        "D.2.2",
        kind,
        cause="model-not-wrapped",
        ranks=group.ranks,
        values={"model": first.model, "optimizer": first.name},
        places=_steps_at(context, group),
        facts=facts,
        confidence="likely" if meant else "possible",
        case=case,
    )


def _steps_at(context: Context, group: Replicas) -> dict[int, Place | None]:
    return {rank: context.place(one.where, "steps") for rank, one in group.ranks.items()}


def _divided_by_sampler(context: Context) -> bool:
    """Whether every rank trained with a loader that divides the data among several replicas."""
    partitions = context.snapshot.partition
    return len(partitions) > 1 and all(
        any(
            (loader.replicas or 1) > 1 and any(epoch.run == one.run for epoch in loader.epochs)
            for loader in one.loaders
        )
        for one in partitions
    )


def _own_data(context: Context) -> bool:
    """Whether ranks took subsets of the data on purpose, for example for cross-validation."""
    return any(
        loader.dataset == "Subset" for one in context.snapshot.partition for loader in one.loaders
    )


def _compares(context: Context, group: Replicas) -> bool:
    """Whether the cell compares copies: it gathers results and does not average numbers."""
    ops = {call.op for rank in group.ranks for call in context.reports[rank].calls}
    return bool(ops & {"all_gather_object", "gather_object"}) and "all_reduce" not in ops


def _own_gradients(context: Context, group: Replicas) -> Finding | None:
    """Report gradients that each rank keeps for itself, or adds to those that were exchanged."""
    if any(communication(context.reports[rank]).messages for rank in group.ranks):
        return None
    late = overwritten(group)
    first = group.first
    if len(late) > 1:
        return conclude(
            "D.2.4",
            "added-after-exchange",
            cause="gradients-changed-after-averaging",
            ranks=group.ranks,
            values={"model": first.model, "optimizer": first.name},
            places={rank: context.place(one.added_at, "runs") for rank, one in group.ranks.items()},
            facts=[Fact(kind="pass-after-exchange", values={"steps": len(late)})],
            confidence="likely",
        )
    shared, own = shared_and_own(group)
    if not shared or not own or group.apart(min(group.states)):
        return None
    names = [first.watched[at] for at in sorted(own)]
    seen = len([step for step in group.stepped if step])
    return conclude(
        "D.2.2",
        "some-gradients-not-reduced",
        cause="gradients-not-reduced",
        ranks=group.ranks,
        values={"model": first.model, "optimizer": first.name, "names": names},
        places={rank: _reduces_at(context, group, rank) for rank in group.ranks},
        facts=[
            Fact(kind="gradients-kept", values={"steps": seen, "names": names}),
            Fact(
                kind="gradients-agreed",
                values={"agreed": len(shared), "watched": len(first.watched)},
            ),
        ],
        confidence="possible" if _own_parts(group, own, shared) else "likely",
    )


def _reduces_at(context: Context, group: Replicas, rank: int) -> Place | None:
    """Return the line that reduces the largest tensor, which the gradients are; else the step."""
    sent = [
        (sum(elements(shape_label(shape)) for shape in call.shapes), call.where)
        for call in context.reports[rank].calls
        if call.source == "call log" and (operation := known_operation(call.op)) is not None
        if operation.reduces
    ]
    where = max(sent, key=lambda one: one[0])[1] if sent else None
    return context.place(where or group.ranks[rank].where, "called" if where else "steps")


def _partly_reduced(context: Context, group: Replicas, reduced: dict[str, int]) -> Finding | None:
    """Report gradients that the cell reduces by hand if some agree and some never do."""
    first = group.first
    never = set(range(len(first.watched)))
    always = set(never)
    for step in group.stepped:
        apart = set(group.gradients_apart(step))
        never &= apart
        always -= apart
    if not never:
        return None
    names = [first.watched[at] for at in sorted(never)]
    equal_later = any(not group.apart(step) for step in group.states if step)
    rounds = min(reduced.get(shape, 0) // times for shape, times in first.shapes.items())
    if always and max(reduced.values(), default=0) >= steps_of(context, first):
        kind = "some-gradients-not-reduced"
        confidence: Confidence = "possible" if _own_parts(group, never, always) else "likely"
    elif rounds >= steps_of(context, first) and not equal_later:
        kind = "other-tensors-reduced"
        confidence = "likely"
    else:
        # The cell averages parameters now and then; a gradient that agrees may not depend on data.
        return None
    facts = [Fact(kind="gradients-differed", values={"steps": len(group.stepped), "names": names})]
    if kind == "other-tensors-reduced":
        facts += islice(_reduced_at(context, group), _MAX_LINES)
    if always:
        agreed = {"agreed": len(always), "watched": len(first.watched)}
        facts.append(Fact(kind="gradients-agreed", values=agreed))
    return conclude(
        "D.2.2",
        kind,
        cause="gradients-not-reduced",
        ranks=group.ranks,
        values={"model": first.model, "optimizer": first.name, "names": names},
        places=_steps_at(context, group),
        facts=facts,
        confidence=confidence,
    )


def _other_optimizer_reduces(context: Context, group: Replicas) -> Finding | None:
    """Report an optimizer without averaged gradients beside one that has them, of one module."""
    first, last = group.first, max(group.states)
    if not first.model or group.apart(min(group.states)) or not group.stepped:
        return None
    everything = list(range(len(first.watched)))
    if any(group.gradients_apart(step) != everything for step in group.stepped):
        return None
    if group.apart(last) != everything:
        return None
    others = [
        other
        for other in replicas.replicas(context.snapshot)
        if other.first.model == first.model
        and other.first.watched != first.watched
        and other.ranks.keys() == group.ranks.keys()
        and len(other.stepped) > 1
        and other.first_apart is None
        and not any(other.gradients_apart(step) for step in other.stepped)
        and shared_and_own(other)[0]
    ]
    if not others:
        return None
    return conclude(
        "D.2.2",
        "some-gradients-not-reduced",
        cause="gradients-not-reduced",
        ranks=group.ranks,
        values={"model": first.model, "optimizer": first.name, "names": list(first.watched)},
        places=_steps_at(context, group),
        facts=[
            Fact(
                kind="gradients-differed",
                values={"steps": len(group.stepped), "names": list(first.watched)},
            ),
            Fact(kind="other-optimizer-averages", values={"optimizer": others[0].first.name}),
        ],
        confidence="likely",
    )


def _outside_ddp(context: Context, group: Replicas) -> Finding | None:
    """Report parameters beside those in DDP that drift apart from equal values.

    Ranks may hold parts of one large layer. Nobody divides a temperature or the weights of losses.
    """
    models = [replicas.model_of(context.snapshot, r, o) for r, o in group.ranks.items()]
    known = {
        f"{model.name}.{name}" for model in models if model is not None for name in model.parameters
    }
    first = group.first
    if not all(models) or len(known) >= first.parameters:
        return None
    outside = {at for at, name in enumerate(first.watched) if name not in known}
    never = set(outside)
    for step in group.stepped:
        never &= set(group.gradients_apart(step))
    never &= set(group.apart(max(group.states))) - set(group.apart(min(group.states)))
    if not never:
        return None
    small = all(at < len(first.elements) and first.elements[at] <= _FEW for at in never)
    for rank in group.ranks:
        report = context.reports[rank]
        own = tuple(call for call in report.calls if call.source == "call log")  # not those of DDP
        sent = communication(replace(report, calls=own))
        if sent.broadcast:
            return None  # the program itself may keep them equal, now and then
        # a metric may have as many elements as a small one
        if not small and (sent.is_opaque(first.shapes) or sent.reductions_of(first.shapes)):
            return None
    part = next(_parts_beside_ddp(context), None)
    if part is not None and _divided_by_sampler(context) and not _own_data(context):
        return _part_not_wrapped(context, group, part)
    names = [first.watched[at] for at in sorted(never)]
    in_ddp = len(first.watched) - len(outside)
    return conclude(
        "D.2.2",
        "some-gradients-not-reduced",
        cause="gradients-not-reduced",
        ranks=group.ranks,
        values={"model": first.model, "optimizer": first.name, "names": names},
        places=_steps_at(context, group),
        facts=[
            Fact(kind="gradients-differed", values={"steps": len(group.stepped), "names": names}),
            Fact(kind="gradients-agreed", values={"agreed": in_ddp, "watched": len(first.watched)}),
        ],
        confidence="likely" if small and _divides_one_data_set(context) else "possible",
    )


def _divides_one_data_set(context: Context) -> bool:
    this_cell = Program([Document.of(context.snapshot.cell)], context.snapshot.world_size)
    divided = _divided_by_sampler(context) or slices_by_rank(this_cell)
    return divided and not _own_data(context)


def _parts_beside_ddp(context: Context) -> Iterator[dict[int, UsedModule]]:
    """Yield modules that the ranks train outside DDP, and whose equal copies part."""
    for found in replicas.used_on_every_rank(context.snapshot, trained=True):
        firsts = {one.first for one in found.values()}
        lasts = {one.last for one in found.values()}
        if len(firsts) == 1 and len(lasts) > 1 and () not in firsts | lasts:
            yield found


def _part_not_wrapped(context: Context, group: Replicas, part: dict[int, UsedModule]) -> Finding:
    models = [replicas.model_of(context.snapshot, r, o) for r, o in group.ranks.items()]
    wrapped = [model.made for model in models if model is not None and model.made is not None]
    return conclude(
        "D.2.2",
        "part-not-wrapped",
        cause="model-not-wrapped",
        ranks=part,
        values={"model": part[min(part)].name, "optimizer": group.first.name},
        places={rank: context.place(one.where, "called") for rank, one in part.items()},
        facts=[
            *(Fact(kind="other-part-wrapped", place=context.place(at)) for at in wrapped[:1]),
            Fact(kind="equal-at-first-call-only"),
            Fact(kind="sampler-divides"),
        ],
        confidence="likely",
    )


def _reduced_at(context: Context, group: Replicas) -> Iterator[Fact]:
    """Yield the line of each reduction of a tensor with the shape of a parameter."""
    seen = set()
    for rank in group.ranks:
        for call in context.reports[rank].calls:
            operation = known_operation(call.op)
            shapes = {shape_label(shape) for shape in call.shapes}
            if operation is None or not operation.reduces or shapes.isdisjoint(group.first.shapes):
                continue
            place = context.place(call.where, "called")
            if place is None or (place.label, call.root) in seen or call.source != "call log":
                continue
            seen.add((place.label, call.root))
            if call.root is None:
                yield Fact(kind="tensors-reduced-at", place=place)
            else:
                yield Fact(kind="reduced-to", place=place, values={"root": call.root})


def _own_parts(group: Replicas, never: set[int], always: set[int]) -> bool:
    """Whether the unreduced gradients seem to belong to each rank, as a head on a shared trunk."""
    watched = group.first.watched
    variables = [{watched[at].partition(".")[0] for at in part} for part in (never, always)]
    apart = set(group.apart(min(group.states)))
    return variables[0].isdisjoint(variables[1]) or (never <= apart and always.isdisjoint(apart))


def _started_apart(context: Context, group: Replicas, reduced: dict[str, int]) -> Finding | None:
    """Report models that never agree although their gradients agree in every step."""
    first = group.first
    start = min(group.states)
    if group.first_apart != start or start or _compares(context, group):
        return None
    if not all_reduced_together(context, group, reduced):
        return None
    if any(group.gradients_apart(step) for step in group.stepped):
        return None
    apart = [at for at in group.apart(start) if _has_gradients(group, at)]
    if not apart:
        return None
    name = first.watched[apart[0]]
    broadcast = any(communication(context.reports[rank]).broadcast for rank in group.ranks)
    return conclude(
        "D.2.5",
        "copies-start-apart",
        cause="replicas-start-apart",
        ranks=group.ranks,
        places=_steps_at(context, group),
        values={"model": first.model, "optimizer": first.name},
        facts=[
            Fact(kind="apart-throughout", values={"name": name}),
            Fact(kind="gradients-equal", values={"steps": len(group.stepped)}),
            *([] if broadcast else [Fact(kind="no-broadcast")]),
            *_seeded_apart(context, group),
            *([] if group.gone else replicas.how_far(context.snapshot, name)),
        ],
        confidence="likely",
    )


def _in_smaller_groups(context: Context, group: Replicas) -> bool:
    """Whether the cell reduces in groups without some of the ranks: each may train a model."""
    return any(
        call.op == "all_reduce" and call.members and not set(group.ranks) <= set(call.members)
        for rank in group.ranks
        for call in context.reports[rank].calls
    )


def _has_gradients(group: Replicas, position: int) -> bool:
    return all(
        state.gradients[position] != NO_GRADIENT
        for step in group.stepped
        for state in group.states[step].values()
    )


RULES = (unwrapped, updated_by_hand, changed_by_hand, started_apart_by_hand, alone_in_ddp)
HINTS = (perhaps_unwrapped, without_group, perhaps_updated_by_hand)
