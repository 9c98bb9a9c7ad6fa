"""Rules about ranks that wait for each other in a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Place, Position
from ddt_notebook.model.frameworks import meets_by_tensor
from ddt_notebook.model.named_tensors import tensor_of
from ddt_notebook.model.operations import RECEIVES, SENDS
from ddt_notebook.program.branch_arms import function_at
from ddt_notebook.program.escape_paths import LEAVES_LOOP, Reason
from ddt_notebook.program.iterations import comes_again, comes_to, inside_passed
from ddt_notebook.program.nodes import LoopNode, called_name, covers, guards_of_breaks
from ddt_notebook.program.program import Program

from .facts import blocked_in, by_call, ended_graph, of_call, of_wait, reasons
from .groups import hung_by_skip

#: Reasons for which a rank does not come back to the call.
_KEEPS_OUT = frozenset({"collective-under-rank-condition", "collective-under-local-condition"})


def wait_cycles(context: Context) -> Iterator[Finding]:
    """Report sets of blocked ranks that wait for each other; the finding names both sides."""
    if hung_by_skip(context) or context.thread_clash is not None or context.given_apart:
        return
    edges = {
        rank: frozenset(
            other
            for other in wait.missing & context.halted.keys()
            if not context.strayed(other, wait.call)
            and ended_graph(context, wait.call, other) is None
        )
        for rank, wait in context.waits.items()
    }
    for members in _circles(edges):
        if members & context.handled.keys():
            continue
        entangled = any(context.waits[rank].mismatched & members for rank in members)
        if not entangled:
            yield (
                _called_back(context, members)
                or _met_elsewhere(context, members)
                or _went_past(context, members)
                or _left_out(context, members)
                or _finding(context, members, edges)
            )


def _circles(edges: dict[int, frozenset[int]]) -> Iterator[frozenset[int]]:
    """Yield sets of ranks that reach each other, at least two at a time."""
    reach = {rank: _reachable(rank, edges) for rank in edges}
    done: set[int] = set()
    for rank in sorted(edges):
        if rank in done or rank not in reach[rank]:
            continue
        members = frozenset(other for other in reach[rank] if rank in reach.get(other, ()))
        done |= members
        yield members


def _reachable(start: int, edges: dict[int, frozenset[int]]) -> set[int]:
    seen: set[int] = set()
    todo = list(edges[start])
    while todo:
        rank = todo.pop()
        if rank not in seen:
            seen.add(rank)
            todo += edges.get(rank, frozenset())
    return seen


def _finding(
    context: Context, members: frozenset[int], edges: dict[int, frozenset[int]]
) -> Finding:
    waiting = context.victims(members)
    sides = [
        Fact(
            kind="waits-for",
            place=context.place(call.where, "waits"),
            ranks=tuple(ranks),
            values=of_call(context, call)
            | {"awaited": tuple(sorted(set().union(*(edges[rank] & members for rank in ranks))))},
        )
        for ranks, call in by_call(context, sorted(members))
    ]
    blocked_s = context.blocked_for(members)
    parted = list(_more_receives(context, members))
    cause = "message-without-partner" if parted else _cause(context, sorted(members))
    if cause == "groups-in-opposite-order":
        parted = list(_ordered_at(context, members))
    return conclude(
        "D.2.1",
        "wait-cycle",
        cause=cause,
        ranks=members,
        waiting=waiting,
        values={} if blocked_s is None else {"blocked_s": blocked_s},
        places=context.places([*members, *waiting]),
        facts=[
            *reasons(parted),
            *sides,
            Fact(kind="each-waits"),
            *blocked_in(context, waiting),
        ],
        op=context.halted[min(members)].op,
    )


def _called_back(context: Context, members: frozenset[int]) -> Finding | None:
    """Report a collective in a function that a library calls while other ranks exchange messages.

    So does the schedule of a pipeline with the loss of its last stage. The other ranks are in the
    same call of the library, which would send or receive what they wait for.
    """
    for waiter in sorted(members):
        call = context.halted[waiter]
        absent = context.waits[waiter].missing & members
        frames = context.escape_paths.frames(call, context.reports[waiter])
        exchanging = [context.halted[rank] for rank in sorted(absent)]
        if call.kind != "collective" or not absent or len(frames) < 2:
            continue
        if not all(_is_of_library(context, one) for one in exchanging):
            continue
        wanted = set.intersection(*(_called_at(context, one.where) for one in exchanging))
        within = next((one for one in frames[1:] if _called_at(context, one) & wanted), None)
        if within is None:
            continue
        led = frames[: frames.index(within) + 1]
        if not any(context.program.is_called_back(*pair) for pair in pairwise(led)):
            continue
        waiting = context.victims(absent)
        fact = Fact(
            kind="called-back",
            place=context.place(within, "called"),
            ranks=tuple(sorted(absent)),
            values={
                "function": frames[0].function,
                "ops": tuple(dict.fromkeys(one.op for one in exchanging)),
            },
        )
        return conclude(
            "D.2.1",
            "never-entered",
            cause="collective-within-pipeline-step",
            ranks=absent,
            waiting=waiting,
            values=of_call(context, call) | of_wait(context, waiting),
            places=context.places([*absent, *waiting]),
            facts=[fact, *blocked_in(context, [*sorted(absent), *waiting])],
            op=call.op,
        )
    return None


def _met_elsewhere(context: Context, members: frozenset[int]) -> Finding | None:
    """Report a rank that left out a line whose library exchanges messages with another rank.

    The messages of the next line fit, too, and went there: from then on each message of a line met
    another line on the other rank, until both waited. Before that, they met in the same lines.
    """
    found: list[tuple[Reason, int, int, tuple[Call, Call]]] = []
    for waiter in sorted(members):
        for absent in sorted(context.waits[waiter].missing & members):
            met = _first_met_elsewhere(context, waiter, absent)
            if met is not None:
                caller, other = context.reports[waiter], context.reports[absent]
                reason = context.why_absent(met[0], caller, other, context.where(absent))
                found += [(reason, waiter, absent, met)] if reason is not None else []
    if not found:
        return None
    reason, waiter, absent, (first, theirs) = min(found, key=lambda one: one[0].priority)
    call, waiting = context.halted[waiter], context.victims([absent])
    fact = Fact(
        kind="met-elsewhere",
        place=context.place(first.where, "called"),
        ranks=(waiter,),
        values={
            "op": first.op,
            "partner": absent,
            "other_line": theirs.where.line if theirs.where is not None else 0,
        },
    )
    return conclude(
        "D.2.1",
        "never-received" if call.op in SENDS else "never-sent",
        cause=reason.cause,
        ranks=[absent],
        waiting=waiting,
        values=of_call(context, call) | of_wait(context, waiting) | {"partner": waiter},
        places=context.places([absent, *waiting]),
        facts=[*reasons([reason]), fact, *blocked_in(context, [absent, *waiting])],
        op=call.op,
    )


def _first_met_elsewhere(context: Context, rank: int, other: int) -> tuple[Call, Call] | None:
    """The first message of a rank that met another line of the other rank, with that call.

    None if the first one did so already: each rank may well have a line of its own.
    """
    theirs = {
        (one.group, one.tag, one.op in SENDS, one.sequence): one
        for one in context.reports[other].calls
        if _exchanges(one, rank)
    }
    alike = 0
    for one in context.reports[rank].calls:
        met = theirs.get((one.group, one.tag, one.op in RECEIVES, one.sequence))
        if met is None or not _exchanges(one, other):
            continue
        if (
            one.where is not None
            and met.where is not None
            and not one.where.is_same_line(met.where)
        ):
            return (one, met) if alike else None
        alike += 1
    return None


def _exchanges(call: Call, peer: int) -> bool:
    """Whether a library exchanged a message with a rank for a line of the user."""
    return (call.kind, call.peer) == ("p2p", peer) and None not in (call.called_from, call.where)


def _is_of_library(context: Context, call: Call) -> bool:
    """Whether a library, and not the user's line, sends or receives a message."""
    return call.kind == "p2p" and call.op not in _called_at(context, call.where)


