"""Rules about DeepSpeed's engines on ranks that train together, and about stages of pipelines."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding, Place
from ddt_notebook.model.frameworks.deepspeed import (
    ENGINE,
    ENGINE_HOLDS,
    ENGINE_READY,
    ENGINE_TAKES,
    ENGINE_TRAINS,
    ENGINE_USES,
    LOAD_CHECKPOINT,
    LOSS_DIVIDED,
    MEMBERS,
    ORDER,
    STAGE_READS,
    StageData,
)
from ddt_notebook.model.parity import grouped, minority
from ddt_notebook.program.nodes import called_name, calls_in, last_name

#: ``gradient_accumulation_steps``, ``accum_iter``, ``gas``.
_ACCUMULATES = re.compile(r"accum|\bgas\b", re.IGNORECASE)
#: Settings and buffers that a finding names, and micro-batches that show what stages read.
_MOST_NAMED, _MICRO_BATCHES = 4, 3
#: So many different inputs in turn, equal on all ranks, are no coincidence. Chosen, not measured.
_DIFFERENT_INPUTS = 3
#: What differs in the optimizer's steps, not in what the engine does around them.
_OF_ENGINE = re.compile(r"zero_|gradient_|train_|fp16|bf16")
#: Methods of tensors that change no values, in spite of their names.
_NO_WRITES = frozenset({"requires_grad_", "detach_", "retain_grad_"})
#: What an optimizer keeps of the learning rate that it was given.
_FOLLOWS = "initial_"

Noted = dict[str, Any]


def settings_apart(context: Context) -> Iterator[Finding]:
    """Report ranks whose engines average gradients together, but step with other settings."""
    for step in _together(context, ENGINE_USES, "engine", "group", "step"):
        names = dict.fromkeys(name for one, _ in step.values() for name in one["settings"])
        apart = {
            name: given
            for name in names
            if not name.startswith(_FOLLOWS)
            and len(set((given := _each(step, name)).values())) > 1
            and "" not in given.values()
        }
        if not apart:
            continue
        name = next(iter(apart))
        of_engine = _OF_ENGINE.match(name) is not None
        made = _made(context, name, step)
        yield conclude(
            "D.2.2" if of_engine else "D.2.5",
            "engines-set-apart",
            cause="deepspeed-config-differs" if of_engine else "ranks-diverged-learning-rate",
            ranks=minority(grouped(apart[name]).values()),
            values={"setting": _plain(name)},
            places=made or {r: context.place(call.where, "steps") for r, (_, call) in step.items()},
            facts=[
                *(
                    Fact(kind="setting", ranks=tuple(ranks), values=_setting(one, value))
                    for one, given in list(apart.items())[:_MOST_NAMED]
                    for value, ranks in grouped(given).items()
                ),
                Fact(
                    kind="stepped-with",
                    place=context.place(step[min(step)][1].where, "steps"),
                    ranks=tuple(step),
                ),
            ],
            confidence="likely",
        )
        return


def _each(step: dict[int, tuple[Noted, Call]], name: str) -> dict[int, str]:
    return {rank: str(one["settings"].get(name, "")) for rank, (one, _) in step.items()}


def _setting(name: str, value: str) -> dict[str, str]:
    return {"setting": _plain(name), "value": value}


def _plain(name: str) -> str:
    """``lr`` for ``lr[0]``."""
    return name.partition("[")[0]


def _made(
    context: Context, setting: str, step: dict[int, tuple[Noted, Call]]
) -> dict[int, Place | None]:
    """Return the lines that made the optimizers, if they gave them other rates; else the engines.

    Empty if neither was in this run.
    """
    rates = {
        training.rank: [one for one in training.optimizers if one.made_rates and one.made]
        for training in context.snapshot.training
        if training.rank in step
    }
    alone = len(rates) == len(step) and all(len(found) == 1 for found in rates.values())
    if alone and _plain(setting) == "lr" and len({o[0].made_rates for o in rates.values()}) > 1:
        return {rank: context.place(o[0].made, "created") for rank, o in rates.items()}
    return _engines(context, {rank: one for rank, (one, _) in step.items()})


def _engines(context: Context, noted: dict[int, Noted]) -> dict[int, Place | None]:
    """Return the lines that made the engines; empty if they are of an earlier run."""
    found = {}
    for rank, one in noted.items():
        for call in context.reports[rank].calls:
            if call.op == ENGINE and call.sequence == one["engine"]:
                found[rank] = context.place(call.where, "created")
    return found if len(found) == len(noted) else {}


def order_apart(context: Context) -> Iterator[Finding]:
    """Report optimizers that join the parameters in another order on each rank to divide them.

    Each rank then updates what is another parameter to the others, since all sizes fit.
    """
    ready: dict[tuple[Any, ...], dict[int, tuple[Noted, Call]]] = defaultdict(dict)
    for rank, (one, call) in _noted(context, ENGINE_READY):
        if ORDER in one and rank in one.get(MEMBERS, ()):
            ready[(call.sequence, *one[MEMBERS])][rank] = one, call
    for found in ready.values():
        if len({one[ORDER] for one, _ in found.values()}) < 2:
            continue
        engines = {rank: {"engine": call.sequence} for rank, (_, call) in found.items()}
        made = _made_optimizers(context, found)
        yield conclude(
            "D.2.4",
            "engine-parameters-in-another-order",
            cause="deepspeed-parameters-in-another-order",
            ranks=found,
            places=made or _engines(context, engines),
            facts=[
                Fact(
                    kind="parameters-divided-as-one",
                    place=_engines(context, engines).get(min(found)),
                    ranks=tuple(found),
                )
            ],
            confidence="certain",
        )
        return


def _made_optimizers(context: Context, ranks: Collection[int]) -> dict[int, Place | None]:
    """Return the lines that made the ranks' optimizers, if each has made one."""
    made = {
        training.rank: [one.made for one in training.optimizers if one.made]
        for training in context.snapshot.training
        if training.rank in ranks
    }
    if len(made) < len(ranks) or any(len(lines) != 1 for lines in made.values()):
        return {}
    return {rank: context.place(lines[0], "created") for rank, lines in made.items()}


