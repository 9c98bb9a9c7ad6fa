"""Rules about ranks that do not find each other when they form the group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import is_peer_error
from ddt_notebook.diagnosis.rendezvous import Discord, Kind
from ddt_notebook.model import Fact, Finding, Rendezvous
from ddt_notebook.model.finding import Confidence, Values

from .facts import blocked_in, of_wait

#: What the ranks disagree about -> the kind of the finding, which is also the id of its card.
_CAUSES: Mapping[Kind, str] = {
    "number": "rank-number-repeated",
    "outside": "rank-outside-world",
    "size": "world-size-differs",
    "address": "rendezvous-differs",
    "file": "rendezvous-file-left-over",
    "unreachable": "master-unreachable",
}
#: A contradiction is certain; these announcements only make the failure likely.
_CONFIDENCE: Mapping[Kind, Confidence] = {"file": "likely", "unreachable": "likely"}


def strangers(context: Context) -> Iterator[Finding]:
    """Report arguments of ``init_process_group`` on different ranks that do not fit together."""
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
        facts=[*_announced(found), *blocked_in(context, everyone)],
        confidence=_CONFIDENCE.get(found.kind, "certain"),
        op="init_process_group",
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


def _announced(found: Discord) -> list[Fact]:
    """Return one fact for each way in which ranks tried to join."""
    together: dict[tuple[tuple[str, object], ...], list[int]] = defaultdict(list)
    for rank in found.joined:
        together[tuple(_said(found.said(rank)).items())].append(rank)
    return [
        Fact(kind="joined", ranks=tuple(ranks), values=dict(said))
        for said, ranks in together.items()
    ]


RULES = (strangers,)
