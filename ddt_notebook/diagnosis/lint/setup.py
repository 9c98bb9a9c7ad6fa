"""Rules about how the process group is formed, and about devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .note import Note
from .program import Program
from .values import RANK, Foreign, Items, Value

_BACKENDS = frozenset({"gloo", "nccl", "mpi", "ucc", "xccl", "hccl", "xla", "fake", "threaded",
                       "undefined", "cncl", "smddp", "ccl", "rccl"})  # fmt: skip
_MAKES = r"torch\.(ones|zeros|tensor|rand|full|arange|empty)|nn\.[A-Z]\w+\("
_ON_DEVICE = r"cuda|device|\.to\(|gpu"


def backends(program: Program) -> Iterator[Note]:
    """Backends that torch does not have, or that cannot serve the tensors at hand."""
    here = program.mentions(_MAKES)  # else it may be made, and put on a GPU, in another file
    for passage in program.passages:
        for event in passage.facts[0].of("init"):
            backend = event.values[0].value
            if not isinstance(backend, str):
                continue
            parts = [part.rpartition(":")[2].lower() for part in backend.split(",")]
            unknown = [part for part in parts if part not in _BACKENDS]
            elsewhere = "\n".join(
                line for number, line in enumerate(program.lines, 1) if number != event.line
            )
            on_device = not here or re.search(_ON_DEVICE, elsewhere) is not None
            if unknown and not program.mentions("register_backend"):
                yield Note(
                    symptom="B.1",
                    title=f"torch has no backend {unknown[0]!r}",
                    cause="backend-unknown",
                    line=event.line,
                )
            elif parts == ["nccl"] and not on_device and not program.mentions("fully_shard"):
                yield Note(
                    symptom="B.1",
                    title="the backend is nccl, and nothing is ever put on a GPU",
                    cause="backend-not-available",
                    line=event.line,
                )
            elif ":" in backend and "cpu:" not in backend and not on_device:
                yield Note(
                    symptom="B.3",
                    title=f"the backend {backend!r} serves no tensor on the CPU",
                    cause="device-without-backend",
                    line=event.line,
                )


def formed_twice(program: Program) -> Iterator[Note]:
    """A process group that is formed while there is one."""
    if not program.facts:
        return
    formed = 0
    for event in program.facts[0].events:
        if event.what == "destroy":
            formed = 0
        elif event.what == "init" and not any(not a.sure for a in event.around):
            if formed:
                yield Note(
                    symptom="B.1",
                    title="init_process_group is called while the group exists",
                    cause="group-initialized-twice",
                    line=event.line,
                    also=((formed, "formed it"),) if formed != event.line else (),
                )
                return
            formed = event.line


def before_setup(program: Program) -> Iterator[Note]:
    """What needs the group, and comes before it is formed."""
    formed_at = program.facts[0].of("init") if program.facts else []
    if not formed_at or any(not around.loop for around in formed_at[0].around):
        return
    for event in program.facts[0].events:
        if event.what in ("init", "destroy"):
            return
        held = event.values[0].value if event.values else None
        sampler = event.what == "made" and event.text == "DistributedSampler"
        if sampler and isinstance(held, Foreign):
            sampler = held.argument("rank", 2) is None or held.argument("num_replicas", 1) is None
        if sampler or (event.what == "issue" and event.text != "init_process_group"):
            formed = formed_at[0].line
            yield Note(
                symptom="B.1",
                title=f"{event.text} needs the group, which is formed later",
                cause="group-not-initialized",
                line=event.line,
                also=((formed, "forms it"),),
            )
            return


def arguments(program: Program) -> Iterator[Note]:
    """Arguments of ``init_process_group`` that it refuses."""
    for passage in program.passages:
        for event in passage.facts[0].of("init"):
            given = event.values[1].value
            if not isinstance(given, dict):
                continue
            timeout, method = given.get("timeout"), given.get("init_method")
            if isinstance(timeout, Value) and type(timeout.value) in (int, float):
                yield Note(
                    symptom="B.1",
                    title="the time-out is a number; init_process_group takes a timedelta",
                    cause="setup-options",
                    line=event.line,
                )
            text = program.statement(event.line)
            meets = "tcp://" in text or "file://" in text
            bare = meets and not re.search(r"\brank\s*=|\*\*|\?", text)
            if isinstance(method, Value) and bare:
                yield Note(
                    symptom="B.1",
                    title="the meeting point is given, but neither rank nor world_size",
                    cause="init-method-incomplete",
                    line=event.line,
                )


def own_devices(program: Program) -> Iterator[Note]:
    """Ranks that all use one device."""
    if not program.facts or not program.mentions(r"DDP|DataParallel|init_process_group|nccl"):
        return
    facts = program.facts[0]
    chosen = program.mentions(
        r"set_device\(|CUDA_VISIBLE_DEVICES|cuda\.device\(|init_device_mesh|device_id=|"
        r"set_device_index|accelerat|deepspeed"
    )
    if len(program.facts) > 1:
        for event in program.facts[1].of("moved"):
            alone = any(RANK in around.marks for around in event.around)
            where = event.values[1].value if len(event.values) > 1 else None
            if any(value.marks for value in event.values[1:]):
                continue
            fixed = isinstance(where, str) and re.fullmatch(r"cuda:\d+", where)
            bare = event.text == "cuda" and len(event.values) == 1
            bare = bare or (where == "cuda" and event.text == "to")
            if not alone and not chosen and (fixed or bare):
                yield Note(
                    symptom="D.2.2",
                    title="every rank uses the same GPU",
                    cause="all-ranks-on-one-gpu",
                    line=event.line,
                )
                return
    for wrapper in facts.kind("DistributedDataParallel"):
        ids = wrapper.argument("device_ids", 1)
        model = wrapper.argument("module", 0)
        made_here = model is not None and model.known
        given = made_here and ids is not None and isinstance(ids.value, Items)
        if given and not program.mentions(r"cuda|\.to\(|gpu|set_default_device"):
            yield Note(
                symptom="C.5",
                title="device_ids is given for a model that is on the CPU",
                cause="device-ids-on-cpu",
                line=wrapper.line,
            )


def not_inherited(program: Program) -> Iterator[Note]:
    """A time-out that holds for the whole group and not for a group made of some ranks."""
    for passage in program.passages:
        facts = passage.facts[0]
        timed = any(
            isinstance(event.values[1].value, dict) and "timeout" in event.values[1].value
            for event in facts.of("init")
        )
        for event in facts.of("new_group without timeout"):
            if timed:
                yield Note(
                    symptom="D.2.1",
                    title="the group does not inherit the time-out that the first one was given",
                    cause="rank-too-slow",
                    line=event.line,
                    confidence="possible",
                    op="new_group",
                )
                return
