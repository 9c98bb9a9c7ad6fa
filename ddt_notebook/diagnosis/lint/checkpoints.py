"""Rules about checkpoints and other files that ranks share."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddt_notebook.program.nodes import called_name, calls_in, is_constant, keyword
from ddt_notebook.program.trace import Event, Kind, Trace
from ddt_notebook.program.traced_program import TracedProgram
from ddt_notebook.program.values import (
    UNREAD,
    Instance,
    LibraryObject,
    Value,
    is_wrapper,
)

from . import proof
from .foreseen import Foreseen, foreseen, possible, shown, unless_doubted


def written_by_every_rank(program: TracedProgram) -> Iterator[Foreseen]:
    """Report checkpoints that every rank writes and folders that every rank makes."""
    if len(program.traces) < 2 or not program.is_distributed:
        return
    for event in program.first.of(Kind.SAVED):
        alone = program.shards_models or proof.may_be_of_some_ranks(program, event)
        if alone or len(event.values) < 2:
            continue
        paths = _paths(program, event)
        if not any(path.differs for path in paths):
            cause = "checkpoint-written-by-every-rank"
            unread = any(UNREAD in one.marks for one in event.around)  # it may ask for the rank
            known = any(isinstance(path.value, str) for path in paths)
            found = foreseen("every-rank-writes", cause, event.line, path=event.text)
            sure = known and not unread and proof.runs_on_several_ranks(program)
            yield unless_doubted(found, sure)
    for event in program.first.of(Kind.FOLDER_MADE):
        path = event.held()
        made = [
            {one.held() for one in trace.of(Kind.FOLDER_MADE) if one.line == event.line}
            for trace in program.traces
        ]
        if isinstance(path, str) and all(path in paths for paths in made):
            found = foreseen("every-rank-makes-folder", "folder-made-by-every-rank", event.line)
            yield unless_doubted(found, proof.runs_on_several_ranks(program))


def _paths(program: TracedProgram, event: Event) -> list[Value]:
    """The paths to which the ranks save at a line."""
    return [
        other.values[1]
        for trace in program.traces
        for other in trace.of(Kind.SAVED)
        if other.line == event.line and len(other.values) > 1
    ]


# -- names of parameters in state dicts ------------------------------------------------------------


def names_of_wrapper(program: TracedProgram) -> Iterator[Foreseen]:
    """Report state dicts whose names have the wrapper's prefix, or lack it."""
    trace = program.first
    loads = [event for event in trace.of(Kind.METHOD) if event.op == "load_state_dict"]
    for load in loads:
        state, target = load.held(1), load.held()
        if isinstance(state, LibraryObject) and state.kind == "state_dict":
            wrapped = _is_ddp(state.args[0].value)
            if _is_model(target) and wrapped is not _is_ddp(target):
                yield _wrong_names(program, wrapped, load.line, state.line)
    for save in trace.of(Kind.SAVED):
        for state in _states(save.values[0]) if len(save.values) > 1 else ():
            wrapped = _is_ddp(state.args[0].value)
            clash = next((load for load in loads if _clashes(load, save.held(1), wrapped)), None)
            if clash is not None:
                yield _wrong_names(program, wrapped, clash.line, save.line)
            elif wrapped and not any(is_wrapper(load.held()) for load in loads):
                yield possible("saves-names-of-wrapper", "checkpoint-of-wrapper", save.line)


def _wrong_names(program: TracedProgram, wrapped: bool, line: int, made: int) -> Foreseen:
    kind, cause = "no-name-fits", "state-dict-prefix"
    call = program.tree.call_at(line, "load_state_dict")
    if call is not None and is_constant(keyword(call, "strict"), False):
        kind, cause = "loads-nothing", "nothing-loaded"
    owner = "the wrapper" if wrapped else "the bare model"
    return foreseen(kind, cause, line, shown(made, "makes-it"), of=owner)


def _is_model(value: object) -> bool:
    if isinstance(value, LibraryObject):
        return value.path.startswith("torch.nn")
    return isinstance(value, Instance) and value.of.derives_from("Module")


def _is_ddp(value: object) -> bool:
    return isinstance(value, LibraryObject) and value.kind == "DistributedDataParallel"


