"""Rules about learning rates whose names show that they were chosen for one process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.replicas import Replicas
from ddt_notebook.model import Fact, Finding, Position
from ddt_notebook.model.training import OptimizerTraining, Schedule
from ddt_notebook.program.nodes import argument, last_name
from ddt_notebook.program.scaled_batches import batch_may_be_shared, grows_with_ranks

_ONE = r"(base|single|one|reference|ref|local|per_(gpu|device|rank|worker))"
_DEVICE = r"(_?(gpu|device|rank|process|worker))?"
_RATE = r"(lr|learning_rate)"
#: ``base_lr``, ``single_gpu_lr``, ``lr_one_gpu``: names of rates for one process.
_FOR_ONE = re.compile(rf"({_ONE}{_DEVICE}_{_RATE}|{_RATE}_(for_)?{_ONE}{_DEVICE})", re.IGNORECASE)

#: What may be the rate of one process, or the one on which a schedule is based.
_BASE = re.compile(r"base|ref", re.IGNORECASE)


def unscaled(context: Context) -> Iterator[Finding]:
    """Report, as a hint, SGD on several ranks with a rate that is named as that of one rank.

    Such a rate fits if each rank takes a part of the batch of one process.
    """
    if context.snapshot.outcome != "ok":
        return
    for group in replicas.replicas(context.snapshot):
        made = group.first.made
        if group.first.wrapper != "DDP" or group.first.kind != "SGD" or made is None:
            continue
        given = _rate_for_one(context, made)
        rates = [state.rates[0] for o in group.ranks.values() for state in o.states if state.rates]
        if given is None or not rates or max(rates) > rates[0]:
            continue
        if _BASE.search(last_name(given)) and (len({*rates}) > 1 or group.first.schedules):
            continue  # it may be the base of the schedule
        if not (batch_may_be_shared(context.program) or grows_with_ranks(context.program, given)):
            yield _hint(context, group, last_name(given), rates[0])


def scheduled_too_often(context: Context) -> Iterator[Finding]:
    """Report, as a hint, schedules that end early, since every rank's steps were counted."""
    if context.snapshot.outcome != "ok":
        return
    for group in replicas.replicas(context.snapshot):
        size = len(group.ranks)
        over = {
            rank: found
            for rank, one in group.ranks.items()
            if (found := _early_end(one, size)) is not None
        }
        if len(over) < size:
            continue
        first = over[min(over)]
        yield conclude(
            "D.2.5",
            "schedule-over-early",
            cause="scheduler-stepped-per-process",
            ranks=group.ranks,
            values={"schedule": first.kind, "size": size, "optimizer": group.first.name},
            places={rank: context.place(one.where, "called") for rank, one in over.items()},
            facts=[
                Fact(
                    kind="schedule-steps",
                    values={
                        "schedule": first.kind,
                        "scheduled": first.steps,
                        "steps": group.first.steps,
                        "end": first.end,
                    },
                )
            ],
            confidence="possible",
        )


def _early_end(one: OptimizerTraining, size: int) -> Schedule | None:
    """Return a schedule that takes ``size`` steps for each of the optimizer's and is over."""
    for schedule in one.schedules:
        if abs(schedule.steps - size * one.steps) > size or one.steps <= size:
            continue
        rates = [state.rates for state in one.states if state.gradients and state.rates]
        stands = bool(rates) and not any(rates[-1])
        if stands or (schedule.end is not None and schedule.steps > schedule.end + size):
            return schedule
    return None


def _hint(context: Context, group: Replicas, name: str, rate: float) -> Finding:
    size = len(group.first.members or group.ranks)
    return conclude(
        "D.2.5",
        "rate-not-scaled",
        cause="learning-rate-not-scaled",
        ranks=group.ranks,
        values={"optimizer": group.first.name, "name": name, "rate": rate, "size": size},
        places={rank: context.place(o.made, "created") for rank, o in group.ranks.items()},
        facts=[
            Fact(kind="rate-never-rose", values={"rate": rate}),
            Fact(kind="batches-in-a-step", values={"size": size}),
        ],
        confidence="possible",
    )


def _rate_for_one(context: Context, made: Position) -> ast.expr | None:
    """Return the variable that is passed as ``lr`` at a line, if its name is that for one rank."""
    given = (argument(call, 1, "lr") for call in context.program.calls_at(made))
    return next((one for one in given if _FOR_ONE.fullmatch(last_name(one))), None)


HINTS = (unscaled, scheduled_too_often)