def parameters_apart(context: Context) -> Iterator[Finding]:
    """Report engines that average gradients together, and compute with other parameters.

    DeepSpeed makes parameters equal as it makes an engine and, from ZeRO-1 on, after each step.
    """
    if any(True for rule in (settings_apart, order_apart) for _ in rule(context)):
        return
    for held in reversed(_together(context, ENGINE_TRAINS, "engine", "group", "step")):
        first = held[min(held)][0]
        names = [
            name
            for name, value in first["parameters"].items()
            if any(one["parameters"].get(name, value) != value for one, _ in held.values())
        ]
        if not names:
            continue
        loaded = _loaded_by_some(context, held)
        written = next((at for name in names if (at := _written(context, name)) is not None), None)
        steps = {rank: context.place(call.where, "steps") for rank, (_, call) in held.items()}
        yield conclude(
            "D.2.5",
            "engine-parameters-apart",
            cause="model-reset-on-one-rank",
            ranks=held,
            values={"names": tuple(names[:_MOST_NAMED]), "parameters": len(names)},
            places=steps | loaded if loaded or written is None else dict.fromkeys(held, written),
            facts=[
                *([Fact(kind="loaded-by", ranks=tuple(loaded))] if loaded else []),
                Fact(
                    kind="engine-parameters-before",
                    place=steps[min(held)],
                    ranks=tuple(held),
                    values={"step": first["step"]},
                ),
            ],
            confidence="likely",
        )
        return


def _loaded_by_some(context: Context, ranks: Collection[int]) -> dict[int, Place | None]:
    """Return where ranks loaded a checkpoint last that have loaded more of them than others."""
    loads = {
        rank: [
            call
            for call in context.reports[rank].calls
            if call.op == LOAD_CHECKPOINT and call.detail
        ]
        for rank in ranks
    }
    fewest = min(map(len, loads.values()))
    return {
        rank: context.place(calls[-1].where, "called")
        for rank, calls in loads.items()
        if len(calls) > fewest
    }


def _written(context: Context, name: str) -> Place | None:
    """Return the only line that writes to a parameter of this name in place."""
    last, found = name.rpartition(".")[2], []
    for node in context.program.nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=written, attr=method)):
                if not method.endswith("_") or method in _NO_WRITES or method.endswith("__"):
                    continue
            case ast.Assign(targets=[ast.Attribute(attr="data") as written]):
                pass
            case _:
                continue
        inside = {one.attr for one in ast.walk(written) if isinstance(one, ast.Attribute)}
        if last in inside:
            found.append(node)
    return context.program.place(found[0], "changes") if len(found) == 1 else None


