"""Rules about ranks that use one file at the same time, and about its content.

On two hosts, one path may name two files, so only ranks of one host are compared.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.happens_before import Order
from ddt_notebook.model import Fact, Finding, Place
from ddt_notebook.model.checkpoints import CheckpointUse, LeftState, StateLoad
from ddt_notebook.program.nodes import calls_in, is_call

_Uses = dict[int, list[CheckpointUse]]

#: The kind of finding of a file that a rank loads before another one has written it.
READ_BEFORE_WRITTEN = "read-before-written"


def written_together(context: Context) -> Iterator[Finding]:
    """Report ranks that save to one path in no fixed order."""
    order = Order(context)
    # One finding for each line: a loop may write to many paths.
    reported: set[str] = set()
    for path, saves in sorted(_by_path(context, "save").items()):
        for round_ in range(max(map(len, saves.values()))):
            nth = {r: uses[round_] for r, uses in saves.items() if len(uses) > round_}
            together = _unordered(context, nth, order)
            line = frozenset(context.label(use.where) for use in together.values())
            if len(together) < 2 or line & reported:
                continue
            reported |= line
            yield _written(context, path, together)


def _unordered(
    context: Context, uses: dict[int, CheckpointUse], order: Order
) -> dict[int, CheckpointUse]:
    """Return the uses that overlap, or could overlap, with the use of another rank."""
    return {
        rank: use
        for rank, use in uses.items()
        if any(
            other != rank
            and context.on_one_host(rank, other)
            and _may_meet(order, rank, use, other, theirs)
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
        a is not b
        and context.on_one_host(rank, other)
        and a.began_s < b.ended_s
        and b.began_s < a.ended_s
        for rank, a in uses.items()
        for other, b in uses.items()
    )
    return conclude(
        "D.1.6",
        "written-at-the-same-time" if met else "written-without-order",
        cause="checkpoint-written-by-every-rank",
        ranks=uses,
        values={"file": first.name},
        places={rank: context.place(use.where, "saves") for rank, use in uses.items()},
        facts=[Fact(kind="file", values={"path": path}), Fact(kind="no-collective-between")],
    )


def read_too_early(context: Context) -> Iterator[Finding]:
    """Report files that a rank loaded before another rank had written them, without an error."""
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
    """Return the loads of other ranks that began before the write that they should follow."""
    found: dict[int, CheckpointUse] = {}
    own = {context.label(u.where) for u in loads.get(writer, []) if u.ended_s <= save.began_s}
    for rank, uses in loads.items():
        for use in uses:
            resumed = context.label(use.where) in own  # the writer also read it there before
            if rank == writer or not use.done or resumed or use.began_s >= save.ended_s:
                continue
            if not context.on_one_host(rank, writer):
                continue
            if not order.comes_before(rank, use.ended_s, writer, save.began_s):
                found.setdefault(rank, use)
    return found


def _read(
    context: Context, path: str, writer: int, save: CheckpointUse, early: dict[int, CheckpointUse]
) -> Finding:
    first, *_ = early.values()
    return conclude(
        "D.1.6",
        READ_BEFORE_WRITTEN,
        cause="checkpoint-read-too-early",
        ranks=early,
        values={"file": save.name, "writer": writer, "early_s": save.ended_s - first.began_s},
        places={rank: context.place(use.where, "loads") for rank, use in early.items()}
        | {writer: context.place(save.where, "saves")},
        facts=[
            Fact(kind="file", values={"path": path}),
            Fact(kind="written-at", ranks=(writer,), place=context.place(save.where, "saves")),
            Fact(kind="no-collective-between"),
        ],
        confidence="likely",
    )


def nothing_loaded(context: Context) -> Iterator[Finding]:
    """Report state dicts without a fitting key that ``strict=False`` loaded without effect."""
    where: dict[Place | None, dict[int, StateLoad]] = defaultdict(dict)
    for report in context.snapshot.checkpoints:
        for load in report.states:
            where[context.place(load.where, "loads")].setdefault(report.rank, load)
    for place, loads in where.items():
        first, *_ = loads.values()
        yield conclude(
            "D.1.6",
            "nothing-loaded",
            cause="nothing-loaded",
            ranks=loads,
            values={"model": first.model, "keys": first.keys},
            places=dict.fromkeys(loads, place),
            facts=[
                Fact(
                    kind="keys-differ",
                    values={"unexpected": first.unexpected, "missing": first.missing},
                )
            ],
            confidence="likely",
        )


def resumed_apart(context: Context) -> Iterator[Finding]:
    """Report optimizers and schedulers whose saved state only some ranks took over."""
    if context.snapshot.outcome != "ok":
        return
    for kind, states in _states_of_files(context).items():
        without = not_resumed(context, kind)
        if without:
            others = tuple(rank for rank in _trained(context) if rank not in without)
            yield _resumed_without(context, kind, states, without, others)


def not_resumed(context: Context, kind: str) -> list[int]:
    """Return the ranks that did not take over a kind of state from a file, as others did."""
    trained = _trained(context)
    took = {rank for rank, restored in _restored(context).items() if restored.get(kind)}
    if kind not in _states_of_files(context) or not took.intersection(trained):
        return []
    return [rank for rank in trained if rank not in took]


def states_left(context: Context) -> Iterator[Finding]:
    """Report files from which ranks go on, with states that nothing has taken over."""
    if context.snapshot.outcome != "ok":
        return
    found: dict[tuple[Place | None, str], dict[int, LeftState]] = defaultdict(dict)
    for report in context.snapshot.checkpoints:
        for left in report.left:
            found[context.place(left.where, "loads"), left.key][report.rank] = left
    trained = _trained(context)
    everywhere = {
        key: lefts
        for key, lefts in found.items()
        if set(trained) <= lefts.keys()
        # one rank may save for all
        and any(left.counts_on for left in lefts.values())
        and any(left.saved or left.kind != "tensors" for left in lefts.values())
    }
    if not everywhere or any(True for _ in resumed_apart(context)):
        return
    keys = [key for _, key in everywhere]
    lefts = next(iter(everywhere.values()))
    first = lefts[min(lefts)]
    yield conclude(
        "D.2.5",
        "resumed-without-entries",
        cause="resumed-without-state",
        ranks=lefts,
        values={"file": first.path.rsplit("/", 1)[-1], "keys": tuple(keys)},
        places={rank: context.place(left.where, "loads") for rank, left in lefts.items()},
        facts=[Fact(kind="nothing-took-over"), Fact(kind="counts-on")],
        confidence="likely",
    )


def resumed_incompletely(context: Context) -> Iterator[Finding]:
    """Report, as a hint, jobs that go on from a file and leave an optimizer's state in it."""
    restored = _restored(context)
    saved: dict[str, float] = {}
    for one in context.snapshot.checkpoints:
        for use in one.uses:
            if use.action == "save":
                path = use.renamed or use.path
                saved[path] = max(use.began_s, saved.get(path, 0.0))
    trained = _trained(context)
    if context.snapshot.outcome != "ok" or any(True for _ in states_left(context)):
        return
    for kind, states in _states_of_files(context).items():
        if kind == "scaler" or not trained or any(restored[r].get(kind) for r in restored):
            continue
        goes_on = any(saved.get(use.path, 0.0) > use.ended_s for use in states.values()) or any(
            restored[rank].get(other)
            for rank in restored
            for other in ("optimizer", "scheduler", "scaler")
        )
        if goes_on and any(one.get("model") for one in restored.values()):
            yield _resumed_without(context, kind, states, trained, ())


