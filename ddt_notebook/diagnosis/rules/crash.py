"""Rules about ranks whose process ended."""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context, crash_frames
from ddt_notebook.model import Call, Fact, Finding, Position, RankReport
from ddt_notebook.model.finding import Confidence, Values
from ddt_notebook.model.user_code import is_user_code
from ddt_notebook.program.escape_paths import Reason

from .facts import blocked_in, of_call, of_wait, reasons

_MEMORY = re.compile(
    r"out of memory|\boom\b|memory limit|can't allocate memory|bad_alloc", re.IGNORECASE
)
#: gloo's message for bytes that do not fit into the tensor of the receiving rank.
_OTHER_SIZE = re.compile(r"[Rr]eceived data size doesn't match expected size")
_DETAIL = re.compile(r"\bDebugLevel\.DETAIL\b|TORCH_DISTRIBUTED_DEBUG\W+DETAIL\b")
_FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


def crashes(context: Context) -> Iterator[Finding]:
    """Report ranks that died, unless a mismatch or the session killed them."""
    together: dict[tuple[object, ...], list[RankReport]] = defaultdict(list)
    lost: dict[str, list[int]] = defaultdict(list)
    clashed = context.thread_clash.calls if context.thread_clash is not None else {}
    for rank, report in context.reports.items():
        if report.host_lost:
            lost[report.host].append(rank)
        elif rank in clashed or rank in context.met_nobody:
            continue
        elif report.state == "died" and not report.killed and rank not in context.consequences:
            where = context.label(context.where(rank))
            key = (report.exit_signal, report.exit_code, report.garbled, where)
            together[key].append(report)
    for host, ranks in lost.items():
        yield _lost_host(context, host, ranks)
    for reports in together.values():
        yield _crash(context, reports)


def _lost_host(context: Context, host: str, ranks: list[int]) -> Finding:
    waiting = context.victims(ranks)
    return conclude(
        "D.1.11",
        "host-lost",
        cause="host-lost",
        ranks=ranks,
        waiting=waiting,
        values={"host": host} | of_wait(context, waiting),
        places=context.places([*ranks, *waiting]),
        facts=blocked_in(context, waiting),
    )


def _crash(context: Context, reports: list[RankReport]) -> Finding:
    ranks = [report.rank for report in reports]
    first = reports[0]
    waiting = context.victims(ranks)
    symptom, cause, confidence = _meaning(context, first)
    facts = [
        Fact(kind="process-ended", ranks=(report.rank,), values=ending(report))
        for report in reports
        if not report.garbled
    ]
    if first.abort_text:
        message = " ".join(first.abort_text.split())
        facts.append(Fact(kind="aborted", ranks=(first.rank,), values={"message": message}))
    else:
        frames = crash_frames(first.crash_text)[:1]
        died = [context.place(frame, "died") for frame in frames]
        facts += [Fact(kind="crash-frame", place=at, ranks=(first.rank,)) for at in died]
    if first.memory_bytes and first.exit_signal == signal.SIGKILL and not first.garbled:
        held = {"memory_bytes": first.memory_bytes}
        facts.append(Fact(kind="memory-held", ranks=(first.rank,), values=held))
    call = context.last_call(first.rank)
    if call is not None and call.where is not None:  # else the line is older than the end
        facts.append(
            Fact(
                kind="ended-inside",
                place=context.place(call.where, "died"),
                ranks=(first.rank,),
                values=of_call(context, call, issuer=False),
            )
        )
    facts += [
        Fact(kind="note", values={"note": note})
        for note in context.snapshot.notes
        if _MEMORY.search(note)
    ]
    if cause == "different-collectives":
        others = [rank for rank in context.reports if rank not in ranks]
        found = [_why_skipped(context, first, rank) for rank in others]
        found += [_why_apart(context, first, rank) for rank in others]
        reason = next(filter(None, found), None)
        if reason is not None:
            cause, facts = reason.cause, [*reasons([reason]), *facts]
        facts += _last_collectives(context, others)
    return conclude(
        symptom,
        "garbled" if first.garbled else "died",
        cause=cause,
        ranks=ranks,
        waiting=waiting,
        values=ending(first) | of_wait(context, waiting),
        places=context.places([*ranks, *waiting]),
        facts=[*facts, *blocked_in(context, waiting)],
        confidence=confidence,
        op=call.op if call else "the collective",
    )


def _why_apart(context: Context, died: RankReport, other: int) -> Reason | None:
    """Return why a rank that died did not make the next call of another rank.

    The Flight Recorder's entries of a rank that died are lost, so only logged calls count.
    """
    report = context.reports[other]
    mine, theirs = (
        [one for one in r.calls if one.kind == "collective" and one.source == "call log"]
        for r in (died, report)
    )
    made = {(one.group, one.sequence) for one in mine}
    call = next((one for one in theirs if one.index > _last_common(theirs, made)), None)
    if call is None or call.where is None:
        last = next((one for one in reversed(report.calls) if one.kind == "collective"), None)
        if last is None:
            return None
        observed = context.partings.one_sided(last, report, died, context.where(died.rank))
        return observed or _other_arm(context, last, report, died)
    frames = [frame for frame in crash_frames(died.crash_text) if is_user_code(frame.file)]
    for frame in frames:
        if (frame.file, frame.line) == (call.where.file, call.where.line):
            return None
    # a loop that the rank has left is in the file of one of its frames
    for at in [context.where(died.rank), *frames]:
        reason = context.why_absent(call, report, died, at)
        if reason is not None and not reason.other_branch:
            return reason
    return None


