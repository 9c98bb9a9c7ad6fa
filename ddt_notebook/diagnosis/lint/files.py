"""Rules about checkpoints and other files that ranks share."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .facts import Event, Facts
from .note import Note
from .program import Program
from .values import DIFFERS, RANK, Foreign, Object, Value, is_wrapper

_CHECKPOINT = re.compile(r"\.(pt|pth|ckpt|bin|tar|pkl|safetensors)\b")
#: What a path is made of that each process has for itself.
_OWN = re.compile(r"rank|gpu|proc|shard|worker|device|node|host|\bpid|uuid|time", re.IGNORECASE)
_SHARDED = r"fully_shard|FullySharded|FSDP|parallelize_module|deepspeed|pipelin"


def _parallel(program: Program) -> bool:
    return program.mentions(
        r"\bDDP\b|DistributedDataParallel|\bdist\.|torch\.distributed|hvd\.|world_size|"
        r"\brank\s*(==|!=|>|\))"
    )


def by_every_rank(program: Program) -> Iterator[Note]:
    """A file that every rank writes."""
    if not program.passages or not _parallel(program) or program.mentions(_SHARDED):
        return
    everywhere = [{event.line for event in facts.of("save")} for facts in program.facts]
    if len(everywhere) < 2:
        return
    for event in program.facts[0].of("save"):
        if any(RANK in a.marks and not a.sure for a in event.around):
            continue
        ranks = sum(event.line in lines for lines in everywhere)
        if ranks < len(everywhere) or len(event.values) < 2 or not _is_shared(program, event):
            continue
        yield Note(
            symptom="D.1.6",
            title=f"every rank writes {event.text}",
            cause="checkpoint-written-by-every-rank",
            line=event.line,
        )


def _is_shared(program: Program, event: Event) -> bool:
    """Whether the path is the same on every rank, as far as can be told."""
    paths = [
        other.values[1]
        for facts in program.facts
        for other in facts.of("save")
        if other.line == event.line and len(other.values) > 1
    ]
    if any(path.marks & DIFFERS for path in paths):
        return False
    known = {path.value for path in paths if isinstance(path.value, str)}
    if known:
        return len(known) == 1 or not any(RANK in path.marks for path in paths)
    return _CHECKPOINT.search(event.text) is not None and not _OWN.search(event.text)


def folders(program: Program) -> Iterator[Note]:
    """A folder that every rank makes, where the second finds it made."""
    if len(program.facts) < 2 or not _parallel(program):
        return
    by_rank = [facts.of("makes folder") for facts in program.facts]
    for event in by_rank[0]:
        others = [[e for e in events if e.line == event.line] for events in by_rank[1:]]
        path = event.values[0] if event.values else None
        if path is None or not isinstance(path.value, str) or not all(others):
            continue
        if all(found[0].values[0].value == path.value for found in others):
            yield Note(
                symptom="D.1.9",
                title="every rank makes the same folder: all but the first find it there",
                cause="folder-made-by-every-rank",
                line=event.line,
                confidence="certain",
            )


def wrapper_saved(program: Program) -> Iterator[Note]:
    """State dicts whose names carry the wrapper, or lack it."""
    if not program.facts:
        return
    facts = program.facts[0]
    loads = [event for event in facts.of(".load_state_dict") if len(event.values) > 1]
    for load in loads:
        state, target = load.values[1].value, load.values[0].value
        if isinstance(state, Foreign) and state.kind == "state_dict":
            wrapped = _is_ddp(state.args[0].value)
            if _is_model(target) and wrapped is not _is_ddp(target):
                yield _wrong_names(program, wrapped, load.line, state.line)
    for save in facts.of("save"):
        if len(save.values) < 2:
            continue
        for state in _states(save.values[0]):
            wrapped = _is_ddp(state.args[0].value)
            clash = next((e for e in loads if _clashes(e, save.values[1], wrapped)), None)
            if clash is not None:
                yield _wrong_names(program, wrapped, clash.line, save.line)
            elif wrapped and not any(is_wrapper(event.values[0].value) for event in loads):
                yield Note(
                    symptom="D.1.6",
                    title="the checkpoint holds the names of the wrapper: `module.…`",
                    cause="checkpoint-of-wrapper",
                    line=save.line,
                    confidence="possible",
                )


def _wrong_names(program: Program, wrapped: bool, line: int, made: int) -> Note:
    says = "of the wrapper" if wrapped else "of the bare model"
    if "strict=False" in program.statement(line):
        return Note(
            symptom="D.1.6",
            title=f"the state dict {says} is loaded into the other: nothing is loaded, silently",
            cause="nothing-loaded",
            line=line,
            also=((made, "makes it"),),
        )
    return Note(
        symptom="C.1",
        title=f"the state dict {says} is loaded into the other: no name fits",
        cause="state-dict-prefix",
        line=line,
        also=((made, "makes it"),),
    )


def _is_model(value: object) -> bool:
    if isinstance(value, Foreign):
        return str(value.facts.get("path", "")).startswith("torch.nn")
    return isinstance(value, Object) and value.of.derives_from("Module")


def _states(what: Value) -> Iterator[Foreign]:
    held = what.value
    for value in held.values() if isinstance(held, dict) else [what]:
        if isinstance(value.value, Foreign) and value.value.kind == "state_dict":
            yield value.value


def _is_ddp(value: object) -> bool:
    return isinstance(value, Foreign) and value.kind == "DistributedDataParallel"


def _clashes(load: Event, path: Value, wrapped: bool) -> bool:
    target, loaded = load.values[0].value, load.values[1].value
    if not isinstance(loaded, Foreign) or loaded.kind != "loaded" or not loaded.args:
        return False
    same = isinstance(path.value, str) and loaded.args[0].value == path.value
    return same and _is_model(target) and is_wrapper(target) is not wrapped


def onto_one_device(program: Program) -> Iterator[Note]:
    """Checkpoints that every rank loads onto the device they were saved from."""
    if len(program.facts) < 2 or not _parallel(program):
        return
    cuda = program.mentions(r"\.cuda\(|[\"']cuda|[\"']nccl|cuda\.set_device")
    saved_on_cpu = program.mentions(r"\.cpu\(\)|set_default_device")
    elsewhere = program.mentions("map_location")
    for event in program.facts[1].of("load"):
        where = None if event.values[-1].marks else event.values[-1].value
        fixed = isinstance(where, str) and re.fullmatch(r"cuda:\d+", where)
        missing = cuda and not saved_on_cpu and not elsewhere
        if fixed or missing:
            yield Note(
                symptom="D.1.6",
                title=f"every rank loads onto {where}" if fixed
                else "every rank loads onto the device that the checkpoint was saved from",
                cause="checkpoint-on-one-gpu",
                line=event.line,
            )  # fmt: skip


def raced(program: Program) -> Iterator[Note]:
    """A file that some ranks read before the one that writes it is known to be done."""
    if len(program.facts) < 2:
        return
    polls = program.mentions(r"while not (os\.path\.exists|.*\.exists\(\))")
    for writer, facts in enumerate(program.facts):
        for path, (line, met) in _writes(program, facts).items():
            for reader, others in enumerate(program.facts):
                event = _early_read(others, path, met, line)
                if reader == writer or event is None or _comes_first(facts, event):
                    continue
                cause = "checkpoint-read-too-early" if event.text == "load" else "path-missing"
                if polls and event.text == "load":
                    cause = "checkpoint-unreadable"
                yield Note(
                    symptom="D.1.9" if cause == "path-missing" else "D.1.6",
                    title=f"ranks read {path!r} without knowing that rank {writer} has written it",
                    cause=cause,
                    line=event.line,
                    also=((line, f"writes it on rank {writer}"),),
                )
                return


def _writes(program: Program, facts: Facts) -> dict[str, tuple[int, int]]:
    """Path -> line of the first write by some ranks alone, and how many meetings came before."""
    found: dict[str, tuple[int, int]] = {}
    met = 0
    for event in facts.events:
        met += event.what == "issue"
        path = event.values[0].value if event.values else None
        if event.what == "write" and isinstance(path, str):
            if program.is_alone(event):
                found[path] = (event.line, met)
            else:
                found.pop(path, None)
    return found


def _early_read(facts: Facts, path: str, met: int, line: int) -> Event | None:
    count, written = 0, False
    for event in facts.events:
        count += event.what == "issue"
        held = event.values[0].value if event.values else None
        written = written or (event.what == "write" and held == path)
        if event.what == "read" and held == path and event.line > line:
            if any(not around.sure and not around.loop for around in event.around):
                return None
            return event if count <= met and not written else None
    return None


def _comes_first(facts: Facts, read: Event) -> bool:
    """Whether the writer reads it there before it writes: the file is an older one."""
    order = [
        event.what for event in facts.events if event.line == read.line or event.what == "write"
    ]
    return "read" in order and order.index("read") < order.index("write")
