"""Rules about what DDP does not keep equal: buffers, and copies that are evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.communication import communication, elements
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.kept_states import (
    BEGIN,
    Kept,
    Moment,
    kept,
    moments_of,
    parts,
    plain,
    stay_apart,
)
from ddt_notebook.model import Fact, Finding, RankReport
from ddt_notebook.model.collective import shape_label
from ddt_notebook.model.training import KeptState, PlainState
from ddt_notebook.program.own_buffers import accumulates
from ddt_notebook.program.running_values import moving_averages, normalisers

from .used_modules import parted, students_agree, written_at

#: A running mean is often sent together with its variance and count.
_TOGETHER = 3


def buffers(context: Context) -> Iterator[Finding]:
    """Report buffers that each rank updates from its own batches, and that the loss depends on."""
    if context.snapshot.outcome != "ok" or any(x.not_finite for x in context.snapshot.training):
        return
    if not students_agree(context):
        return
    sent = _sizes_sent(context)
    for one in kept(context.snapshot):
        first, skip = one.first, len(one.first.parameters)
        if not all(x.wrapped or x.graded for x in one.ranks.values()) or not one.begin:
            continue
        found = {}
        for at, (name, shape) in enumerate(zip(first.buffers, first.shapes, strict=False), skip):
            if elements(shape) in sent or not parts(one.moments, at):
                continue
            if lines := accumulates(context.program, name.rpartition(".")[2]):
                found[name] = lines
        if not found:
            continue
        name, lines = next(iter(found.items()))
        places = [place for known in found.values() for place in known]
        yield conclude(
            "D.2.5",
            "buffer-apart",
            cause="buffer-updated-by-each-rank",
            ranks=one.ranks,
            values={"model": first.name, "name": name},
            places=dict.fromkeys(one.ranks, lines[0]),
            facts=[
                Fact(kind="equal-before-first-pass", values={"names": list(found)}),
                *(Fact(kind="updated-from-before", place=place) for place in places[1:3]),
                *_never_sent(context, name, first.shapes[first.buffers.index(name)]),
                *_saved_alone(context, one.ranks),
            ],
            confidence="likely",
        )


def _sizes_sent(context: Context) -> set[int]:
    """Numbers of elements of tensors with which the program may make states equal, now and then.

    One broadcast makes a buffer equal at the beginning. What is sent in every step and leaves
    states apart does not make them equal. Calls of DDP do not count.
    """
    found: set[int] = set()
    steps = max((o.steps for x in context.snapshot.training for o in x.optimizers), default=0)
    for report in context.reports.values():
        own = [call for call in report.calls if call.source == "call log"]
        times: Counter[tuple[int, str]] = Counter()
        for call in own:
            times.update((elements(shape_label(shape)), call.op) for shape in call.shapes)
        counted: Counter[int] = Counter()
        for (size, op), n in times.items():
            counted[size] += n if op != "broadcast" or n > 1 else 0
        found |= {size for size, n in counted.items() if 0 < n < steps}
    return found


def plain_states(context: Context) -> Iterator[Finding]:
    """Report running values in plain objects that each rank updates from its own data."""
    if context.snapshot.outcome != "ok" or any(x.not_finite for x in context.snapshot.training):
        return
    if not _train_equally(context) or any("object" in op for op in _own_operations(context)):
        return
    sent = _sizes_sent(context)
    for ranks in plain(context.snapshot):
        first = ranks[min(ranks)]
        moments = moments_of({r: x.samples for r, x in ranks.items()}, len(first.values))
        names = [
            name
            for at, (name, shape) in enumerate(zip(first.values, first.shapes, strict=True))
            if stay_apart(moments, at)
            and not any(elements(shape) * many in sent for many in range(1, _TOGETHER + 1))
        ]
        places = normalisers(context.program, names)
        # other values that move by parts are those of an environment, or are only shown
        if not places and any(one.saved is not None for one in ranks.values()):
            large = [n for n, s in zip(first.values, first.shapes, strict=True) if elements(s) > 1]
            places = [
                place
                for name in names
                if name in large
                for place in moving_averages(context.program, name)
            ]
        if not places:
            continue
        yield conclude(
            "D.2.5",
            "plain-state-apart",
            cause="state-kept-by-each-rank",
            ranks=ranks,
            values={"object": first.name, "names": names},
            places=dict.fromkeys(ranks, places[0]),
            facts=[
                Fact(kind="values-apart", values={"names": names}),
                *(Fact(kind="updated-from-before", place=place) for place in places[1:3]),
                *_never_sent(context, names[0], first.shapes[first.values.index(names[0])]),
                *_saved_alone(context, ranks),
            ],
            confidence="likely",
        )


def _train_equally(context: Context) -> bool:
    """Whether all ranks trained the same model in the same way, in DDP or by hand."""
    if students_agree(context):
        return True
    groups = replicas.replicas(context.snapshot)
    return bool(groups) and all(
        len(group.ranks) == len(context.snapshot.ranks)
        and group.stepped
        and group.first_apart is None
        and not any(group.gradients_apart(step) for step in group.stepped)
        for group in groups
    )


def _own_operations(context: Context) -> set[str]:
    return {
        call.op
        for report in context.reports.values()
        for call in report.calls
        if call.source == "call log"
    }


def statistics(context: Context) -> Iterator[Finding]:
    """Report running statistics of a copy that each rank counts on its own data and uses then."""
    if context.snapshot.outcome != "ok" or any(x.not_finite for x in context.snapshot.training):
        return
    if not students_agree(context):
        return
    for one in kept(context.snapshot):
        first, skip = one.first, len(one.first.parameters) + len(one.first.buffers)
        used = one.moments_of("counted")
        if not used or any(x.trained or not x.counting for x in one.ranks.values()):
            continue
        apart = [at for at in one.apart(used[-1]) if at >= skip]
        if not apart or any(at < len(first.parameters) for at in one.apart(used[-1])):
            continue  # where weights differ, this is not the cause
        yield conclude(
            "D.2.4",
            "copy-statistics-apart",
            cause="batch-norm-statistics-apart",
            ranks=one.ranks,
            values={"model": first.name},
            places={r: context.place(x.counted_at, "called") for r, x in one.ranks.items()},
            facts=[
                Fact(
                    kind="statistics-differ",
                    values={
                        "statistics": len(apart),
                        "name": f"{first.name}.{first.statistics[apart[0] - skip]}",
                    },
                ),
                Fact(kind="evaluated-at", place=context.place(used[-1][3], "called")),
            ],
            confidence="likely",
        )


def evaluated(context: Context) -> Iterator[Finding]:
    """Report averaged copies that every rank evaluates, and that differ between the ranks."""
    if context.snapshot.outcome != "ok" or any(x.not_finite for x in context.snapshot.training):
        return
    if not students_agree(context):
        return
    reported = {finding.values.get("model") for finding in parted(context)}
    digests = {m.shapes_digest for one in context.snapshot.training for m in one.models}
    for one in kept(context.snapshot):
        first = one.first
        if not first.parameters or first.name in reported or not one.begin:
            continue
        if any(x.trained or not x.evaluated for x in one.ranks.values()):
            continue
        if any(_broadcasts(report) for report in context.reports.values()):
            continue  # the program itself may make the copies equal, now and then
        moments = one.moments_of("evaluation")
        if not moments or not _parameters_apart(one, moments[-1]):
            continue
        changed = {
            rank: one.moments[moments[-1]][rank][: len(first.parameters)]
            != one.begin[rank][: len(first.parameters)]
            for rank in one.ranks
        }
        equal = not _parameters_apart(one, BEGIN)
        if not equal and (first.shapes_digest not in digests or not all(changed.values())):
            continue  # models of each rank's own
        left = [rank for rank, has in changed.items() if not has]
        if len(left) == len(changed):
            continue
        kind = "evaluated-copy-apart" if equal else "evaluated-copy-starts-apart"
        known = "equal-before-first-pass" if equal else "apart-before-first-pass"
        yield conclude(
            "D.2.5",
            "evaluated-copy-left-behind" if left else kind,
            cause="teacher-differs",
            ranks=left or one.ranks,
            values={"model": first.name}
            | ({"others": tuple(r for r in one.ranks if r not in left)} if left else {}),
            places=dict.fromkeys(one.ranks, context.place(moments[-1][3], "called")),
            facts=[
                *written_at(context, one.ranks),
                Fact(kind=known, values={"names": [first.name]}),
            ],
            confidence="likely",
        )


def _broadcasts(report: RankReport) -> bool:
    return any(elements(shape) > 1 for shape in communication(report).broadcast)


def _parameters_apart(one: Kept, moment: Moment) -> bool:
    return any(at < len(one.first.parameters) for at in one.apart(moment))


def _never_sent(context: Context, name: str, shape: str) -> Iterator[Fact]:
    sent = {
        elements(shape_label(one))
        for report in context.reports.values()
        for call in report.calls
        if call.source == "call log" and call.op != "broadcast"
        for one in call.shapes
    }
    if elements(shape) not in sent:
        yield Fact(kind="never-sent", values={"name": name})


def _saved_alone(
    context: Context, ranks: Mapping[int, KeptState] | Mapping[int, PlainState]
) -> Iterator[Fact]:
    """The line that saves it, if one rank alone does so, on behalf of all."""
    saved = {rank: x.saved for rank, x in ranks.items() if x.saved is not None}
    if len(saved) == 1:
        yield from (
            Fact(kind="saved-by-one", ranks=(rank,), place=context.place(where, "called"))
            for rank, where in saved.items()
        )


RULES = (buffers, plain_states, statistics, evaluated)
