"""Flags for ranks that made the others wait, and for collectives that did not complete."""

from __future__ import annotations

import statistics

from ..model import RankReport, Snapshot
from ..model.meetings import Meeting
from ..model.shares import subtract, union
from . import words
from .flags import Flag
from .source_positions import group

#: A rank is a straggler if the others lose this share of the time and this many seconds to it.
_SHARE, _AT_LEAST_S = 0.05, 0.01
#: With fewer collectives, a rank may be late by chance: `waited_without_flag` reports who waited.
_ENOUGH = 10
#: If every rank is one, the worst must cost this many times as much as the least; if ranks have
#: different work, this many times as much as any other.
_APART = 3
#: It was late at least this often: a machine delays any process now and then.
_REGULAR = 5
#: This share of the delay is its own, and no wait for a processor.
_OWN = 0.3
#: A rank that computed longer by this share of the delay also waited longer for a processor.
_NOTICEABLE = 0.1
#: Arrivals closer to each other than this are ignored.
_NOTABLE_S = 1e-3
#: A rank computes more than the others if its processor time is this many times that of the others
#: (their median), as in the rule about stragglers.
_FAR_MORE = 2.0
#: The largest number of collectives that did not complete and are named.
_UNFINISHED = 2


def straggler_flags(
    snapshot: Snapshot, met: list[Meeting], costs: dict[int, float], window_s: float
) -> list[Flag]:
    """Flags for incomplete collectives, and for ranks that delayed the others, the worst first."""
    late, own_share = _own_lateness(snapshot, met)
    costs = {rank: cost * own_share.get(rank, 1.0) for rank, cost in costs.items()}
    found = _unfinished(snapshot, met)
    held = {r: cost for r, cost in costs.items() if cost >= max(_AT_LEAST_S, _SHARE * window_s)}
    worst = max(held.values(), default=0.0)
    if len(met) < _ENOUGH or snapshot.calls_only_issue:
        return found
    if not _are_stages(snapshot, met) and (of_host := _slow_host(snapshot, met, window_s)):
        return [*found, of_host]
    if len(held) == len(snapshot.ranks) > 1 and worst < _APART * min(held.values()):
        return found  # the ranks are late in turn, as they are on a busy machine
    if held and _are_stages(snapshot, met):
        # each stage begins when the one before it has ended, so the later one always comes last
        others = sorted(costs.values())[:-1]
        if others and worst < _APART * others[-1]:
            return found
    known = {p.rank for p in snapshot.performance if p.starved_s is not None} >= set(costs)
    starved = {report.rank: report.starved_s or 0.0 for report in snapshot.performance}
    for rank, cost in sorted(held.items(), key=lambda item: -item[1]):
        notable = [seconds for seconds in late.get(rank, ()) if seconds >= _NOTABLE_S]
        if len(notable) < _REGULAR or statistics.median(notable) < _AT_LEAST_S:
            continue
        computes = _computed_more_s(snapshot, rank) > _NOTICEABLE * cost
        own = cost if computes else cost - starved.get(rank, 0.0)
        if own < max(_AT_LEAST_S, _SHARE * window_s, _OWN * cost):
            continue  # it was ready, and waited for a processor
        stood = "they were idle for" if snapshot.timeline else "it was late by"
        text = (
            f"{words.ranks([rank])} came last to {len(notable):,} of "
            f"{words.count(len(met), 'collective')}, {words.short(statistics.median(notable))} "
            f"after the others (median): {stood} {words.short(cost)} of {words.short(window_s)}; "
            "look at what it alone does before them"
        )
        if not known:
            text += ". Whether it only waited for a processor is not known"
        found.append(Flag("warning" if known else "hint", text))
    return found


def _slow_host(snapshot: Snapshot, met: list[Meeting], window_s: float) -> Flag | None:
    """A flag for a host whose ranks all come after those of the other hosts, again and again."""
    by_host: dict[str, set[int]] = {}
    for report in snapshot.ranks:
        by_host.setdefault(report.host, set()).add(report.rank)
    starved = {p.rank: p.starved_s for p in snapshot.performance}
    for host, ranks in by_host.items():
        if not host or len(by_host) < 2 or len(ranks) < 2:
            continue  # one rank is named below
        late = [delay for m in met if (delay := _behind(m, ranks)) >= _NOTABLE_S]
        if len(late) < _REGULAR or statistics.median(late) < _AT_LEAST_S:
            continue
        # each of them waited for a processor, or else one of them was late for another reason
        queued = min((starved.get(rank) or 0.0 for rank in ranks), default=0.0)
        if sum(late) - queued < max(_AT_LEAST_S, _SHARE * window_s, _OWN * sum(late)):
            continue
        return Flag(
            "hint" if any(starved.get(rank) is None for rank in ranks) else "warning",
            f"{words.ranks(ranks)} came after all others to {len(late):,} of "
            f"{words.count(len(met), 'collective')}, {words.short(statistics.median(late))} "
            f"later (median), together {words.short(sum(late))} of {words.short(window_s)}; look "
            "at what they alone do before them; if it is the same, their host is slower "
            "(%ddt_doctor --bandwidth compares the connections)",
        )
    return None