def _called_at(context: Context, place: Position | None) -> set[str]:
    """The names of the functions that a line calls."""
    return {called_name(one) for one in context.program.calls_at(place)} if place else set()


def _left_out(context: Context, members: frozenset[int]) -> Finding | None:
    """Report a rank that went on to a collective without a message that others wait for.

    It has taken part in messages since the last collective of both ranks, but made too few such
    calls, and its code leads to no other one before the collective's end: it has run the statement
    in which the other rank waits, or it has made such calls before and comes to no further line of
    them.
    """
    found = [one for rank in sorted(members) if (one := _unanswered(context, rank, members))]
    if not found:
        return None
    fact = found[0]
    (culprit,), waiter = fact.ranks, fact.values["partner"]
    call = context.halted[waiter]
    waiting = context.victims([culprit])
    return conclude(
        "D.2.1",
        "never-received" if call.op in SENDS else "never-sent",
        cause="message-without-partner",
        ranks=[culprit],
        waiting=waiting,
        values=of_call(context, call) | of_wait(context, waiting) | {"partner": waiter},
        places=context.places([culprit, *waiting]),
        facts=[*found, *blocked_in(context, [culprit, *waiting])],
        op=call.op,
    )


def _went_past(context: Context, members: frozenset[int]) -> Finding | None:
    """Report a rank that went past a collective to another call, if only one such rank shows why.

    For Horovod, each name of a tensor is a group of its own, so two ranks that are out of step wait
    for each other. Elsewhere the other rank waits in a message, or forms a group; ranks that
    wait in two groups show an order, unless the rank decides who comes to one of the lines.
    """
    by_tensor = meets_by_tensor(context.snapshot.framework)
    if by_tensor and _names_differ(context, members):
        return None
    found: list[tuple[Reason, int, int]] = []
    calls = [context.halted[rank] for rank in members]
    twins = len({call.members for call in calls}) == 1 and calls[0].kind == "collective"
    alike = len({call.kind for call in calls}) == 1 and not twins
    for waiter in sorted(members):
        call, caller = context.halted[waiter], context.reports[waiter]
        for rank in sorted(context.waits[waiter].missing & members):
            at = context.where(rank)
            reason = context.why_absent(call, caller, context.reports[rank], at)
            if reason is not None and not reason.other_branch:
                found.append((reason, rank, waiter))
    found = _of_one_parting(found)
    if not found:
        return None
    if not (by_tensor or _go_by_library(calls)) and _are_unclear(context, found):
        return None
    if alike and not by_tensor and not _is_kept_out(context, found):
        return None
    reason, culprit, waiter = min(found, key=lambda one: (one[0].priority, not _left(one[0])))
    call, waiting = context.halted[waiter], context.victims([culprit])
    kind, values = "never-entered", of_call(context, call) | of_wait(context, waiting)
    if call.kind == "p2p":
        kind = "never-received" if call.op in SENDS else "never-sent"
        values["partner"] = waiter
    return conclude(
        "D.2.1",
        kind,
        cause=reason.cause,
        ranks=[culprit],
        waiting=waiting,
        values=values,
        places=context.places([culprit, *waiting]),
        facts=[*reasons([reason]), *blocked_in(context, [culprit, *waiting])],
        op=call.op,
    )


