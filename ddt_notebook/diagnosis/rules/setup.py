"""Rules about ranks that do not find each other when they form the group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import is_peer_error
from ddt_notebook.diagnosis.rendezvous import Discord, Kind
from ddt_notebook.model import Call, Fact, Finding, RankReport, Rendezvous
from ddt_notebook.model.finding import Confidence, Values

from .facts import blocked_in, of_wait
from .groups import hung_by_skip

#: What the ranks disagree about -> the kind of the finding, which is also the id of its card.
_CAUSES: Mapping[Kind, str] = {
    "number": "rank-number-repeated",
    "outside": "rank-outside-world",
    "size": "world-size-differs",
    "address": "rendezvous-differs",
    "file": "rendezvous-file-left-over",
    "store": "store-reused",
    "unserved": "store-not-served",
    "unreachable": "master-unreachable",
}
#: A contradiction is certain; these announcements only make the failure likely.
_CONFIDENCE: Mapping[Kind, Confidence] = {
    "file": "likely",
    "store": "likely",
    "unserved": "likely",
    "unreachable": "likely",
}


def strangers(context: Context) -> Iterator[Finding]:
    """Report ranks that were told of each other what does not fit together, so no group forms."""
    found = context.discord
    if found is None:
        return
    everyone = [rank for rank, call in found.joined.items() if call.status != "done"]
    ranks = list(found.culprits) or everyone
    waiting = [rank for rank in everyone if rank not in ranks]
    waiting += [rank for rank in context.victims(ranks) if rank not in waiting]
    errors = [context.reports[rank].error for rank in found.joined]
    refused = any(error is not None and not is_peer_error(error) for error in errors)
    yield conclude(
        "B.1" if refused else "B.2",
        _CAUSES[found.kind],
        cause=_CAUSES[found.kind],
        ranks=ranks,
        waiting=waiting,
        values=_values(found, ranks) | of_wait(context, waiting),
        places=context.places([*ranks, *waiting]),
        facts=[*_announced(found), *_server(found), *blocked_in(context, everyone)],
        confidence=_CONFIDENCE.get(found.kind, "certain"),
        op=next(call.op for call in found.joined.values()),
    )


def _values(found: Discord, ranks: list[int]) -> Values:
    """Return what the culprits announced, and what the others did."""
    said = found.said(ranks[0])
    values = _said(said)
    others = tuple(rank for rank in found.joined if rank not in ranks)
    if found.kind == "number":
        same = tuple(rank for rank in found.joined if found.said(rank).rank == said.rank)
        here = {found.said(rank).rank for rank in found.joined}
        missing = tuple(sorted(set(range(said.world_size or 0)) - here))
        return values | {"joined_alike": same, "missing": missing}
    if found.kind == "size":
        return values | {"others": others, "others_size": found.said(others[0]).world_size}
    if found.kind == "address":
        return values | {"others": others, "others_address": found.said(others[0]).address}
    return values


def _said(said: Rendezvous) -> Values:
    return {"as_rank": said.rank, "world_size": said.world_size, "address": said.address}


def _server(found: Discord) -> Iterator[Fact]:
    """Yield where the launcher serves the store, if that is why nobody serves this one."""
    if found.kind == "unserved":
        yield Fact(
            kind="launcher-serves", values={"address": found.said(min(found.joined)).served_at}
        )


def _announced(found: Discord) -> list[Fact]:
    """Return one fact for each way in which ranks tried to join."""
    together: dict[tuple[tuple[str, object], ...], list[int]] = defaultdict(list)
    for rank in found.joined:
        together[tuple(_said(found.said(rank)).items())].append(rank)
    return [
        Fact(kind="joined", ranks=tuple(ranks), values=dict(said))
        for said, ranks in together.items()
    ]


def disagreeing_members(context: Context) -> Iterator[Finding]:
    """Report a group that has other members on some ranks.

    Ranks name a group by the number of their calls of ``new_group``. If each rank calls it for its
    own group only, different groups get one name, and their ranks may be connected crosswise.
    """
    if hung_by_skip(context):
        return
    members: dict[str, dict[int, set[tuple[int, ...]]]] = defaultdict(lambda: defaultdict(set))
    stuck = {
        str(call.sequence)
        for call in context.halted.values()
        if call.op == "new_group" and call.members
    }
    for rank, report in context.reports.items():
        for call in report.calls:
            if call.op == "destroy_process_group":  # later groups may have the same names
                break
            if call.kind != "setup" and call.members and call.group != "0":
                members[call.group][rank].add(call.members)
            elif call.op == "new_group" and str(call.sequence) in stuck and call.new_members:
                members[str(call.sequence)][rank].add(call.new_members)
    for group, by_rank in members.items():
        together: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for rank, used in by_rank.items():
            if len(used) == 1:
                together[next(iter(used))].append(rank)
        if len(together) > 1:
            yield _disagree(context, group, together)
            return


def _disagree(
    context: Context, group: str, together: Mapping[tuple[int, ...], list[int]]
) -> Finding:
    failed = context.snapshot.outcome != "ok"
    ranks = sorted({rank for own in together for rank in own if rank in context.reports})
    made = {rank: _made(context.reports[rank], group) for rank in ranks}
    places = {
        rank: place
        for rank, call in made.items()
        if (place := context.place(call.where if call else None, "called")) is not None
    }
    return conclude(
        "B.2" if failed else "B.1",
        "group-members-differ",
        cause="new-group-on-some-ranks",
        ranks=ranks,
        values={"group": group},
        places=places,
        facts=[
            Fact(
                kind="group-has-members",
                ranks=tuple(users),
                values={"group": group, "members": own},
            )
            for own, users in sorted(together.items())
        ]
        + blocked_in(context, sorted(context.halted)),
        confidence="certain" if failed else "likely",
        op="new_group",
    )


def _made(report: RankReport, group: str) -> Call | None:
    """Return the ``new_group`` that made a group: torch names groups by the number of the call."""
    made = [call for call in report.calls if call.op == "new_group" and call.status == "done"]
    return next((call for call in made if str(call.sequence) == group), None)


RULES = (strangers, disagreeing_members)
