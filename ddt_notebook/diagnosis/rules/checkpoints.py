"""Ranks that are at one file at the same time, and what they write into it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude_text
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.happens_before import Order
from ddt_notebook.diagnosis.words import count, ranks_text, seconds
from ddt_notebook.model import Finding, Place
from ddt_notebook.model.checkpoints import CheckpointUse, StateLoad

_Uses = dict[int, list[CheckpointUse]]


def written_together(context: Context) -> Iterator[Finding]:
    """Several ranks save to one path, and nothing puts them in an order."""
    order = Order(context)
    for path, saves in sorted(_by_path(context, "save").items()):
        # One finding for each line: what is written again and again counts once.
        told: set[str] = set()
        for round_ in range(max(map(len, saves.values()))):
            nth = {r: uses[round_] for r, uses in saves.items() if len(uses) > round_}
            together = _unordered(nth, order)
            line = frozenset(context.label(use.where) for use in together.values())
            if len(together) < 2 or line & told:
                continue
            told |= line
            yield _written(context, path, together)


def _unordered(uses: dict[int, CheckpointUse], order: Order) -> dict[int, CheckpointUse]:
    """Those that another rank's use meets, or could have met."""
    return {
        rank: use
        for rank, use in uses.items()
        if any(
            other != rank and _may_meet(order, rank, use, other, theirs)
            for other, theirs in uses.items()
        )
    }


def _may_meet(
    order: Order, rank: int, use: CheckpointUse, other: int, theirs: CheckpointUse
) -> bool:
    if use.began_s < theirs.ended_s and theirs.began_s < use.ended_s:
        return True
    return not (
        order.comes_before(rank, use.ended_s, other, theirs.began_s)
        or order.comes_before(other, theirs.ended_s, rank, use.began_s)
    )


def _written(context: Context, path: str, uses: dict[int, CheckpointUse]) -> Finding:
    first, *_ = uses.values()
    met = any(
        a is not b and a.began_s < b.ended_s and b.began_s < a.ended_s
        for a in uses.values()
        for b in uses.values()
    )
    return conclude_text(
        "D.1.6",
        f"{ranks_text(uses)} write the same file, {first.name}, "
        + ("at the same time" if met else "with no collective in between"),
        cause="checkpoint-written-by-every-rank",
        ranks=uses,
        places={rank: context.place(use.where) for rank, use in uses.items()},
        evidence=[f"the file is {path}", "no collective lies between the writes"],
    )


def read_too_early(context: Context) -> Iterator[Finding]:
    """A rank has loaded a file before another one had written it, and nobody noticed."""
    saves, loads = _by_path(context, "save"), _by_path(context, "load")
    order = Order(context)
    for path in sorted(saves.keys() & loads.keys()):
        every = ((writer, use) for writer, uses in saves[path].items() for use in uses)
        found = ((w, save, _early(context, order, w, save, loads[path])) for w, save in every)
        first = next((one for one in found if one[2]), None)
        if first is not None:
            yield _read(context, path, *first)


def _early(
    context: Context, order: Order, writer: int, save: CheckpointUse, loads: _Uses
) -> dict[int, CheckpointUse]:
    """Loads of other ranks that began before the file was written, and were to come after."""
    found: dict[int, CheckpointUse] = {}
    own = {context.label(u.where) for u in loads.get(writer, []) if u.ended_s <= save.began_s}
    for rank, uses in loads.items():
        for use in uses:
            resumed = context.label(use.where) in own  # the writer read it there before, too
            if rank == writer or not use.done or resumed or use.began_s >= save.ended_s:
                continue
            if not order.comes_before(rank, use.ended_s, writer, save.began_s):
                found.setdefault(rank, use)
    return found


def _read(
    context: Context, path: str, writer: int, save: CheckpointUse, early: dict[int, CheckpointUse]
) -> Finding:
    first, *_ = early.values()
    by = save.ended_s - first.began_s
    return conclude_text(
        "D.1.6",
        f"{ranks_text(early)} read {save.name} before rank {writer} had written it, "
        f"{seconds(by)} too early: what they have is older",
        cause="checkpoint-read-too-early",
        ranks=early,
        places={rank: context.place(use.where) for rank, use in early.items()}
        | {writer: context.place(save.where, "saves")},
        evidence=[
            f"the file is {path}",
            f"rank {writer} writes it at {context.label(save.where)}",
            "no collective lies between writing and reading",
        ],
        confidence="likely",
    )


def nothing_loaded(context: Context) -> Iterator[Finding]:
    """A state dict of which no key fits was loaded with ``strict=False``: nothing happened."""
    where: dict[Place | None, dict[int, StateLoad]] = defaultdict(dict)
    for report in context.snapshot.checkpoints:
        for load in report.states:
            where[context.place(load.where, "loads")].setdefault(report.rank, load)
    for place, loads in where.items():
        first, *_ = loads.values()
        instead = f" where the model has `{first.missing}`" if first.missing else ""
        yield conclude_text(
            "D.1.6",
            f"{ranks_text(loads)} loaded nothing into {first.model}: none of the "
            f"{count(first.keys, 'key')} fits, and strict=False lets that pass",
            cause="nothing-loaded",
            ranks=loads,
            places=dict.fromkeys(loads, place),
            evidence=[f"the first key is `{first.unexpected}`{instead}"],
            confidence="likely",
        )


def wrapped_states(context: Context) -> Iterator[Finding]:
    """A checkpoint that has the names of the wrapper: it may be meant so."""
    told = set()
    for report in context.snapshot.checkpoints:
        for use in report.uses:
            if use.wrapped and use.done and use.path not in told:
                told.add(use.path)
                yield conclude_text(
                    "D.1.6",
                    f"{use.name} holds the names of the wrapper (`{use.wrapped}`): "
                    "a model without DDP does not load it",
                    cause="checkpoint-of-wrapper",
                    ranks=[report.rank],
                    places={report.rank: context.place(use.where)},
                    evidence=[f"saved at {context.label(use.where)}"],
                    confidence="possible",
                )


def _by_path(context: Context, action: str) -> dict[str, _Uses]:
    found: dict[str, _Uses] = defaultdict(lambda: defaultdict(list))
    for report in context.snapshot.checkpoints:
        for use in report.uses:
            if use.action == action and (use.done or action == "load"):
                found[use.path][report.rank].append(use)
    return {path: dict(uses) for path, uses in found.items()}
