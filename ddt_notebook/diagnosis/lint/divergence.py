"""Rules about calls that not all ranks make, or in which ranks wait for each other forever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ddt_notebook.program.deadlock import Deadlock, Stuck, deadlock
from ddt_notebook.program.project import Project
from ddt_notebook.program.trace import OPTIMIZER_STEPS, Kind, Risk
from ddt_notebook.program.trace_comparison import Divergence, Reason, divergences
from ddt_notebook.program.traced_program import Passage, TracedProgram

from . import proof
from .foreseen import Foreseen, foreseen, possible, shown, unless_doubted

#: Why ranks make different calls -> kind of the finding, card, and the fact that the line of the
#: condition shows.
_REASONS = {
    Reason.RANK_CONDITION: (
        "some-ranks-call", "collective-under-rank-condition", "keeps-some-ranks"
    ),
    Reason.LOCAL_CONDITION: (
        "each-rank-decides-call", "collective-under-local-condition", "decided-on-each-rank"
    ),
    Reason.RANK_EXIT: (
        "some-ranks-leave-before", "early-exit-on-rank-condition", "lets-some-ranks-leave"
    ),
    Reason.CLOCK_LOOP: ("clock-decides-calls", "loop-ends-by-clock", "depends-on-own-clock"),
    Reason.UNEVEN_LOOP: ("uneven-calls", "uneven-iterations", "uneven-loop"),
    Reason.EXCEPTION_CAUGHT: ("handler-misses-call", "exception-swallowed", "goes-on-without-it"),
    Reason.DIFFERENT_CALLS: ("branches-differ", "different-collectives", "sends-two-ways"),
    Reason.DIFFERENT_GROUPS: ("groups-differ", "different-groups", ""),
    Reason.SWAPPED: ("order-differs", "swapped-collectives", "sends-two-ways"),
    Reason.ROOT_DIFFERS: ("roots-differ", "root-differs", ""),
    Reason.REDUCE_OP_DIFFERS: ("reduce-ops-differ", "reduce-op-differs", ""),
    Reason.UNKNOWN: ("some-ranks-call", "rank-skips-collective", ""),
}  # fmt: skip
#: Why ranks wait forever -> kind of the finding, card.
_DEADLOCKS = {
    Stuck.ALL_RECEIVE: ("all-receive-first", "both-sides-wait"),
    Stuck.CYCLE: ("message-against-collective", "wait-cycle"),
    Stuck.TAG_DIFFERS: ("tag-never-sent", "message-tags-differ"),
    Stuck.NEVER_SENT: ("message-never-sent", "message-without-partner"),
    Stuck.GROUPS_CROSSED: ("groups-crossed", "groups-in-opposite-order"),
}
#: A program with messages may be written for any of these world sizes.
_WORLD_SIZES = (2, 3, 4)


def some_ranks_call(program: TracedProgram) -> Iterator[Foreseen]:
    """Report calls that some ranks never reach, or make with other arguments."""
    seen: set[tuple[Reason, int]] = set()
    for passage in program.passages:
        for one in divergences(passage.traces):
            noted = passage.traces[0].of(Kind.HANDLER_SKIPS_CALL)
            if one.reason is Reason.EXCEPTION_CAUGHT and noted:
                continue  # `after_exception` reports it
            explained = any(line == one.line for _, line in seen)
            if one.reason is Reason.UNKNOWN and explained:
                continue
            if (one.reason, one.line) not in seen:
                seen.add((one.reason, one.line))
                found = _diverging(one, sure=one.sure and passage.called)
                yield unless_doubted(found, _is_proved(program, passage, one))


#: Reasons that are facts about the rank, which differs whoever calls the function.
_BY_RANK = (Reason.RANK_CONDITION, Reason.RANK_EXIT, Reason.DIFFERENT_CALLS)
#: Reasons with two known paths or values, one for each of two ranks.
_BY_VALUES = (Reason.DIFFERENT_GROUPS, Reason.ROOT_DIFFERS, Reason.REDUCE_OP_DIFFERS)


def _is_proved(program: TracedProgram, passage: Passage, one: Divergence) -> bool:
    """Whether the source proves that ranks differ, whoever imports it.

    What happens between two functions is seldom known: an unknown condition may guard the call, the
    program may exclude that both hold, and another function may make the call that is missing.
    """
    lines = [line for line in (one.line, one.decided_at, one.unsure_at) if line]
    if one.reason is Reason.UNKNOWN or any(map(Project.is_elsewhere, lines)):
        return False
    by_rank = one.reason in _BY_RANK
    if proof.is_cell(program):
        if by_rank and proof.is_called_elsewhere(program, one.op, one.line):
            return False
        guarded = one.unsure_at > 0
        return not guarded or proof.in_one_function(program, one.unsure_at, one.decided_at)
    if one.reason in _BY_VALUES:
        return passage.called
    if one.reason is Reason.EXCEPTION_CAUGHT:
        return False  # no line proves that it raises
    together = proof.in_one_function(program, *lines)
    if by_rank and one.decided_at and proof.reads_rank(program, one.decided_at):
        if passage.called and one.sure:
            return True
        return (
            together
            and proof.concerns_all_ranks(program, one.op, one.line)
            and not proof.is_called_elsewhere(program, one.op, one.line)
        )
    return passage.called and together


def _diverging(one: Divergence, sure: bool) -> Foreseen:
    kind, cause, shows = _REASONS[one.reason]
    also = [shown(one.decided_at, shows)]
    if one.other_line != one.line:
        also.append(shown(one.other_line, "other-ranks-call"))
    values = {"op": one.op, "other": one.other} if one.other else {"op": one.op}
    found = foreseen(kind, cause, one.line, *also, **values)
    if one.reason is Reason.SWAPPED:
        return replace(found, confidence="possible")
    if one.reason in (Reason.RANK_CONDITION, Reason.RANK_EXIT):
        if one.op == "new_group":
            return replace(found, cause="new-group-on-some-ranks")
        if one.op == "init_process_group":
            found = replace(found, cause="rank-missing-at-setup")
    return replace(found, confidence="certain" if sure else "likely")


def some_ranks_step(program: TracedProgram) -> Iterator[Foreseen]:
    """Report optimizers that step on some ranks only, so that the model's copies drift apart."""
    for passage in program.passages:
        if not passage.traces[0].made("DistributedDataParallel"):
            continue
        known = {0, *(one.decided_at for one in divergences(passage.traces))}
        for one in divergences(passage.traces, OPTIMIZER_STEPS):
            if one.decided_at not in known:
                condition = shown(one.decided_at, _REASONS[one.reason][2])
                cause = "steps-skipped-on-some-ranks"
                found = foreseen("each-rank-decides-step", cause, one.line, condition)
                yield unless_doubted(found, _is_proved(program, passage, one))
                break


