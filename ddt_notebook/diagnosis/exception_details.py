"""Reads names and a more precise cause from the text of an exception and the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ddt_notebook.messages import message
from ddt_notebook.model import Fact, Place, Position, RankError, Snapshot
from ddt_notebook.model.checkpoints import CheckpointUse
from ddt_notebook.model.finding import Values
from ddt_notebook.model.user_code import is_user_code
from ddt_notebook.program.conditional_lines import returns_nothing, used_under
from ddt_notebook.program.gradients import kept_graphs
from ddt_notebook.program.modules import module_names
from ddt_notebook.program.nodes import called_name, calls_in
from ddt_notebook.program.tensor_attributes import plain_attribute

from .advice import NAME_NOT_DEFINED, SYNTAX
from .context import Context
from .errors import Meaning
from .rank_stores import lacking

#: The kind of fact of a line that only ranks run which did not raise.
STORED_BY_SOME = "stored-by-some"
#: What is told of an exception in the item of a data set.
_ITEM_FAILS = "dataset-item-fails"
#: Functions of math, NumPy and torch.
_FINITE = frozenset({"isnan", "isinf", "isfinite"})
_UNUSED = re.compile(r"did not receive grad for rank \d+: ([\w., ]+)")
_TWICE = re.compile(r"Parameter at index \d+ with name ([\w.]+) has been marked")
_OWN_NUMBER = re.compile(r"^\[\d+\]:")
_LINE = re.compile(r'File "([^"]+)", line (\d+), in ')
#: Python names the file of a syntax error at the end; text passed to eval has another file.
_IN_CELL = re.compile(r"\(cell\[\d+\], line \d+\)$")


def details(context: Context, error: RankError, meaning: Meaning) -> tuple[Meaning, list[Fact]]:
    """Return a more precise cause, if the source shows one, and the facts that show it."""
    meaning, facts = _details(context, error, meaning)
    if error.made is not None:
        facts.append(Fact(kind="loader-made", place=context.place(error.made, "created")))
    missing = _stored_by_others(context, error)
    if missing and meaning.cause == _ITEM_FAILS and meaning.message is None:
        meaning = replace(meaning, cause=None)  # the item is not what fails
    return meaning, [*facts, *missing]


def _details(context: Context, error: RankError, meaning: Meaning) -> tuple[Meaning, list[Fact]]:
    if meaning.message is not None and (function := message(meaning.message).result_of):
        return meaning, _returns_nothing(context, function)
    if meaning.symptom == "D.1.11" and meaning.cause is None:
        return _without_class(context, error, meaning)
    if meaning.cause == "out-of-memory" and (line := _kept_graph(context, error)) is not None:
        likely = replace(meaning, cause="loss-keeps-graph", confidence="likely")
        return likely, [Fact(kind="keeps-graph", place=line)]
    if meaning.cause in ("path-missing", "checkpoint-unreadable"):
        return _too_early(context, error, meaning)
    if meaning.cause == "folder-made-by-every-rank" and _on_all_ranks(context, error):
        return replace(meaning, cause=None), [Fact(kind="existed-before")]
    if meaning.cause == "tensors-on-two-devices" and (plain := _plain_attribute(context, error)):
        likely = replace(meaning, cause="tensor-attribute-not-registered", confidence="likely")
        place, attribute = plain
        return likely, [Fact(kind="plain-attribute", place=place, values={"name": attribute})]
    if meaning.cause == "tensors-on-two-devices":
        return meaning, _moved_elsewhere(context, error)
    if meaning.cause == "dataloader-worker":
        return meaning, _in_worker(context, error)
    if meaning.cause == "models-differ":
        return meaning, _odd_first_rank(context)
    if meaning.cause == "unused-parameters" and (found := _UNUSED.search(error.message)):
        names = tuple(name.strip(" .") for name in found[1].split(","))
        unused = Fact(kind="without-gradient", values={"parameters": names})
        return meaning, [unused, *_used_under(context, names)]
    if meaning.cause == "parameter-ready-twice" and (found := _TWICE.search(error.message)):
        return meaning, [Fact(kind="ready-twice", values={"parameter": found[1].strip(".")})]
    return meaning, []


def _stored_by_others(context: Context, error: RankError) -> list[Fact]:
    """Return what the line that raised looks at and only ranks have stored that did not raise."""
    ran = {rank: report for rank, report in context.reports.items() if report.state != "idle"}
    alike = [
        rank
        for rank, report in ran.items()
        if report.error is not None
        and (report.error.type, report.error.where) == (error.type, error.where)
    ]
    first = [rank for rank in ran if not any(context.on_one_host(rank, x) for x in ran if x < rank)]
    for at in (error.where, error.made):
        missed = lacking(context.program, at, alike, [*ran], first)
        if missed is not None:
            values: Values = {
                "names": missed.names,
                "hook": missed.hook,
                "library": missed.library,
            }
            if missed.stored != missed.way:
                values["stored"] = missed.stored.line
            return [Fact(kind=STORED_BY_SOME, place=missed.way, ranks=missed.ranks, values=values)]
    return []


def _used_under(context: Context, names: Iterable[str]) -> Iterator[Fact]:
    """Yield the conditions that decide whether the modules of unused parameters are used."""
    # a layer of a `Sequential` has a number, and is used where that is
    modules = ([p for p in name.split(".")[:-1] if not p.isdigit()] for name in names)
    attributes = dict.fromkeys(parts[-1] for parts in modules if parts)
    places = (used_under(context.program, attribute) for attribute in attributes)
    for attribute, place in zip(attributes, places, strict=True):
        if place is not None:
            yield Fact(kind="uses-module", place=place, values={"name": attribute})


def _returns_nothing(context: Context, function: str) -> list[Fact]:
    """Return the line that leads to the return of a function without a result."""
    found = returns_nothing(context.program, function)
    if found is None:
        return []
    place, line = found
    kind = "returns-nothing" if place.line == line else "leads-to-no-result"
    return [Fact(kind=kind, place=place, values={"return_line": line})]


def _without_class(
    context: Context, error: RankError, meaning: Meaning
) -> tuple[Meaning, list[Fact]]:
    """Return what an error means for which the study has no class."""
    if not _found_nan(context, error):
        return replace(meaning, cause=_of_the_cell(error)), []
    for training in context.snapshot.training:
        for one in training.unwritten:
            if not one.zero:
                place = context.place(one.where, "created")
                values = {"module": one.module, "unwritten": one.unwritten}
                fact = Fact(kind="without-initial-values", place=place, values=values)
                return Meaning("D.2.5", "parameters-not-initialised", "likely"), [fact]
    raised = [one.error for one in context.reports.values() if one.state == "raised"]
    alike = sum(one is not None and one.where == error.where for one in raised)
    cause = "loss-not-finite" if alike == len(context.reports) else "nan-from-one-rank"
    return Meaning("D.2.5", cause, "likely"), []


def _found_nan(context: Context, error: RankError) -> bool:
    """Whether the program itself raised, in a condition that asks whether numbers are finite."""
    if error.where is None:
        return False
    statement = context.program.statement_at(error.where)
    if isinstance(statement, ast.Assert):
        return _asks_for_finite(statement.test)
    if not isinstance(statement, ast.Raise):
        return False
    around = next((block.owner for block in context.program.blocks(statement)), None)
    return isinstance(around, ast.If) and _asks_for_finite(around.test)


def _asks_for_finite(test: ast.expr) -> bool:
    return any(called_name(call) in _FINITE for call in calls_in(test))


def _kept_graph(context: Context, error: RankError) -> Place | None:
    """Return the line that collects tensors with their graph in a loop around the exception."""
    modules = _observed_modules(context.snapshot) | module_names(context.program, error.frames)
    found = (p for frame in error.frames for p in kept_graphs(context.program, frame, modules))
    return next(found, None)


def _observed_modules(snapshot: Snapshot) -> set[str]:
    """Return the last parts of the module names that the ranks reported."""
    found = {item.name for p in snapshot.placement for item in p.objects if item.kind == "module"}
    found |= {model.name for training in snapshot.training for model in training.models}
    found |= {one.model for training in snapshot.training for one in training.optimizers}
    return {name.rpartition(".")[2] for name in found} - {""}


def _plain_attribute(context: Context, error: RankError) -> tuple[Place, str] | None:
    """Return the plain attribute that a line of the stack reads, the innermost line first."""
    frames = reversed(error.frames or ((error.where,) if error.where else ()))
    found = (plain_attribute(context.program, frame) for frame in frames)
    return next((one for one in found if one is not None), None)


def _moved_elsewhere(context: Context, error: RankError) -> list[Fact]:
    """Return where ``device_ids`` makes DDP move the inputs away from the parameters."""
    raised = {one.rank for one in context.snapshot.ranks if one.error is error}
    for training in context.snapshot.training:
        for model in training.models if training.rank in raised else ():
            if model.moves_to and model.devices and model.moves_to[0] not in model.devices:
                return [
                    Fact(
                        kind="inputs-moved",
                        place=context.place(model.made, "created"),
                        values={"device": model.moves_to[0], "devices": list(model.devices)},
                    )
                ]
    return []


def _of_the_cell(error: RankError) -> str | None:
    """Return the cause of an error in the cell for which the study has no class."""
    innermost = error.frames[-1] if error.frames else error.where
    if innermost is None or innermost.cell is None:
        return None
    if error.undefined_name:
        return NAME_NOT_DEFINED
    syntax = error.type in ("SyntaxError", "IndentationError", "TabError")
    return SYNTAX if syntax and _IN_CELL.search(error.message) else None


def _too_early(context: Context, error: RankError, meaning: Meaning) -> tuple[Meaning, list[Fact]]:
    """Find out whether another rank wrote the checkpoint after the load that failed."""
    for report in context.snapshot.checkpoints:
        for use in report.uses:
            failed = _failed_load(context, error, use.path)
            if use.action != "save" or failed is None or use.ended_s <= failed.began_s:
                continue
            reader = next(one.rank for one in context.snapshot.ranks if one.error is error)
            if not context.on_one_host(report.rank, reader):  # the path may name two files
                continue
            fact = Fact(
                kind="written-later",
                place=context.place(use.where, "saves"),
                ranks=(report.rank,),
                values={"later_s": use.ended_s - failed.began_s},
            )
            if meaning.cause == "path-missing":
                meaning = Meaning("D.1.6", "checkpoint-read-too-early")
            return meaning, [fact]
    return meaning, []


def _failed_load(context: Context, error: RankError, path: str) -> CheckpointUse | None:
    """Return the load of a file in which an exception was raised."""
    for report in context.snapshot.checkpoints:
        if context.reports[report.rank].error is not error or not report.uses:
            continue
        last = report.uses[-1]
        if last.action == "load" and last.path == path and not last.done:
            return last
    return None


def _in_worker(context: Context, error: RankError) -> list[Fact]:
    """Return what a DataLoader worker raised, and at which line of the user's code."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    if "Original Traceback" not in error.message or len(lines) < 2:
        return []
    places = [one for one in _LINE.findall(error.message) if is_user_code(one[0])]
    at = Position(file=places[-1][0], line=int(places[-1][1])) if places else None
    raised = context.place(at, "raised")
    return [Fact(kind="raised-in-worker", place=raised, values={"error": lines[-1]})]


def _odd_first_rank(context: Context) -> list[Fact]:
    """Report that rank 0 differs: DDP compares with rank 0, and all others raised the same."""
    texts = set()
    for rank, report in context.reports.items():
        text = report.error.message if report.error is not None else ""
        if rank and "not to match sizes of the same param" in text:
            texts.add(_OWN_NUMBER.sub("", text))
        elif rank:
            return []
    if len(texts) == 1 and len(context.reports) > 2:
        return [Fact(kind="rank-0-is-odd", ranks=(0,))]
    return []


def _on_all_ranks(context: Context, error: RankError) -> bool:
    errors = [report.error for report in context.reports.values()]
    return all(other is not None and other.type == error.type for other in errors)