def _resumed_without(
    context: Context,
    kind: str,
    states: dict[int, CheckpointUse],
    ranks: list[int],
    others: tuple[int, ...],
) -> Finding:
    places = {rank: context.place(use.where, "loads") for rank, use in states.items()}
    return conclude(
        "D.2.5",
        "resumed-without-state",
        cause="resumed-without-state",
        ranks=ranks,
        values={"state": kind, "file": next(iter(states.values())).name},
        places=places,
        facts=[
            Fact(kind="file-holds-state", values={"state": kind}),
            *([Fact(kind="took-state-over", ranks=others)] if others else []),
            *_restores_alone(context, others),
        ],
        confidence="likely" if others else "possible",
    )


def _restores_alone(context: Context, others: tuple[int, ...]) -> Iterator[Fact]:
    """Yield the conditions that hold on one rank alone and under which it restores a state."""
    if len(others) != 1:
        return
    for document in context.program.documents:
        for place in context.program.conditions_only_on(others[0], document):
            statement = context.program.statement_at(place)
            if isinstance(statement, ast.If) and any(
                is_call(one, "load_state_dict") for node in statement.body for one in calls_in(node)
            ):
                yield Fact(kind="runs-alone", ranks=others, place=place)


def _states_of_files(context: Context) -> dict[str, dict[int, CheckpointUse]]:
    """Return by kind of object: the last load on each rank of a file that holds its state."""
    found: dict[str, dict[int, CheckpointUse]] = defaultdict(dict)
    for report in context.snapshot.checkpoints:
        for use in report.uses:
            for kind in use.holds:
                found[kind][report.rank] = use
    return found


def _restored(context: Context) -> dict[int, dict[str, int]]:
    return {report.rank: report.restored for report in context.snapshot.checkpoints}


def _trained(context: Context) -> list[int]:
    """Return the ranks on which an optimizer stepped."""
    return [one.rank for one in context.snapshot.training if any(o.steps for o in one.optimizers)]


def wrapped_states(context: Context) -> Iterator[Finding]:
    """Report checkpoints with the wrapper's names; this may be intended."""
    reported = set()
    for report in context.snapshot.checkpoints:
        for use in report.uses:
            if use.wrapped and use.done and use.path not in reported:
                reported.add(use.path)
                yield conclude(
                    "D.1.6",
                    "names-of-the-wrapper",
                    cause="checkpoint-of-wrapper",
                    ranks=[report.rank],
                    values={"file": use.name, "key": use.wrapped},
                    places={report.rank: context.place(use.where, "saves")},
                    facts=[Fact(kind="saved-at", place=context.place(use.where, "saves"))],
                    confidence="possible",
                )


def _by_path(context: Context, action: str) -> dict[str, _Uses]:
    found: dict[str, _Uses] = defaultdict(lambda: defaultdict(list))
    for report in context.snapshot.checkpoints:
        for use in report.uses:
            if use.action == action and (use.done or action == "load"):
                found[use.path][report.rank].append(use)
    return {path: dict(uses) for path, uses in found.items()}


RULES = (nothing_loaded, written_together, read_too_early, resumed_apart, states_left)
HINTS = (wrapped_states, resumed_incompletely)