def _behind(meeting: Meeting, ranks: set[int]) -> float:
    """By how much all of these ranks came later than all others; 0 if they did not.

    The others have waited longer by that, by their own clocks, unless the clocks are apart.
    """
    came, ends = meeting.arrivals_s, meeting.ends_s
    theirs, others = ranks & came.keys(), came.keys() - ranks
    if len(theirs) < len(ranks) or not others:
        return 0.0
    behind = min(came[rank] for rank in theirs) - max(came[rank] for rank in others)
    if came.keys() <= ends.keys():
        waited = {rank: ends[rank] - came[rank] for rank in came}
        most, least = max(waited[rank] for rank in theirs), min(waited[rank] for rank in others)
        behind = min(behind, least - most)
    return max(0.0, behind)


def _are_stages(snapshot: Snapshot, met: list[Meeting]) -> bool:
    """Whether ranks may do different work by design: they send messages, or meet in groups."""
    return len({meeting.group for meeting in met}) > 1 or any(
        call.kind == "p2p" for report in snapshot.ranks for call in report.calls
    )


def _own_lateness(
    snapshot: Snapshot, met: list[Meeting]
) -> tuple[dict[int, list[float]], dict[int, float]]:
    """By how much each rank was late each time in seconds, and the share of it that was its own.

    A rank that was blocked meanwhile, in a message or in another group, waited for another rank.
    """
    late: dict[int, list[float]] = {}
    share = {}
    for rank, times in group(
        [m for m in met if m.straggler is not None and m.begun_s is not None],
        lambda meeting: meeting.straggler,
    ):
        assert rank is not None
        blocked = union(
            (call.entered_s, call.left_s)
            for call in snapshot.rank(rank).calls
            if call.entered_s is not None and call.left_s is not None and not call.asynchronous
        )
        whole = [(m.begun_s - m.late_s, m.begun_s) for m in times if m.begun_s is not None]
        late[rank] = [
            sum(end - start for start, end in subtract([interval], blocked)) for interval in whole
        ]
        total = sum(end - start for start, end in whole)
        share[rank] = sum(late[rank]) / total if total else 1.0
    return late, share


def _computed_more_s(snapshot: Snapshot, rank: int) -> float:
    """How much longer the rank computed than the others, if far longer, in seconds.

    On a busy machine, a rank that computes more also waits longer for a processor. It causes the
    delay all the same.
    """
    computed = {report.rank: report.cpu_s for report in snapshot.performance}
    others = [seconds for one, seconds in computed.items() if one != rank]
    if rank not in computed or not others:
        return 0.0
    usual = statistics.median(others)
    return computed[rank] - usual if computed[rank] >= _FAR_MORE * usual else 0.0


def waited_without_flag(snapshot: Snapshot, costs: dict[int, float], window_s: float) -> str:
    """For whom the others waited, if it was long but not regular; empty if it was not long.

    Without a trace, the others may have worked meanwhile.
    """
    rank, cost = max(costs.items(), key=lambda item: item[1], default=(0, 0.0))
    if cost < max(_AT_LEAST_S, _SHARE * window_s):
        return ""
    said = f"{words.ranks([rank])} was late by {words.short(cost)} in all"
    if snapshot.timeline:
        said = f"the others waited {words.short(cost)} for {words.ranks([rank])}"
    return f"no rank was late regularly; {said}"


def _unfinished(snapshot: Snapshot, met: list[Meeting]) -> list[Flag]:
    """The first collectives that raised, or that a rank never entered while others waited."""
    if snapshot.outcome == "ok":
        return []
    found = []
    blocked = {report.rank: report for report in snapshot.ranks if report.blocked_s is not None}
    for meeting in met:
        absent = sorted(set(meeting.members) - set(meeting.calls))
        waited = [
            end - meeting.arrivals_s[rank]
            for rank, end in meeting.ends_s.items()
            if rank in meeting.arrivals_s
        ]
        waited += [
            blocked[rank].blocked_s or 0.0
            for rank, call in meeting.calls.items()
            if rank in blocked and blocked[rank].blocked_in == call.index
        ]
        age = f" {words.short(max(waited))}" if waited else ""
        name, came = meeting.first.label, words.ranks(sorted(meeting.calls))
        if meeting.mismatched:
            ways = group(meeting.calls.items(), lambda item: item[1].op)
            entered = [
                f"{words.ranks(sorted(dict(same)))} entered {same[0][1].label}" for _, same in ways
            ]
            found.append(f"{' and '.join(entered)}, which do not fit")
        elif absent:
            who = words.ranks(absent)
            found.append(f"{who} never entered {name}; {came} waited{age}")
        elif all(call.status == "failed" for call in meeting.calls.values()):
            found.append(f"{name} raised on {came}")
    found += [_message_wait(report) for report in blocked.values() if _waits_for_message(report)]
    return [Flag("warning", text) for text in found[:_UNFINISHED]]


def _waits_for_message(report: RankReport) -> bool:
    call = report.blocked_call
    return call is not None and call.kind == "p2p"


def _message_wait(report: RankReport) -> str:
    call = report.blocked_call
    assert call is not None
    way = "from" if "recv" in call.op else "to"
    peer = "any rank" if call.peer is None else words.ranks([call.peer])
    waited = f"waited {words.short(report.blocked_s)} in {call.label}"
    return f"{words.ranks([report.rank])} {waited} {way} {peer}"
