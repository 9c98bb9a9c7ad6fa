"""Ranks that do not find each other when they form the group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.errors import is_peer_error
from ddt_notebook.diagnosis.rendezvous import Discord, Kind
from ddt_notebook.diagnosis.words import agree, ranks_text
from ddt_notebook.model import Finding
from ddt_notebook.model.finding import Confidence

from .wording import victims_evidence, wait_clause

_CAUSES: Mapping[Kind, str] = {
    "number": "rank-number-repeated",
    "outside": "rank-outside-world",
    "size": "world-size-differs",
    "address": "rendezvous-differs",
    "file": "rendezvous-file-left-over",
    "unreachable": "master-unreachable",
}
#: What was announced contradicts itself, or only makes the failure likely.
_CONFIDENCE: Mapping[Kind, Confidence] = {"file": "likely", "unreachable": "likely"}


def strangers(context: Context) -> Iterator[Finding]:
    """What the ranks told ``init_process_group`` does not fit together."""
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
        _title(found, ranks) + wait_clause(context, waiting),
        cause=_CAUSES[found.kind],
        ranks=ranks,
        waiting=waiting,
        where=context.places([*ranks, *waiting]),
        evidence=[*_announced(found), *victims_evidence(context, everyone)],
        confidence=_CONFIDENCE.get(found.kind, "certain"),
        op="init_process_group",
    )


def _title(found: Discord, ranks: list[int]) -> str:
    who, verb = ranks_text(ranks), agree(ranks, "was", "were")
    said = found.said(ranks[0])
    if found.kind == "number":
        same = [rank for rank in found.joined if found.said(rank).rank == said.rank]
        here = {found.said(rank).rank for rank in found.joined}
        lacking = sorted(set(range(said.world_size or 0)) - here)
        text = f"{ranks_text(same)} joined as rank {said.rank} of {said.world_size}"
        return f"{text}, and nobody as {ranks_text(lacking)}" if lacking else text
    if found.kind == "outside":
        return f"{who} joined as rank {said.rank} of {said.world_size}, which counts from 0"
    if found.kind == "size":
        rest = [rank for rank in found.joined if rank not in ranks]
        size = found.said(rest[0]).world_size
        return f"{who} {verb} told a world size of {said.world_size}, {ranks_text(rest)} of {size}"
    if found.kind == "address":
        rest = [rank for rank in found.joined if rank not in ranks]
        home = found.said(rest[0]).address
        return f"{who} {verb} told to meet at {said.address}, {ranks_text(rest)} at {home}"
    if found.kind == "file":
        return f"{who} {agree(ranks, 'meets', 'meet')} in {said.address}, which held data before"
    return f"{who} {agree(ranks, 'does', 'do')} not get through to {said.address}"


def _announced(found: Discord) -> list[str]:
    """One line for each way in which ranks meant to join."""
    lines: dict[str, list[int]] = defaultdict(list)
    for rank in found.joined:
        said = found.said(rank)
        number = "no number" if said.rank is None else f"rank {said.rank}"
        lines[f"as {number} of {said.world_size} at {said.address}"].append(rank)
    return [f"{ranks_text(ranks)} joined {text}" for text, ranks in lines.items()]