def _of_one_parting(
    found: list[tuple[Reason, int, int]],
) -> list[tuple[Reason, int, int]]:
    """Without what one observed parting says of the rank that only did not go the same way."""
    best: dict[tuple[str, int | None], int] = {}
    for reason, _, _ in found:
        at = reason.place.file, reason.place.line
        best[at] = min(best.get(at, reason.priority), reason.priority)
    return [
        one
        for one in found
        if one[0].kind != "parted" or one[0].priority == best[one[0].place.file, one[0].place.line]
    ]


def _left(reason: Reason) -> bool:
    """Whether the absent rank has left a loop, rather than gone through it once more."""
    times, caller_times = (reason.values.get(name, 0) for name in ("times", "caller_times"))
    return bool(times < caller_times)


def _go_by_library(calls: list[Call]) -> bool:
    """Whether some calls, but not all, are those of a library on a group of its own.

    DeepSpeed makes one with the same ranks. The program does not choose the order of such groups,
    so the ranks are out of step.
    """
    inside = {call.called_from is not None for call in calls}
    return (
        len(inside) == 2
        and all(call.kind == "collective" for call in calls)
        and (len({call.members for call in calls}) == 1)
    )


def _are_unclear(context: Context, found: list[tuple[Reason, int, int]]) -> bool:
    """Whether several ranks may have gone past a call, or one that may still come to it."""
    return len({rank for _, rank, _ in found}) > 1 or any(
        not _forms_groups(context, reason, rank)
        and (
            context.halted[waiter].kind != "collective"
            or not (_keeps_out(reason) or _has_left(context, reason, rank, waiter))
        )
        for reason, rank, waiter in found
    )


