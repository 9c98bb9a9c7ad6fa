"""Rules about replicas that should be equal but are not: first step, parameter and cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.communication import communication
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.gradients import shared_and_own
from ddt_notebook.diagnosis.reductions import exchanged_by_calls
from ddt_notebook.diagnosis.replicas import Replicas
from ddt_notebook.model import Fact, Finding, Place
from ddt_notebook.model.finding import Values
from ddt_notebook.model.parity import Disagreement, grouped, minority
from ddt_notebook.model.training import ModelTraining, OptimizerTraining
from ddt_notebook.program.gradients import (
    calls_past_wrapper,
    sets_rate,
    sets_synchronisation,
)
from ddt_notebook.program.parameter_writes import written_in_place
from ddt_notebook.program.parse import Document

from .checkpoints import not_resumed, read_too_early
from .exchanged import scheduled_by_parts

#: Parameters that a program averages itself are sent at least once in this many steps.
_SELDOM = 8


def diverged(context: Context) -> Iterator[Finding]:
    """Report DDP replicas that end the run with different parameters."""
    if _has_another_cause(context):
        return
    for group in replicas.replicas(context.snapshot):
        if group.first.wrapper != "DDP" or _is_special(context, group):
            continue
        if _holds_others(context, group):
            continue  # parameters outside DDP may differ
        if group.first_apart is not None:
            finding = _in_ddp(context, group, group.first_apart)
        elif group.apart_in_training is not None:
            finding = _equal_again(context, group, group.apart_in_training)
        elif _never_averaged(context, group):
            finding = _past_ddp(context, group, None, list(group.ranks))
        else:
            finding = _unwatched(context, group)
        if finding is not None:
            yield finding


def settings_differ(context: Context) -> Iterator[Finding]:
    """Report replicas outside DDP that part although the program gives them equal gradients.

    Equal parameters, and then gradients that the ranks had exchanged: only the settings of the
    optimizers are left. Ranks that try out rates on models of their own exchange no gradients.
    """
    if _has_another_cause(context):
        return
    for group in replicas.replicas(context.snapshot):
        step = group.first_apart
        before = None if group.first.wrapper or step is None else group.before(step)
        if step is None or before is None or group.apart(before):
            continue
        shared, own = shared_and_own(group)
        # of many watched gradients, the first ones are followed; all are compared as used
        used_alike = not any(group.gradients_apart(one) for one in group.stepped)
        if not (shared and not own and used_alike) and not exchanged_by_calls(context, group):
            continue
        at = step if _parted_by_rates(group) else before
        if settings := _differing_settings(group, at):
            yield _different_settings(context, group, step, settings)


def _has_another_cause(context: Context) -> bool:
    """Whether the run failed, or what is reported explains that replicas differ."""
    snapshot = context.snapshot
    if snapshot.outcome != "ok" or any(one.not_finite for one in snapshot.training):
        return True
    if not_resumed(context, "optimizer") or not_resumed(context, "scheduler"):
        return True
    if any(True for _ in read_too_early(context)):
        return True  # a rank loaded what was there before
    return any(found.confidence == "likely" for found in scheduled_by_parts(context))


def _models(context: Context, group: Replicas) -> dict[int, ModelTraining]:
    found = {r: replicas.model_of(context.snapshot, r, o) for r, o in group.ranks.items()}
    return {rank: model for rank, model in found.items() if model is not None}


def _is_special(context: Context, group: Replicas) -> bool:
    """Whether DDP was set up not to average everything in each step; ranks may then differ."""
    models = _models(context, group).values()
    return any(model.communication_hook or model.ignores_parameters for model in models)


def _holds_others(context: Context, group: Replicas) -> bool:
    """Whether the optimizer also steps parameters outside the model in DDP."""
    for rank, model in _models(context, group).items():
        own = set(model.parameters)
        watched = {name.removeprefix(f"{model.name}.") for name in group.ranks[rank].watched}
        if own and len(own) < group.ranks[rank].parameters and not watched <= own:
            return True
    return False


def _in_ddp(context: Context, group: Replicas, step: int) -> Finding | None:
    known = _models(context, group)
    before = group.before(step)
    if before is None:
        return _apart_from_the_start(context, group)
    unequal = [r for r, o in group.ranks.items() if o.synchronised < o.steps]
    settings = _differing_settings(group, step if _parted_by_rates(group) else before)
    if settings:
        return _different_settings(context, group, step, settings)
    if unequal and _averages_itself(context, group):
        return None
    if group.gradients_apart(before):
        if group.out_of_line is not None and group.out_of_line[0] <= before:
            return None  # the ranks' steps used the gradients of different passes
        if unequal:
            if any(model.unsynchronised for model in known.values()):
                return _unsynchronised(context, group, step, unequal)
            return _past_ddp(context, group, step, unequal)
        return _gradients_differ(context, group, step, before)
    return _changed(context, group, step)


def _equal_again(context: Context, group: Replicas, step: int) -> Finding | None:
    """Report settings that kept ranks apart until all loaded a checkpoint at the end."""
    before = group.before(step)
    settings = _differing_settings(group, before) if before is not None else {}
    return _different_settings(context, group, step, settings) if settings else None


def _never_averaged(context: Context, group: Replicas) -> bool:
    """Whether DDP's group was given too few operations to average any step's gradients.

    The ranks' parameters may still agree: equal seeds give equal batches, such as of made-up data.
    """
    if len(group.first.members) < 2 or set(group.first.members) != set(group.ranks):
        return False
    for rank, one in group.ranks.items():
        given = one.group_operations
        if one.synchronised or given is None or given >= max(group.stepped, default=0):
            return False
        report = context.reports[rank]
        own = tuple(call for call in report.calls if call.source == "call log")
        if communication(replace(report, calls=own)).is_opaque(one.shapes):
            return False  # ranks may average in another group
        if rank in _models(context, group):
            return False  # a pass through DDP was observed
    return bool(group.stepped) and not _averages_itself(context, group)


def _averages_itself(context: Context, group: Replicas) -> bool:
    """Whether the cell reduces or broadcasts the parameters, as local SGD does."""
    shapes = group.first.shapes
    for rank in group.ranks:
        sent = communication(context.reports[rank])
        often = group.ranks[rank].steps // _SELDOM
        if sent.reductions_of(shapes):
            return True
        if any(sent.broadcast[shape] > often * times for shape, times in shapes.items()):
            return True  # what is sent more seldom only makes copies equal at the beginning
    return False


# -- the causes, one by one ------------------------------------------------------------------------


def _different_settings(
    context: Context, group: Replicas, step: int, settings: dict[str, dict[int, str]]
) -> Finding:
    name, values = next(iter(settings.items()))
    scheduled = _scheduled_apart(group) if name == "lr" else {}
    return conclude(
        "D.2.5",
        "settings-differ",
        cause="ranks-diverged-learning-rate",
        ranks=group.deviating(values.get),
        places=_scheduled_at(context, group)
        if scheduled or (name == "lr" and _parted_by_schedules(group))
        else (name == "lr" and _set_by_hand(context, group)) or _places(context, group, made=True),
        values=_moment(group, step) | {"setting": name},
        facts=[
            *_course(context, group, step),
            *(
                Fact(kind="setting", ranks=tuple(ranks), values={"setting": name, "value": value})
                for value, ranks in grouped(values).items()
            ),
            *(
                Fact(kind="scheduler-stepped", ranks=tuple(ranks), values={"steps": steps})
                for steps, ranks in grouped(scheduled).items()
            ),
        ],
    )


def _scheduled_apart(group: Replicas) -> dict[int, int]:
    """Return how often each rank's schedulers stepped; empty if equally often."""
    found = {r: sum(s.steps for s in one.schedules) for r, one in group.ranks.items()}
    return found if len(set(found.values())) > 1 else {}