def after_exception(program: TracedProgram) -> Iterator[Foreseen]:
    """Report calls that a rank misses, or makes alone, after it raised an exception."""
    for passage in program.passages:
        for event in passage.traces[0].of(Kind.HANDLER_SKIPS_CALL, Kind.HANDLER_CALLS):
            risk = event.about
            assert isinstance(risk, Risk)
            kind, cause = "handler-calls-alone", "collective-under-local-condition"
            if event.kind is Kind.HANDLER_SKIPS_CALL:
                kind, cause = "handler-misses-call", "exception-swallowed"
            raises = shown(risk.raises_at, "may-raise-on-one-rank")
            call = shown(risk.line, "concerns-every-rank")
            found = foreseen(kind, cause, event.line, raises, call, op=risk.op)
            # No line of a file proves that it raises on one rank alone.
            yield unless_doubted(found, risk.sure and passage.called and proof.is_cell(program))


def outsiders(program: TracedProgram) -> Iterator[Foreseen]:
    """Report calls on a group by ranks that are not its members."""
    for passage in program.passages:
        for trace in passage.traces:
            for event in trace.of(Kind.NOT_A_MEMBER):
                if not event.may_not_happen:  # an unknown condition may test membership
                    cause = "caller-not-in-group"
                    # Perhaps only members call a function that the program itself does not call.
                    found = foreseen if passage.called else possible
                    yield found("outsiders-call", cause, event.line, op=event.op)


def waits_for_ever(program: TracedProgram) -> Iterator[Foreseen]:
    """Report receives and collectives in which ranks wait forever."""
    found: Deadlock | None = None
    if program.calls("recv", "recv_object_list"):
        for world_size in _WORLD_SIZES:
            here = deadlock(program.with_world_size(world_size).traces)
            if here is None or here.why not in _DEADLOCKS:
                return
            found = found or here
    elif program.calls("new_group"):
        found = deadlock(program.traces)
        found = found if found is not None and found.why is Stuck.GROUPS_CROSSED else None
    if found is not None:
        kind, cause = _DEADLOCKS[found.why]
        calls = {call.line: call.op for call in found.at.values()}
        first, *others = sorted(calls)
        also = [shown(line, "others-stand-here") for line in others]
        yield foreseen(kind, cause, first, *also, op=calls[first])


RULES = (some_ranks_call, after_exception, outsiders, waits_for_ever, some_ranks_step)