def _forms_groups(context: Context, reason: Reason, rank: int) -> bool:
    """Whether a rank left a loop for good: it forms groups, as a program does between its parts."""
    return _leaves_loop(context.program, reason) and context.halted[rank].kind == "setup"


def _leaves_loop(program: Program, reason: Reason) -> bool:
    """Whether a condition ends a loop, as the source shows or as it was observed."""
    if reason.kind != "parted":
        return reason.kind in LEAVES_LOOP
    blocks = program.blocks(program.statement_at(reason.place))
    return any(
        guards[-1].lineno == reason.place.line
        for block in blocks
        if isinstance(block.owner, LoopNode)
        for guards in guards_of_breaks(block.owner)
    )


def _keeps_out(reason: Reason) -> bool:
    """Whether a rank that goes this way does not come back; what it caught was observed."""
    caught = reason.cause == "exception-swallowed" and reason.kind == "parted"
    return caught or reason.cause in _KEEPS_OUT


def _has_left(context: Context, reason: Reason, rank: int, waiter: int) -> bool:
    """Whether a rank waits behind the loop in which the other one still makes its rounds."""
    loop = context.program.statement_at(reason.place) if reason.place is not None else None
    if reason.cause != "uneven-iterations" or not isinstance(loop, LoopNode):
        return False
    inside = {
        one: any(
            line is not None and line.file == reason.place.file and covers(loop, line.line)
            for line in (
                context.where(one),
                *context.escape_paths.frames(context.halted[one], context.reports[one]),
            )
        )
        for one in (rank, waiter)
    }
    return inside[waiter] and not inside[rank]


def _is_kept_out(context: Context, found: list[tuple[Reason, int, int]]) -> bool:
    """Whether the rank decides who comes to a line with a collective, to which one rank never came.

    Ranks that wait in two groups mostly show another order, in which both come to both lines.
    """
    lines = {
        rank: {one.where for one in context.reports[rank].calls if one.where is not None}
        for _, rank, _ in found
    }
    return all(
        reason.cause == "collective-under-rank-condition"
        and context.halted[waiter].where not in lines[rank]
        and not _has_own_lines(context, rank, waiter)
        for reason, rank, waiter in found
    )


def _has_own_lines(context: Context, rank: int, waiter: int) -> bool:
    """Whether a rank waits in a line to which the rank that waits for it never comes, either.

    Then each rank has lines of its own, and may make the same call in another one.
    """
    reports = context.reports
    back = context.why_absent(
        context.halted[rank], reports[rank], reports[waiter], context.where(waiter)
    )
    return back is not None and back.cause == "collective-under-rank-condition"