def _parted_by_rates(group: Replicas) -> bool:
    """Whether the rates of the step at which the ranks were seen apart may have parted them.

    Between two sampled steps, nothing but the schedules is known to have done so.
    """
    if _scheduled_apart(group):
        return True
    return _parted_by_schedules(group) and not any(
        one.changed_before for one in group.ranks.values()
    )


def _set_by_hand(context: Context, group: Replicas) -> dict[int, Place | None]:
    """Return the line that sets the rate, if no schedule does and the rates were equal at first."""
    states = group.states[min(group.states)]
    first = {one.made_rates or states[rank].rates for rank, one in group.ranks.items()}
    place = sets_rate(context.program)
    if len(first) > 1 or place is None or any(one.schedules for one in group.ranks.values()):
        return {}
    return dict.fromkeys(group.ranks, place)


def _parted_by_schedules(group: Replicas) -> bool:
    """Whether the rates were equal at first, and every rank's schedules may have changed them."""
    first = {state.rates for state in group.states[min(group.states)].values()}
    return len(first) == 1 and all(one.schedules for one in group.ranks.values())


def _scheduled_at(context: Context, group: Replicas) -> dict[int, Place | None]:
    return {
        rank: context.place(schedule.where, "called")
        for rank, one in group.ranks.items()
        for schedule in one.schedules[:1]
    }


