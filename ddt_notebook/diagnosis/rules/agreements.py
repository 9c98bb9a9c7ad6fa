"""Rules about values that a framework needs equal on some ranks, or different on them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Place, Position
from ddt_notebook.model.agreements import Broken, alike, broken
from ddt_notebook.model.frameworks import described
from ddt_notebook.model.parity import grouped
from ddt_notebook.program.program import Program

_SYMPTOMS = {"hung": "D.2.1", "failed": "D.1.1"}
#: Lines of names in a finding; more would not help.
_MOST_LINES = 3
_OF_SETUP = {"hung": "B.2", "failed": "B.2"}


def given_apart(context: Context) -> Iterator[Finding]:
    """Report what differs first, once for each cause.

    What follows from other differences, as parameters do, is reported only if there are none.
    """
    snapshot = context.snapshot
    seen: set[str] = set()
    for one in broken(context.agreements):
        if one.axis == "training" and snapshot.outcome == "ok":
            continue  # ranks may well train with other batch sizes
        framework, kind = described(one.framework), one.what.partition(" ")[0]
        cause, is_effect = framework.causes.get(kind), kind in framework.effects
        if cause is None or cause in seen or (is_effect and seen):
            continue
        lines = {given.where for given in one.given.values()}
        if len(lines) > 1 or (one.is_parameter and one.number > 1 and snapshot.outcome != "ok"):
            continue  # a rank that is elsewhere may well be given something else
        seen.add(cause)
        yield _finding(context, one, cause)


def given_alike(context: Context) -> Iterator[Finding]:
    """Report batches that all replicas of a model train on, and equal parts of a parameter."""
    if context.snapshot.outcome != "ok":
        return
    found = [*alike(context.agreements)]
    for one in found:
        kind = one.what.partition(" ")[0]
        cause = described(one.framework).alike.get((kind, one.axis))
        if cause is None:
            continue
        places = {rank: context.place(given.where, "called") for rank, given in one.given.items()}
        others = sum(
            other.is_parameter and other.given.keys() == one.given.keys() for other in found
        )
        yield conclude(
            "D.2.4" if one.is_parameter else "C.7",
            "given-alike",
            cause=cause,
            ranks=sorted(one.given),
            values={"what": one.what, "axis": one.axis, "others": max(others - 1, 0)},
            places=dict(sorted(places.items())),
            facts=[],
            confidence="likely",
        )
        return


def _finding(context: Context, one: Broken, cause: str) -> Finding:
    numbers = () if one.is_fingerprint else tuple(one.values.items())
    facts = [
        Fact(kind="given", ranks=tuple(ranks), values={"what": one.what, "value": value})
        for value, ranks in numbers
    ]
    places = {
        rank: context.place(given.where, "called") for rank, given in sorted(one.given.items())
    }
    facts += _given_at(context, one)
    if one.is_parameter and one.number > 1:  # they were equal at first
        settings, made = _settings(context, sorted(one.given))
        facts += settings
        places = places if None in made.values() else made or places
    return conclude(
        (_OF_SETUP if one.axis == "world" else _SYMPTOMS).get(context.snapshot.outcome, "D.2.4"),
        "given-apart",
        cause=cause,
        ranks=sorted(one.given),
        values={
            "what": one.what,
            "axis": one.axis,
            "number": one.number,
            "among": next(iter(one.given.values())).among,
        },
        places=places,
        facts=facts,
    )


def _given_at(context: Context, one: Broken) -> Iterator[Fact]:
    """Yield the lines at which ranks gave the names that others lack."""
    op = described(one.framework).given_at.get(one.what)
    if op is None:
        return
    names = {rank: set(given.value.split(", ")) for rank, given in one.given.items()}
    every = [name for own in names.values() for name in own]
    lacking = {name for name in every if every.count(name) < len(names)}
    lines: dict[tuple[str, Position], list[int]] = defaultdict(list)
    for rank in sorted(names):
        for call in context.reports[rank].calls:
            if call.op == op and call.where is not None and call.detail in lacking & names[rank]:
                lines[str(call.detail), call.where].append(rank)
    for (name, where), ranks in list(lines.items())[:_MOST_LINES]:
        place = context.place(where, "called")
        yield Fact(kind="given-at", place=place, ranks=tuple(ranks), values={"name": name})


def _settings(context: Context, ranks: list[int]) -> tuple[list[Fact], dict[int, Place | None]]:
    """A setting of the ranks' optimizers that differs, and the lines that made them."""
    used = {
        seen.rank: next((one for one in seen.optimizers if one.steps), None)
        for seen in context.snapshot.training
        if seen.rank in ranks
    }
    optimizers = {rank: one for rank, one in used.items() if one is not None}
    if sorted(optimizers) != ranks:
        return [], {}
    for name in dict.fromkeys(name for one in optimizers.values() for name in one.settings):
        values = {rank: one.settings.get(name, "none") for rank, one in optimizers.items()}
        if len(set(values.values())) > 1:
            facts = [
                Fact(
                    kind="setting",
                    ranks=tuple(same),
                    values={"setting": name.partition("[")[0], "value": value},
                )
                for value, same in grouped(values).items()
            ]
            made = {rank: context.place(optimizers[rank].made, "called") for rank in ranks}
            return [*facts, *_assigned(context, name.partition("[")[0])], made
    return [], {}


def _assigned(context: Context, setting: str) -> Iterator[Fact]:
    """Yield the lines that assign a setting of an optimizer: ``group["lr"] = …``."""
    for node in islice(_items_assigned(context.program, setting), _MOST_LINES):
        place = context.program.place(node, "changes")
        yield Fact(kind="setting-assigned", place=place, values={"setting": setting})


def _items_assigned(program: Program, key: str) -> Iterator[ast.Subscript]:
    for node in program.nodes:
        match node:
            case ast.Subscript(slice=ast.Constant(value=str(name)), ctx=ast.Store()):
                if name == key:
                    yield node


RULES = (given_apart, given_alike)