def _unanswered(context: Context, rank: int, members: frozenset[int]) -> Fact | None:
    """Return how many messages the other side has left out, and where it made the others."""
    call = context.halted[rank]
    if call.kind != "p2p" or call.peer not in members:
        return None
    other = context.reports[call.peer]
    collective = context.halted[other.rank]
    if collective.kind != "collective":
        return None
    common = [
        (theirs.index, mine.index)
        for theirs in other.calls
        if theirs.index < collective.index
        and theirs.kind == "collective"
        and (mine := context.counterpart(theirs, rank)) is not None
    ]
    begins = max(common, default=(-1, -1))
    wanted = RECEIVES if call.op in SENDS else SENDS
    made = [one for one in other.calls if begins[0] < one.index and one.op in wanted]
    if any(one.peer is None or one.where is None for one in made):
        return None
    asked = [
        one
        for one in context.reports[rank].calls
        if begins[1] < one.index <= call.index
        and (one.op in SENDS) is (call.op in SENDS)
        and (one.kind, one.group, one.peer, one.tag) == ("p2p", call.group, call.peer, call.tag)
    ]
    answers = [one for one in made if (one.group, one.peer) == (call.group, rank)]
    if any(one.tag != call.tag for one in answers) or len(answers) >= len(asked):
        return None
    frames = context.escape_paths.frames(collective, other)
    stack = [f for f in context.reports[rank].stack if f.file in context.program.documents]
    inner = inside_passed(context.program, stack[::-1], frames)
    took_part = any(one.kind == "p2p" and begins[0] < one.index for one in other.calls)
    if not took_part or (not inner and (not made or _makes_more(context, made, frames, wanted))):
        return None
    place, op = _where_left_out(context, made, inner, wanted)
    return Fact(
        kind="messages-left-out",
        place=place,
        ranks=(other.rank,),
        values={
            "op": op,
            "partner": rank,
            "asked": len(asked),
            "answered": len(answers),
            "others": len(made) - len(answers),
        },
    )


def _makes_more(
    context: Context, made: list[Call], frames: list[Position], wanted: frozenset[str]
) -> bool:
    """Whether a rank comes to another line with such calls later: then the order is wrong."""
    lines = {(one.where.file, one.where.line) for one in made if one.where is not None}
    for node in context.program.calls(*wanted):
        place = context.program.place(node)
        line = Position(file=place.file, line=place.line)
        if (line.file, line.line) not in lines and comes_to(context.program, frames, line):
            return True
    return False


def _where_left_out(
    context: Context, made: list[Call], inner: list[Position], wanted: frozenset[str]
) -> tuple[Place | None, str]:
    """Return the line of the calls that are too few, or the loop around it, and their name."""
    program = context.program
    functions = [function_at(program, line) for line in inner]
    here = [
        (line, called_name(node))
        for node in program.calls(*wanted)
        if function_at(program, line := program.place(node)) in functions
    ]
    if inner and len(here) == 1:  # the others made their calls in the function of the wait
        line, op = here[0]
        return line, op
    if not made or made[-1].where is None:
        return context.place(inner[0], "passed"), min(wanted, key=len)
    last = made[-1].where
    loops = program.loops(last)
    return (program.place(loops[0]) if loops else context.place(last)), made[-1].op


def _more_receives(context: Context, members: frozenset[int]) -> Iterator[Reason]:
    """Yield the loops that a rank left while another one went on to receive its messages there."""
    for rank in sorted(members):
        call = context.halted[rank]
        if call.op not in RECEIVES or call.peer not in members:
            continue
        sender = context.reports[call.peer]
        at = context.where(sender.rank)
        reason = context.partings.for_good(call, context.reports[rank], sender, at)
        loop = context.program.statement_at(reason.place) if reason is not None else None
        sent = [
            one
            for one in sender.calls
            if one.op in SENDS and (one.group, one.peer, one.tag) == (call.group, rank, call.tag)
        ]
        if reason is None or not isinstance(loop, LoopNode) or not sent:
            continue
        led = [
            context.escape_paths.frames(one, report)  # a method may send and receive for the loop
            for one, report in ((call, context.reports[rank]), *((one, sender) for one in sent))
        ]
        if all(
            any(line.file == reason.place.file and covers(loop, line.line) for line in lines)
            for lines in led
        ):
            yield reason