def _unsynchronised(context: Context, group: Replicas, step: int, ranks: list[int]) -> Finding:
    first = group.ranks[ranks[0]]
    missing = first.steps - first.synchronised
    places = {}
    for rank, model in _models(context, group).items():
        if rank in ranks and model.unsynchronised_where is not None:
            places[rank] = context.place(model.unsynchronised_where, "runs")
    return conclude(
        "D.2.2",
        "no-sync-left-on",
        cause="no-sync-left-on",
        ranks=ranks,
        places=places,
        values={"optimizer": first.name, "steps": first.steps, "averaged": first.synchronised},
        facts=[
            Fact(kind="inside-no-sync", values={"steps": missing}),
            *_entered(context, group, ranks[0]),
            *_course(context, group, step),
        ],
        confidence="likely",
    )


def _entered(context: Context, group: Replicas, rank: int) -> Iterator[Fact]:
    model = _models(context, group).get(rank)
    if model is None:
        return
    if model.no_sync_where is not None:
        yield Fact(kind="no-sync-entered", place=context.place(model.no_sync_where, "called"))
    elif model.unsynchronised_where is not None:
        place = sets_synchronisation(context.program, model.unsynchronised_where)
        if place is not None:
            yield Fact(kind="synchronisation-set", place=place)


def _past_ddp(context: Context, group: Replicas, step: int | None, ranks: list[int]) -> Finding:
    first = group.ranks[ranks[0]]
    places = {one.rank: context.place(one.where, "runs") for one in context.snapshot.training}
    calls = _calls_past_wrapper(context)
    # an earlier cell may hold such a call that this one does not make
    own = [call for call in calls if call.file == context.snapshot.cell.name]
    seen = {
        one.rank: context.place(one.called_past, "called")
        for one in context.snapshot.training
        if one.called_past is not None
    }
    if set(ranks) <= set(seen):
        places |= seen
    elif own or (calls and step is not None):
        places = dict.fromkeys(ranks, (own or calls)[0])
    return conclude(
        "D.2.2",
        "trained-past-ddp",
        cause="module-called-past-ddp",
        ranks=ranks,
        places={rank: place for rank, place in places.items() if rank in ranks},
        values={"model": first.model, "optimizer": first.name},
        facts=[
            Fact(
                kind="forward-through-ddp",
                values={"averaged": first.synchronised, "steps": first.steps},
            ),
            *([Fact(kind="inner-model-called", place=calls[0])] if calls else []),
            *(_course(context, group, step) if step is not None else []),
        ],
        confidence="likely",
    )


def _calls_past_wrapper(context: Context) -> list[Place]:
    return calls_past_wrapper(context.program, Document.of(context.snapshot.cell).name)


def _gradients_differ(context: Context, group: Replicas, step: int, before: int) -> Finding | None:
    first = group.first
    models = _models(context, group)
    if len(models) == len(group.ranks) and all(one.not_averaged for one in models.values()):
        return _not_averaged(context, group, models, step)
    missing = [
        rank
        for rank, state in group.states[before].items()
        # without any gradient, the rank has removed those that DDP had averaged
        if 0 < state.with_gradient < group.ranks[rank].trainable
    ]
    if missing:
        state = group.states[before][missing[0]]
        lacking = first.trainable - state.with_gradient
        return conclude(
            "D.2.4",
            "averaging-incomplete",
            cause="unused-parameter-in-last-step",
            ranks=missing,
            places=_places(context, group),
            values={"model": first.model, "step": before + 1, "parameters": lacking},
            facts=[
                Fact(
                    kind="parameters-with-gradient",
                    ranks=tuple(missing),
                    values={"with_gradient": state.with_gradient, "trainable": first.trainable},
                ),
                *_course(context, group, step),
                Fact(kind="ddp-reports-later"),
            ],
            confidence="likely",
        )
    if any(call.cell == context.snapshot.cell.number for call in _calls_past_wrapper(context)):
        # DDP was then called for something else, such as an evaluation
        return _past_ddp(context, group, step, list(group.ranks))
    return conclude(
        "D.2.4",
        "gradients-changed",
        cause="gradients-changed-after-averaging",
        ranks=group.deviating(lambda rank: group.states[before][rank].gradients),
        values=_moment(group, step),
        places=_places(context, group),
        facts=_course(context, group, step),
        confidence="likely",
    )


