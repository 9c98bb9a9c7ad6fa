"""Whether the ranks reduced the gradients of their replicas, judged by the calls that they made."""

from __future__ import annotations

from dataclasses import replace

from ddt_notebook.model import RankReport
from ddt_notebook.model.frameworks import known_operation, meets_by_tensor
from ddt_notebook.model.training import OptimizerTraining

from .communication import communication
from .context import Context
from .gradients import factor
from .replicas import Replicas


def all_reduced_together(context: Context, group: Replicas, reduced: dict[str, int]) -> bool:
    """Whether all ranks reduced each parameter's gradient in every step and sent nothing else.

    Parameters
    ----------
    reduced
        How often a rank reduced a tensor of each parameter's shape.
    """
    one_by_one = reduced_in_each_step(context, group, reduced)
    if not one_by_one and factor(group, lambda state: state.local) is None:
        return False
    sent = [communication(reducing(context, rank)).broadcast for rank in group.ranks]
    if one_by_one:
        return not any(broadcast[shape] for broadcast in sent for shape in group.first.shapes)
    return not any(map(len, sent))


def reduced_in_each_step(context: Context, group: Replicas, reduced: dict[str, int]) -> bool:
    """Whether tensors of the parameters' shapes were reduced often enough, one by one."""
    steps = steps_of(context, group.first)
    return all(reduced.get(shape, 0) >= n * steps for shape, n in group.first.shapes.items())


def exchanged_by_calls(context: Context, group: Replicas) -> bool:
    """Whether ranks whose own gradients were not observed had equal ones, and reduced them all."""
    if any(state.local for at in group.states.values() for state in at.values()):
        return False
    if any(group.gradients_apart(step) for step in group.stepped):
        return False
    shapes = group.first.shapes
    sent = (communication(reducing(context, rank)) for rank in group.ranks)
    return all(reduced_in_each_step(context, group, one.reductions_of(shapes)) for one in sent)


def reducing(context: Context, rank: int) -> RankReport:
    """What a rank did; where tensors have names, from its first reduction on.

    What was broadcast before may be the optimizer's state: that of the parameters would have made
    them equal.
    """
    report = context.reports[rank]
    if not meets_by_tensor(context.snapshot.framework):
        return report
    reductions = (
        at
        for at, call in enumerate(report.calls)
        if (operation := known_operation(call.op)) is not None and operation.reduces
    )
    return replace(report, calls=report.calls[next(reductions, 0) :])


def steps_of(context: Context, optimizer: OptimizerTraining) -> int:
    """How many steps these parameters took; each round may build a new optimizer for them."""
    return max(
        sum(one.steps for one in training.optimizers if one.watched == optimizer.watched)
        for training in context.snapshot.training
    )