def _ordered_at(context: Context, members: frozenset[int]) -> Iterator[Reason]:
    """Yield the line, as observed, from which two ranks went to their groups in another order."""
    for rank in sorted(members):
        call, report = context.halted[rank], context.reports[rank]
        for other in sorted(context.waits[rank].missing & members):
            at = context.where(other)
            reason = context.where_parted(call, report, context.reports[other], at)
            if reason is not None:
                yield reason
                return


def _cause(context: Context, ranks: list[int]) -> str:
    calls = [context.halted[rank] for rank in ranks]
    if all(call.kind == "p2p" for call in calls):
        if len({call.tag for call in calls}) > 1 and _both_ways(calls):
            return "message-tags-differ"
        return "message-without-partner" if _both_ways(calls) else "both-sides-wait"
    groups = {call.group for call in calls}
    if meets_by_tensor(context.snapshot.framework) and len({call.op for call in calls}) == 1:
        one_line = _meant_as_one(context, calls) and not _take_turns(context, ranks)
        unnamed = not any(map(tensor_of, calls)) or _names_differ(context, ranks)
        return "different-groups" if unnamed or one_line else "groups-in-opposite-order"
    if _go_by_library(calls):
        return "wait-cycle"
    if all(call.kind == "collective" for call in calls) and len(groups) > 1:
        meant_as_one = _meant_as_one(context, calls) and not _take_turns(context, ranks)
        return "different-groups" if meant_as_one else "groups-in-opposite-order"
    return "wait-cycle"


def _names_differ(context: Context, ranks: Iterable[int]) -> bool:
    """Whether ranks began alike operations together, as in a backward pass, by other names."""
    together = []
    for rank in ranks:
        line = context.halted[rank].where
        calls = [call for call in context.reports[rank].calls if call.where == line]
        together.append((line, [call.group for call in calls], [call.shapes for call in calls]))
    names = [name for _, some, _ in together for name in set(some)]
    lines = {(line.file, line.line) if line is not None else None for line, *_ in together}
    shapes = [sorted(some) for *_, some in together]
    return (
        len(lines) == 1
        and None not in lines
        and len(shapes[0]) > 1
        and all(one == shapes[0] for one in shapes)
        and len(set(names)) == len(names)
    )


def _take_turns(context: Context, ranks: list[int]) -> bool:
    """Whether two ranks would go on to the lines at which each of them waits for the other."""
    lines = {rank: context.halted[rank].where for rank in ranks}
    return any(
        _comes_to(context, one, lines[other]) and _comes_to(context, other, lines[one])
        for one in ranks
        for other in context.waits[one].missing & set(ranks)
    )


def _comes_to(context: Context, rank: int, line: Position | None) -> bool:
    if line is None:
        return False
    frames = context.escape_paths.frames(context.halted[rank], context.reports[rank])
    return comes_to(context.program, frames, line)


def _meant_as_one(context: Context, calls: list[Call]) -> bool:
    """Whether the ranks would call the operation only once, each on another group."""
    again = {comes_again(context.program, c.where, c.op) if c.where else None for c in calls}
    if again == {None}:  # without source, one line is probably one collective
        return len({(c.where.file, c.where.line) for c in calls if c.where}) == 1
    return len({call.op for call in calls}) == 1 and True not in again


def _both_ways(calls: list[Call]) -> bool:
    """Whether some send while others receive."""
    return any(c.op in SENDS for c in calls) and any(c.op in RECEIVES for c in calls)


RULES = (wait_cycles,)