def buffers_apart(context: Context) -> Iterator[Finding]:
    """Report buffers that nothing changes after an engine was made, and that differ by rank.

    DeepSpeed makes parameters equal on all ranks, and no buffers.
    """
    for held in _together(context, ENGINE_HOLDS, "engine", "group"):
        first = held[min(held)][0]["buffers"]
        names = [
            name
            for name in first
            if all(name in one["buffers"] for one, _ in held.values())
            and len({one["buffers"][name] for one, _ in held.values()}) > 1
        ]
        if not names:
            continue
        noted = {rank: one for rank, (one, _) in held.items()}
        registered = next((at for n in names if (at := _registered(context, n)) is not None), None)
        made = _engines(context, noted)
        yield conclude(
            "D.2.4",
            "engine-buffers-apart",
            cause="deepspeed-buffers-differ",
            ranks=held,
            values={"names": tuple(names[:_MOST_NAMED]), "buffers": len(names)},
            places=dict.fromkeys(held, registered)
            if registered is not None
            else made or {r: context.place(call.where, "steps") for r, (_, call) in held.items()},
            facts=[
                Fact(kind="buffers-not-broadcast", place=made.get(min(held)), ranks=tuple(held))
            ],
            confidence="likely",
        )
        return


def _registered(context: Context, name: str) -> Place | None:
    """Return the only line that registers a buffer of this name."""
    last = name.rpartition(".")[2]
    calls = [
        call
        for call in context.program.calls("register_buffer")
        if any(isinstance(one, ast.Constant) and one.value == last for one in call.args[:1])
    ]
    return context.program.place(calls[0], "created") if len(calls) == 1 else None


def same_samples(context: Context) -> Iterator[Finding]:
    """Report engines that are given the same samples, which no loader of torch brought.

    They are no made-up data, which may be equal by equal seeds: they are parts of data that the
    program holds, or came again.
    """
    for taken in _together(context, ENGINE_TAKES, "engine", "group"):
        first = {rank: tuple(one["inputs"]) for rank, (one, _) in taken.items()}
        if len({*first.values()}) > 1 or len({*first[min(first)]}) < _DIFFERENT_INPUTS:
            continue
        held = next((name for one, _ in taken.values() if (name := one.get("taken_from"))), None)
        yield conclude(
            "D.2.2",
            "engines-take-the-same",
            cause="no-distributed-sampler",
            ranks=taken,
            places={rank: context.place(call.where, "runs") for rank, (_, call) in taken.items()},
            facts=[
                Fact(kind="inputs-equal", values={"passes": len(first[min(first)])}),
                Fact(kind="taken-from", values={"name": held})
                if held
                else Fact(kind="samples-came-again", ranks=tuple(taken)),
            ],
            confidence="likely",
        )
        return


def stages_read_apart(context: Context) -> Iterator[Finding]:
    """Report a pipeline whose last stage has labels of other micro-batches than its first one.

    A stage may be given something in place of what it does not need: zeros, or one tensor always.
    """
    read: dict[tuple[int, ...], dict[int, list[tuple[Noted, Call]]]] = defaultdict(dict)
    for rank, noted in _noted(context, STAGE_READS):
        read[tuple(noted[0]["ranks"])].setdefault(rank, []).append(noted)
    for ranks, by_rank in read.items():
        ends = [by_rank.get(rank, []) for rank in (min(ranks), max(ranks))]
        if len(ranks) < 2 or min(map(len, ends)) < _MICRO_BATCHES:
            continue
        if not (_are_apart(ends, 0) and _are_apart(ends, 1)):
            continue
        called = {rank: by_rank[rank][0][1] for rank in (min(ranks), max(ranks))}
        yield conclude(
            "D.2.2",
            "stages-read-apart",
            cause="deepspeed-stages-read-apart",
            ranks=called,
            places={rank: context.place(call.where, "called") for rank, call in called.items()},
            facts=[
                Fact(
                    kind="micro-batches-apart",
                    ranks=tuple(called),
                    values={"batches": min(map(len, ends))},
                )
            ],
            confidence="possible" if _made_up(context, called, ends) else "likely",
        )
        return