def _not_averaged(
    context: Context, group: Replicas, models: dict[int, ModelTraining], step: int
) -> Finding:
    first = models[min(models)]
    return conclude(
        "D.2.2",
        "trained-but-not-averaged",
        cause="unfrozen-after-ddp",
        ranks=group.ranks,
        values={"model": first.name, "names": list(first.not_averaged)},
        places={rank: context.place(one.made, "created") for rank, one in models.items()},
        facts=[
            Fact(kind="averaged-as-built", values={"names": list(first.not_averaged)}),
            *_course(context, group, step),
        ],
        confidence="likely",
    )


def _changed(context: Context, group: Replicas, step: int) -> Finding | None:
    """Report parameters that differ after equal gradients and settings: other code wrote them."""
    writes = {rank: _written_before(group, one, step) for rank, one in group.ranks.items()}
    changed = [rank for rank, write in writes.items() if write is not None]
    identified = bool(changed) and len(changed) < len(group.ranks)
    state = _differing_state(context, group)
    if step and not identified and state:
        return conclude(
            "D.2.5",
            "optimizer-state-differs",
            cause="ranks-diverged-learning-rate",
            ranks=minority(state[0].groups.values()),
            places=_places(context, group, made=True),
            values=_moment(group, step),
            facts=[
                Fact(kind="state-differs", values={"name": state[0].name}),
                *_course(context, group, step),
            ],
            confidence="likely",
        )
    ranks = changed if identified else group.deviating(lambda r: group.states[step][r].values)
    facts = _course(context, group, step)
    if identified:
        values = {"step": writes[changed[0]]}
        facts.insert(0, Fact(kind="written-alone", ranks=tuple(changed), values=values))
    places = _changed_at(context, group, step)
    seen = any(one is not None and one.role == "changes" for one in places.values())
    written = [] if seen else _written_at(context, group.first.watched[group.apart(step)[0]])
    return conclude(
        "D.2.5",
        "parameters-changed",
        cause="model-reset-on-one-rank",
        ranks=ranks,
        places=places,
        values=_moment(group, step),
        facts=[*facts, *written, Fact(kind="ddp-equalises-once")],
        # another write than the last one may have changed nothing
        confidence="certain" if identified and step in writes.values() else "likely",
    )


def _differing_state(context: Context, group: Replicas) -> list[Disagreement]:
    """Return optimizer state, such as momentum, that only some ranks loaded or reset."""
    decays = any(
        name.startswith("weight_decay") and value not in ("0", "0.0")
        for name, value in group.first.settings.items()
    )
    if decays or group.gone:  # with decay, different parameters also cause different state
        return []
    return replicas.differing(context.snapshot, f"{group.first.name}.state", "state")


def _unwatched(context: Context, group: Replicas) -> Finding | None:
    """Report a parameter without fingerprints during the run that differs at the end."""
    first = group.first
    if group.gone:
        return _not_optimized(context, group)
    found = [
        item
        for item in replicas.differing(context.snapshot, first.model, "parameter")
        if set(item.deviating) | set(item.agreeing) == set(group.ranks)
    ]
    if not found or any(o.synchronised < o.steps for o in group.ranks.values()):
        return None
    changed = [rank for rank, o in group.ranks.items() if o.changed_before]
    identified = bool(changed) and len(changed) < len(group.ranks)
    ranks = changed if identified else minority(found[0].groups.values())
    return conclude(
        "D.2.5",
        "parameters-changed-unwatched",
        cause="model-reset-on-one-rank",
        ranks=ranks,
        places=_places(context, group),
        values={"model": first.model, "name": found[0].name},
        facts=[
            Fact(
                kind="differ-at-the-end",
                values={"parameters": len(found), "name": found[0].name},
            ),
            *([Fact(kind="written-alone", ranks=tuple(changed))] if identified else []),
            Fact(kind="ddp-equalises-once"),
        ],
        confidence="likely",
    )


def _not_optimized(context: Context, group: Replicas) -> Finding | None:
    """Report parameters of the model in DDP that no optimizer holds and that ranks set apart."""
    known, first = _models(context, group), group.first
    names = known[min(known)].parameters if known else ()
    if len(known) < len(group.ranks) or any(
        (one.parameters, len(one.values)) != (names, len(names)) for one in known.values()
    ):
        return None
    apart = [
        name
        for at, name in enumerate(names)
        if len({one.values[at] for one in known.values()}) > 1
        and f"{first.model}.{name}" not in first.watched
    ]
    if not apart or len(first.watched) < first.parameters:
        return None
    return conclude(
        "D.2.5",
        "frozen-parameters-apart",
        cause="model-reset-on-one-rank",
        ranks=group.ranks,
        places=_places(context, group),
        values={"model": first.model, "names": apart},
        facts=[
            Fact(kind="no-optimizer-holds"),
            *_written_at(context, f"{first.model}.{apart[0]}"),
            Fact(kind="ddp-equalises-once"),
        ],
        confidence="likely",
    )