def _why_skipped(context: Context, died: RankReport, other: int) -> Reason | None:
    """Return the condition on the rank that kept another one from the call of a rank that died."""
    report, at = context.reports[other], context.where(died.rank)
    call = next((one for one in reversed(report.calls) if one.kind == "collective"), None)
    if call is None or at is None:
        return None
    reason = context.why_inferred(replace(call, where=at), died, report, context.where(other))
    if reason is None or reason.other_branch:
        return None
    return reason if reason.cause == "collective-under-rank-condition" else None


def _on_to_one_function(
    context: Context, mine: tuple[Position, Position], theirs: tuple[Position, Position]
) -> bool:
    """Whether two lines, in the arms of one condition, led on to one function."""
    function, other = ((one.file, one.function) for one in (mine[1], theirs[1]))
    return function == other and context.ways.are_alternatives(mine[0], theirs[0], function[1])


def _other_arm(context: Context, call: Call, report: RankReport, died: RankReport) -> Reason | None:
    """Return why two ranks stood at different lines of one function that both had called.

    Where branch events are not observed, the source shows the condition between these lines.
    """
    stack = report.stack or (report.error.frames if report.error is not None else ())
    ended = [frame for frame in crash_frames(died.crash_text) if is_user_code(frame.file)]
    inner = [*stack[1:], None]
    for mine, then in zip(
        stack, inner, strict=False
    ):  # the outermost function in which they parted
        for theirs, after in zip(ended, [None, *ended], strict=False):
            same = (mine.file, mine.function) == (theirs.file, theirs.function)
            if same and mine.line != theirs.line:
                if then and after and _on_to_one_function(context, (mine, then), (theirs, after)):
                    break
                reason = context.why_absent(replace(call, where=mine), report, died, theirs)
                if reason is None:  # or the other rank has gone past the line of the one that died
                    reason = context.why_inferred(replace(call, where=theirs), died, report, mine)
                    decided = reason is not None and reason.kind == "decided-by-each-rank"
                    return reason if decided else None
                return reason
    return None


def _last_common(calls: list[Call], made: set[tuple[str, int | None]]) -> int:
    """Return the index of the last call that another rank made as well; -1 if there is none."""
    return max((one.index for one in calls if (one.group, one.sequence) in made), default=-1)


def _last_collectives(context: Context, ranks: list[int]) -> list[Fact]:
    """Return the last collective of each rank: one of them may be the one that did not fit."""
    found = []
    for rank in ranks:
        calls = [call for call in context.reports[rank].calls if call.kind == "collective"]
        if calls:
            called = of_call(context, calls[-1])
            found.append(Fact(kind="last-collective", ranks=(rank,), values=called))
    return found


def _meaning(context: Context, report: RankReport) -> tuple[str, str, Confidence]:
    if report.garbled:
        return "D.1.11", "garbled-connection", "certain"
    number = report.exit_signal
    texts = (report.crash_text, report.abort_text, *context.snapshot.notes)
    if _MEMORY.search("\n".join(texts)):
        return "D.1.2", "out-of-memory", "likely"
    if number in _FAULTS:
        if _in_ddp_with_detail(context, report):
            return "D.1.7", "debug-level-detail", "likely"
        return "D.1.7", "segmentation-fault", "certain"
    if number == signal.SIGABRT:
        if _OTHER_SIZE.search(report.abort_text):
            return "D.1.1", "different-collectives", "likely"
        if not report.abort_text and _parted_on_gloo(context, report):
            return "D.1.1", "different-collectives", "likely"
        call = context.last_call(report.rank)
        if call is not None and call.kind != "setup":
            return "D.1.1", "collective-arguments", "likely"
        return "D.1.7", "native-abort", "certain"
    if number is not None:
        return "D.1.11", "killed-from-outside", "certain"
    return "D.1.11", "process-exit", "certain"


def _parted_on_gloo(context: Context, died: RankReport) -> bool:
    """Whether gloo may have aborted since another rank was in another collective.

    gloo aborts when a message has another size than its collective expects. What it prints then is
    not known of a rank whose output nobody has kept.
    """
    frame = next(iter(crash_frames(died.crash_text)), None)
    if "gloo" not in context.snapshot.backend or frame is None or "/torch/" not in frame.file:
        return False
    others = [rank for rank in context.reports if rank != died.rank]
    return any(_why_apart(context, died, rank) is not None for rank in others)


def _in_ddp_with_detail(context: Context, report: RankReport) -> bool:
    """Whether DDP's constructor crashed on gloo with the most detailed debug level."""
    frame = next(iter(crash_frames(report.crash_text)), None)
    cells = (context.snapshot.cell, *context.snapshot.earlier_cells)
    return (
        frame is not None
        and frame.file.endswith("torch/nn/parallel/distributed.py")
        and frame.function == "_ddp_init_helper"
        and any(_DETAIL.search(cell.source) for cell in cells)
    )


def ending(report: RankReport) -> Values:
    """Return ``signal`` and ``exit_code`` of a process that ended; the unknown one is None."""
    return {"signal": report.exit_signal, "exit_code": report.exit_code}


def deaths(context: Context, ranks: list[int]) -> list[Fact]:
    """Return one fact for each of ``ranks`` that died."""
    reports = [context.reports[rank] for rank in ranks]
    return [
        Fact(kind="died-of-it", ranks=(report.rank,), values=ending(report))
        for report in reports
        if report.state == "died"
    ]


RULES = (crashes,)