def _made_up(
    context: Context, stages: Collection[int], ends: list[list[tuple[Noted, Call]]]
) -> bool:
    """Whether stages may have drawn their data, so that the labels mean nothing anyway.

    They drew random numbers for each micro-batch, or the data sets of their loaders differ.
    """
    if any(all(one["drawn"] for one, _ in noted) for noted in ends):
        return True
    held = [
        {sample for loader in one.loaders if loader.epochs for sample in loader.held}
        for one in context.snapshot.partition
        if one.rank in stages
    ]
    return len(held) == len(stages) and all(held) and not set.intersection(*held)


def _are_apart(ends: list[list[tuple[Noted, Call]]], part: int) -> bool:
    """Whether inputs, or labels, of all micro-batches are data on both stages, and never equal."""
    both = []
    for noted in ends:
        given = [one["read"][part] for one, _ in noted]
        if None in given:
            return False
        data = [StageData(*one) for one in given]
        if not all(one.varied for one in data) or len({one.content for one in data}) == 1:
            return False
        both.append(data)
    return all(
        mine.shapes == theirs.shapes and mine.content != theirs.content
        for mine, theirs in zip(*both, strict=False)
    )


def divided_twice(context: Context) -> Iterator[Finding]:
    """Report losses that the program divides by the steps of accumulation, as the engine does.

    A mean of several losses may divide by the same number: the source has to name what it is.
    """
    noted = {
        rank: call
        for rank, report in context.reports.items()
        for call in reversed(report.calls)
        if call.op == LOSS_DIVIDED
    }
    if not noted or context.snapshot.outcome != "ok":
        return
    place = _division(context)
    if place is None:
        return
    yield conclude(
        "D.2.4",
        "loss-divided-twice",
        cause="deepspeed-loss-divided-twice",
        ranks=noted,
        values={"passes": int(noted[min(noted)].detail or 1)},
        places={rank: context.place(call.where, "called") for rank, call in noted.items()},
        facts=[Fact(kind="loss-divided-at", place=place)],
        confidence="likely",
    )


def _division(context: Context) -> Place | None:
    """Return a line that divides what it passes to `backward`, or a loss, by accumulated steps."""
    program = context.program
    passed: set[str] = set()
    for call in program.calls("backward"):
        given = [*call.args, *(one.value for one in call.keywords)]
        if any(map(_divides, given)):
            return program.place(call)
        passed |= {last_name(one) for one in given} - {""}
    stored: Sequence[ast.expr]
    for node in program.nodes:
        match node:
            case ast.AugAssign(target=target, op=ast.Div(), value=value):
                stored, divides = [target], _counts(value)
            case ast.Assign(targets=targets, value=value):
                stored, divides = targets, _divides(value)
            case _:
                continue
        if divides and passed & set(map(last_name, stored)):
            return program.place(node)
    return None


def _divides(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div) and _counts(one.right)
        for one in ast.walk(node)
    )


def _counts(node: ast.AST) -> bool:
    names = {last_name(one) for one in ast.walk(node)} | {called_name(c) for c in calls_in(node)}
    keys = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    return any(_ACCUMULATES.search(one) for one in (*names, *keys) if isinstance(one, str))


def _noted(context: Context, op: str) -> Iterator[tuple[int, tuple[Noted, Call]]]:
    """Yield each rank with what it noted of its engines, in a run without an error."""
    if context.snapshot.outcome != "ok":
        return
    for rank, report in context.reports.items():
        for call in report.calls:
            if call.op == op and call.detail:
                yield rank, (json.loads(call.detail), call)


def _together(context: Context, op: str, *keys: str) -> list[dict[int, tuple[Noted, Call]]]:
    """Return what several ranks noted of one engine, the latest first; other keys are equal."""
    found: dict[tuple[Any, ...], dict[int, tuple[Noted, Call]]] = defaultdict(dict)
    for rank, (noted, call) in _noted(context, op):
        found[tuple(noted[key] for key in keys)][rank] = noted, call
    return [one for one in reversed(found.values()) if len(one) > 1]


RULES = (
    settings_apart,
    order_apart,
    parameters_apart,
    buffers_apart,
    same_samples,
    stages_read_apart,
    divided_twice,
)