def _states(saved: Value) -> Iterator[LibraryObject]:
    """Yield the state dicts inside a saved value."""
    held = saved.value
    for value in held.values() if isinstance(held, dict) else [saved]:
        if isinstance(value.value, LibraryObject) and value.value.kind == "state_dict":
            yield value.value


def _clashes(load: Event, path: object, wrapped: bool) -> bool:
    """Whether a model loads the file at a path although its names do not fit."""
    target, loaded = load.held(), load.held(1)
    if not isinstance(loaded, LibraryObject) or loaded.kind != "loaded" or not loaded.args:
        return False
    same = isinstance(path, str) and loaded.args[0].value == path
    return same and _is_model(target) and is_wrapper(target) is not wrapped


# -- where and when a checkpoint is loaded ---------------------------------------------------------


def onto_one_device(program: TracedProgram) -> Iterator[Foreseen]:
    """Report checkpoints that every rank loads onto the device from which they were saved."""
    if len(program.traces) < 2 or not program.is_distributed:
        return
    on_gpus = program.calls("cuda", "set_device") or any(
        text.startswith(("cuda", "nccl")) for text in program.tree.strings
    )
    moved = program.calls("cpu", "set_default_device") or "map_location" in program.tree.names
    for event in program.traces[1].of(Kind.LOADED):
        where = event.values[-1]
        if event.values[0].differs:
            continue  # a file of this rank alone
        fixed = isinstance(where.value, str) and re.fullmatch(r"cuda:\d+", where.value)
        if (fixed and not where.marks) or (on_gpus and not moved):
            device = where.value if fixed else ""
            cause = "checkpoint-on-one-gpu"
            found = foreseen("every-rank-loads-onto", cause, event.line, device=device)
            # Which device the file names is not known, and each rank may see one GPU only.
            yield unless_doubted(found, bool(fixed) and proof.shares_environment(program))


def read_too_early(program: TracedProgram) -> Iterator[Foreseen]:
    """Report files that ranks read before it is certain that another rank has written them."""
    loops = program.tree.of_kind(ast.While)
    polls = any(called_name(call) == "exists" for loop in loops for call in calls_in(loop.test))
    for writer, trace in enumerate(program.traces):
        for path, (line, met) in _writes(program, trace).items():
            for reader, other in enumerate(program.traces):
                event = _early_read(other, path, met, line)
                if reader == writer or event is None or _reads_first(trace, event):
                    continue
                cause = "path-missing"
                if event.op == "load":
                    cause = "checkpoint-unreadable" if polls else "checkpoint-read-too-early"
                writes = shown(line, "writes-on-rank", rank=writer)
                values = {"path": path, "writer": writer}
                found = foreseen("may-be-read-before-written", cause, event.line, writes, **values)
                # A function that has not been read may let the ranks meet.
                yield unless_doubted(found, proof.knows_all_calls(program))
                return


def _writes(program: TracedProgram, trace: Trace) -> dict[str, tuple[int, int]]:
    """Path -> line of the first write by only some ranks, and number of collectives before it."""
    found: dict[str, tuple[int, int]] = {}
    met = 0
    for event in trace.events:
        met += event.kind is Kind.GROUP_CALL
        path = event.held()
        if event.kind is Kind.FILE_WRITTEN and isinstance(path, str):
            if program.is_alone(event):
                found[path] = (event.line, met)
            else:
                found.pop(path, None)
    return found


def _early_read(trace: Trace, path: str, met: int, line: int) -> Event | None:
    """Return the first read of a file below a line, if at most ``met`` collectives come before."""
    count, written = 0, False
    for event in trace.events:
        count += event.kind is Kind.GROUP_CALL
        if event.held() != path:
            continue
        written = written or event.kind is Kind.FILE_WRITTEN
        if event.kind is Kind.FILE_READ and event.line > line:
            early = count <= met and not written and not event.may_not_happen
            return event if early else None
    return None


def _reads_first(trace: Trace, read: Event) -> bool:
    """Whether the writer reads the file at the same line before it writes, so the file is older."""
    for event in trace.events:
        if event.kind is Kind.FILE_WRITTEN:
            return False
        if event.kind is Kind.FILE_READ and event.line == read.line:
            return True
    return False


RULES = (written_by_every_rank, names_of_wrapper, onto_one_device, read_too_early)
