"""Rules about modules that ranks train with and that nothing trains: teachers, target networks."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.communication import communication
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.replicas import used_on_every_rank
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.parity import grouped
from ddt_notebook.model.training import UsedModule
from ddt_notebook.program.nodes import called_name

#: Methods that end in ``_`` and write nothing to a tensor's elements.
_HARMLESS = frozenset({"requires_grad_", "share_memory_", "detach_", "rename_"})
#: With more lines than this that ranks came to unequally often, none is shown.
_MOST_LINES = 2


def parted(context: Context) -> Iterator[Finding]:
    """Report modules beside the trained model that were equal on all ranks and no longer are."""
    snapshot = context.snapshot
    if snapshot.outcome != "ok" or any(one.not_finite for one in snapshot.training):
        return
    if not students_agree(context):
        return
    for found in used_on_every_rank(context.snapshot, trained=False):
        firsts = {one.first for one in found.values()}
        lasts = {one.last for one in found.values()}
        if len(lasts) == 1 or () in firsts | lasts:
            continue
        frozen = all(one.first == one.last for one in found.values())
        if len(firsts) > 1 and not (frozen and len(firsts) == len(found)):
            continue
        if any(_is_sent(context, rank, one.shapes) for rank, one in found.items()):
            continue
        yield _finding(context, found)


def students_agree(context: Context) -> bool:
    """Whether every rank trained one model in DDP with all others, and the copies are equal."""
    ranks = tuple(sorted(context.reports))
    models = [one.models for one in context.snapshot.training]
    if len(models) < len(ranks) or len(ranks) < 2 or not all(models):
        return False
    return all(
        len({of_rank[at].values for of_rank in models if at < len(of_rank)}) == 1
        and models[0][at].values != ()
        and models[0][at].members == ranks
        for at in range(len(models[0]))
    )


def _is_sent(context: Context, rank: int, shapes: dict[str, int]) -> bool:
    """Whether the program itself may keep copies equal, now and then."""
    report = context.reports[rank]
    own = tuple(call for call in report.calls if call.source == "call log")  # not those of DDP
    sent = communication(replace(report, calls=own))
    return bool(sent.is_opaque(shapes) or sent.reductions_of(shapes) or sent.broadcast)


def _finding(context: Context, found: dict[int, UsedModule]) -> Finding:
    first = found[min(found)]
    places = {rank: context.place(one.where, "called") for rank, one in found.items()}
    if len({one.first for one in found.values()}) > 1:
        return conclude(
            "D.2.5",
            "used-module-began-apart",
            cause="teacher-differs",
            ranks=found,
            values={"model": first.name},
            places=places,
            facts=[Fact(kind="apart-at-first-call")],
            confidence="likely",
            case="began",
        )
    left = [rank for rank, one in found.items() if one.first == one.last]
    return conclude(
        "D.2.5",
        "used-module-left-behind" if left else "used-module-apart",
        cause="teacher-differs",
        ranks=left or found,
        values={"model": first.name}
        | ({"others": tuple(rank for rank in found if rank not in left)} if left else {}),
        places=places,
        facts=[*written_at(context, found), Fact(kind="equal-at-first-call")],
        confidence="likely",
    )


def written_at(context: Context, found: Iterable[int]) -> list[Fact]:
    """Return lines that write to tensors and that the ranks were seen to run unequally often."""
    program, stores = context.program, context.partings.last_stores
    times = {
        statement: {rank: stores.times(statement, rank) for rank in found}
        for tree in program.trees.values()
        for node in tree.of_kind(ast.Call)
        if _writes(called_name(node)) and (statement := tree.statement_of(node)) is not None
    }
    unequal = {one: by_rank for one, by_rank in times.items() if len(set(by_rank.values())) > 1}
    if None in {n for by_rank in unequal.values() for n in by_rank.values()}:
        return []  # what some ranks ran is not known
    if len(unequal) > _MOST_LINES:
        return []
    return [
        Fact(
            kind="written-unequally",
            place=program.place(statement, "changes"),
            values={"times": tuple((n, tuple(ranks)) for n, ranks in grouped(by_rank).items())},
        )
        for statement, by_rank in unequal.items()
    ]


def _writes(name: str) -> bool:
    in_place = name.endswith("_") and not name.startswith("_") and name not in _HARMLESS
    return in_place or name == "load_state_dict"


RULES = (parted,)