def _written_at(context: Context, name: str) -> list[Fact]:
    """Return the line that writes into a parameter in place, if the program has one such line."""
    cell = Document.of(context.snapshot.cell).name
    lines = written_in_place(context.program, name)
    lines = [one for one in lines if one.file == cell] or lines  # an earlier cell's may be old
    return [Fact(kind="written-in-place", place=lines[0])] if len(lines) == 1 else []


def _apart_from_the_start(context: Context, group: Replicas) -> Finding | None:
    step = min(group.states)
    if any(step in optimizer.changed_before for optimizer in group.ranks.values()):
        return _changed(context, group, step)
    return conclude(
        "D.2.5",
        "apart-before-this-cell",
        cause="ranks-diverged-earlier",
        ranks=group.deviating(lambda rank: group.states[step][rank].values),
        values={"model": group.first.model},
        places=_places(context, group),
        facts=_course(context, group, step),
        confidence="likely",
    )


# -- facts -----------------------------------------------------------------------------------------


def _course(context: Context, group: Replicas, step: int) -> list[Fact]:
    """Return which parameter differs since which step, and by how much at the end."""
    name = group.first.watched[group.apart(step)[0]]
    sides = grouped({rank: state.values for rank, state in group.states[step].items()})
    values = _moment(group, step) | {
        "name": name,
        "equal_at": group.before(step),
        "sides": tuple(map(tuple, sides.values())),
    }
    distance = [] if group.gone else replicas.how_far(context.snapshot, name)
    return [Fact(kind="apart-since", values=values), *distance]


def _moment(group: Replicas, step: int) -> Values:
    """Return the step of the optimizer after which the ranks were first seen apart."""
    return {"model": group.first.model, "optimizer": group.first.name, "step": step}


def _differing_settings(group: Replicas, until: int) -> dict[str, dict[int, str]]:
    """Return settings that differ between ranks, with each rank's value; learning rate first."""
    found: dict[str, dict[int, str]] = {}
    for step, at in group.states.items():
        rates = {rank: _shown(state.rates) for rank, state in at.items()}
        if step <= until and len(set(rates.values())) > 1:
            found.setdefault("lr", rates)
    for name in dict.fromkeys(n for o in group.ranks.values() for n in o.settings):
        values = {rank: o.settings.get(name, "none") for rank, o in group.ranks.items()}
        if len(set(values.values())) > 1:
            found.setdefault(name.partition("[")[0], values)
    return found


def _shown(rates: tuple[float, ...]) -> str:
    """``0.1``, or ``0.1, 0.01`` if those of the parameter groups differ."""
    shown = [f"{rate:.6g}" for rate in rates]
    return ", ".join(shown if len(set(shown)) > 1 else shown[:1])


def _written_before(group: Replicas, one: OptimizerTraining, step: int) -> int | None:
    """The step before which other code first wrote a rank's parameters since ranks were equal.

    Not every step is looked at: the ranks were seen equal some steps before.
    """
    equal = group.before(step)
    since = -1 if equal is None else equal
    return next((write for write in one.changed_before if since < write <= step), None)


def _changed_at(context: Context, group: Replicas, step: int) -> dict[int, Place | None]:
    """Return the line that changed the parameters before a step, else that of the step."""
    found = _places(context, group)
    for rank, one in group.ranks.items():
        lines = dict(zip(one.changed_before, one.changed_at, strict=False))
        write = _written_before(group, one, step)
        if write is not None and (line := lines.get(write)) is not None:
            found[rank] = context.place(line, "changes")
    return found


def _places(context: Context, group: Replicas, *, made: bool = False) -> dict[int, Place | None]:
    return {rank: _place(context, optimizer, made) for rank, optimizer in group.ranks.items()}


def _place(context: Context, optimizer: OptimizerTraining, made: bool) -> Place | None:
    if made and optimizer.made is not None:
        return context.place(optimizer.made, "created")
    return context.place(optimizer.where, "steps")


RULES = (diverged, settings_differ)
