"""Rules about what DDP does not keep equal: buffers, and copies that are evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.communication import communication, elements
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.kept_states import BEGIN, Kept, Moment, kept
from ddt_notebook.model import Fact, Finding, RankReport
from ddt_notebook.model.collective import shape_label
from ddt_notebook.program.own_buffers import accumulates

from .used_modules import parted, students_agree, written_at

#: A buffer that differs at one moment only may be made equal now and then.
_MOMENTS = 2


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
            if elements(shape) in sent or not _parts(one, at):
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
                Fact(kind="never-sent", values={"name": name}),
                *_saved_alone(context, one),
            ],
            confidence="likely",
        )


def _parts(one: Kept, at: int) -> bool:
    """Whether a buffer was equal on all ranks, and was no longer so from some step on."""
    moments = [moment for moment in one.moments if moment[0] != "begin"]
    begin = {values[at] for values in one.begin.values()}
    differ = [len({values[at] for values in one.moments[m].values()}) > 1 for m in moments]
    return len(begin) == 1 and sum(differ) >= _MOMENTS and differ[-1]


def _sizes_sent(context: Context) -> set[int]:
    """Numbers of elements of the tensors that the program sent, without DDP's calls.

    One broadcast makes a buffer equal at the beginning.
    """
    found: set[int] = set()
    for report in context.reports.values():
        own = [call for call in report.calls if call.source == "call log"]
        times = Counter(
            (elements(shape_label(shape)), call.op) for call in own for shape in call.shapes
        )
        found |= {size for (size, op), n in times.items() if op != "broadcast" or n > 1}
    return found


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


def _saved_alone(context: Context, one: Kept) -> Iterator[Fact]:
    """The line that saves it, if one rank alone does so, on behalf of all."""
    saved = {rank: x.saved for rank, x in one.ranks.items() if x.saved is not None}
    if len(saved) == 1:
        yield from (
            Fact(kind="saved-by-one", ranks=(rank,), place=context.place(where, "called"))
            for rank, where in saved.items()
        )


RULES = (buffers, evaluated)
