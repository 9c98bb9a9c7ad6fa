"""Rules about the setup of the process group, about devices, and about the end of a process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddt_notebook.program.nodes import called_name, dotted_name, is_constant, last_name
from ddt_notebook.program.trace import Event, Kind
from ddt_notebook.program.traced_program import TracedProgram
from ddt_notebook.program.values import DIFFERS, ON_RANK, Items, LibraryObject, Value

from . import proof
from .foreseen import Foreseen, foreseen, possible, shown, unless_doubted

_BACKENDS = frozenset({"gloo", "nccl", "mpi", "ucc", "xccl", "hccl", "xla", "fake", "threaded",
                       "undefined", "cncl", "smddp", "ccl", "rccl"})  # fmt: skip
#: Functions of torch that make a tensor.
_MAKES = frozenset({"arange", "empty", "full", "ones", "rand", "randn", "randint", "tensor",
                    "zeros"})  # fmt: skip
#: Names that torch no longer has, and their replacements.
_GONE = {
    "all_gather_base": "all_gather_into_tensor",
    "reduce_scatter_base": "reduce_scatter_tensor",
    "all_reduce_multigpu": "all_reduce",
    "broadcast_multigpu": "broadcast",
    "reduce_multigpu": "reduce",
    "all_gather_multigpu": "all_gather",
    "reduce_scatter_multigpu": "reduce_scatter",
    "get_default_group": "group.WORLD",
}
_GONE_MODULES = ("torch._six", "torch.utils.data.dataloader._SingleProcessDataLoaderIter")


# -- the process group -----------------------------------------------------------------------------


def backends(program: TracedProgram) -> Iterator[Foreseen]:
    """Report backends that torch does not have, or that do not support the program's tensors."""
    # Tensors made in another file may be on a GPU.
    makes = any(map(_makes_tensor, program.tree.nodes)) and not program.uses_devices
    formed_here = program.first.of(Kind.GROUP_FORMED)  # and not for the programs that import this
    for event in program.events(Kind.GROUP_FORMED):
        on_cpu = makes and event in formed_here
        backend = event.held()
        if not isinstance(backend, str):
            continue
        parts = [part.rpartition(":")[2].lower() for part in backend.split(",")]
        unknown = [part for part in parts if part not in _BACKENDS]
        if unknown and not program.calls_anywhere("register_backend"):
            kind, cause, backend = "no-such-backend", "backend-unknown", unknown[0]
        elif parts == ["nccl"] and on_cpu and not program.calls("fully_shard"):
            kind, cause = "nccl-without-gpu", "backend-not-available"
        elif ":" in backend and "cpu:" not in backend and on_cpu:
            kind, cause = "backend-serves-no-cpu", "device-without-backend"
        else:
            continue
        added = kind == "no-such-backend" and _extends_torch(program)
        found = foreseen(kind, cause, event.line, backend=backend)
        known = kind == "no-such-backend" or proof.knows_all_calls(program)
        yield unless_doubted(found, known and not added)


def _extends_torch(program: TracedProgram) -> bool:
    """Whether the program imports a package for other devices, which may add a backend."""
    return any(module.startswith(("torch_", "intel_")) for module in program.tree.modules)


def _makes_tensor(node: ast.AST) -> bool:
    """Whether it makes a tensor or a layer of a model."""
    if not isinstance(node, ast.Call):
        return False
    owner, _, name = dotted_name(node.func).rpartition(".")
    layer = owner in ("nn", "torch.nn") and name[:1].isupper()
    return layer or (owner == "torch" and name in _MAKES)


def formed_twice(program: TracedProgram) -> Iterator[Foreseen]:
    """Report process groups that are formed while one exists."""
    formed = 0
    for event in program.first.of(Kind.GROUP_FORMED, Kind.GROUP_DESTROYED):
        if event.kind is Kind.GROUP_DESTROYED:
            formed = 0
        elif all(one.sure for one in event.around):
            if formed:
                earlier = shown(formed if formed != event.line else 0, "formed-it")
                yield foreseen("formed-twice", "group-initialized-twice", event.line, earlier)
                return
            formed = event.line


def before_setup(program: TracedProgram) -> Iterator[Foreseen]:
    """Report what needs the group but comes before the group is formed."""
    formed = program.first.of(Kind.GROUP_FORMED)
    if not formed or any(not one.loop for one in formed[0].around):
        return
    for event in program.first.events:
        if event.kind in (Kind.GROUP_FORMED, Kind.GROUP_DESTROYED):
            return
        calls = event.kind is Kind.GROUP_CALL and event.op != "init_process_group"
        if calls or _asks_for_rank(event):
            forms = shown(formed[0].line, "forms-it")
            cause = "group-not-initialized"
            found = foreseen("needs-group", cause, event.line, forms, what=event.op)
            before = program.first.events[: program.first.events.index(event)]
            # A function that has not been read may form the group.
            unread = any(one.kind is Kind.UNKNOWN_CALL for one in before)
            yield unless_doubted(found, not unread and not event.may_not_happen)
            return


def _asks_for_rank(event: Event) -> bool:
    """Whether it makes a sampler that asks the group for the rank."""
    held = event.held()
    if event.kind is not Kind.MADE or not isinstance(held, LibraryObject):
        return False
    given = held.argument("rank", 2) is not None and held.argument("num_replicas", 1) is not None
    return held.kind == "DistributedSampler" and not given


def arguments(program: TracedProgram) -> Iterator[Foreseen]:
    """Report arguments that ``init_process_group`` refuses."""
    for event in program.events(Kind.GROUP_FORMED):
        given = event.held(1)
        timeout = given.get("timeout") if isinstance(given, dict) else None
        if isinstance(timeout, Value) and type(timeout.value) in (int, float):
            yield foreseen("timeout-is-number", "setup-options", event.line)
        call = program.tree.call_at(event.line, "init_process_group")
        if call is not None and isinstance(given, dict) and _lacks_rank(call, given):
            yield foreseen("init-method-alone", "init-method-incomplete", event.line)


def _lacks_rank(call: ast.Call, given: dict[str, Value]) -> bool:
    """Whether a rendezvous address is given, but neither the rank nor a query that may hold it."""
    if "init_method" not in given or "rank" in given or any(k.arg is None for k in call.keywords):
        return False
    constants = (node.value for node in ast.walk(call) if isinstance(node, ast.Constant))
    texts = [value for value in constants if isinstance(value, str)]
    meets = any(text.startswith(("tcp://", "file://")) for text in texts)
    return meets and not any("?" in text for text in texts)


def not_inherited(program: TracedProgram) -> Iterator[Foreseen]:
    """Report timeouts of the whole group that a group of some ranks does not inherit."""
    for passage in program.passages:
        trace = passage.traces[0]
        given = [event.held(1) for event in trace.of(Kind.GROUP_FORMED)]
        timed = any(isinstance(one, dict) and "timeout" in one for one in given)
        for event in trace.of(Kind.SUBGROUP_FORMED) if timed else ():
            known = event.held()
            if isinstance(known, dict) and "timeout" not in known:
                cause = "rank-too-slow"
                yield possible("timeout-not-inherited", cause, event.line, op="new_group")
                return


# -- devices ---------------------------------------------------------------------------------------


def one_gpu(program: TracedProgram) -> Iterator[Foreseen]:
    """Report ranks that all use one GPU."""
    contexts = (dotted_name(call.func) for call in program.tree.of_kind(ast.Call))
    chosen = (
        program.calls_anywhere("set_device", "set_device_index", "init_device_mesh")
        or program.imports_anywhere("accelerate", "deepspeed")
        or program.mentions("device_id")
        or "CUDA_VISIBLE_DEVICES" in program.tree.strings
        or any(name.endswith("cuda.device") for name in contexts)
    )
    if len(program.traces) < 2 or not program.is_distributed or chosen:
        return
    for event in program.traces[1].of(Kind.MOVED):
        where, alone = event.held(1), any(one.marks & ON_RANK for one in event.around)
        fixed = isinstance(where, str) and re.fullmatch(r"cuda:\d+", where) is not None
        default = where == "cuda" if event.op == "to" else event.op == "cuda" and where is None
        differs = any(value.marks for value in event.values[1:])
        if (fixed or default) and not alone and not differs:
            found = foreseen("same-gpu", "all-ranks-on-one-gpu", event.line)
            elsewhere = default and _set_up_elsewhere(program)
            # What starts the ranks may let each of them see one GPU only.
            yield unless_doubted(found, proof.shares_environment(program) and not elsewhere)
            return


def _set_up_elsewhere(program: TracedProgram) -> bool:
    """Whether a function of another file may have formed the group and chosen the device."""
    trace = program.first
    may = program.project is not None or trace.of(Kind.UNKNOWN_CALL)
    return bool(may) and not trace.of(Kind.GROUP_FORMED)


def device_ids(program: TracedProgram) -> Iterator[Foreseen]:
    """Report ``device_ids`` for a model that is on the CPU."""
    for wrapper in program.first.made("DistributedDataParallel"):
        model = wrapper.argument("module", 0)
        given = isinstance(wrapper.given("device_ids", 1), Items)
        if given and model is not None and model.known and not program.uses_devices:
            yield foreseen("device-ids", "device-ids-on-cpu", wrapper.line)


# -- names, levels, ends ---------------------------------------------------------------------------


def gone(program: TracedProgram) -> Iterator[Foreseen]:
    """Report modules and functions that current torch versions do not have."""
    for node in program.tree.nodes:
        match node:
            case ast.Import(names=[ast.alias(name=module), *_]) | ast.ImportFrom(module=module):
                if module in _GONE_MODULES:
                    found = foreseen("module-gone", "package-version", node.lineno, module=module)
                    yield unless_doubted(found, not proof.is_tried(program, node))
            case ast.Attribute(attr=name) if name in _GONE:
                if dotted_name(node.value) in ("dist", "torch.distributed", "c10d"):
                    values = {"name": name, "now": _GONE[name]}
                    found = foreseen("function-gone", "attribute-missing", node.lineno, **values)
                    yield unless_doubted(found, not proof.is_tried(program, node))


def debug_level(program: TracedProgram) -> Iterator[Foreseen]:
    """Report the debug level at which DDP on gloo crashes."""
    for node in (
        program.tree.nodes if program.wraps_models and "nccl" not in program.tree.strings else ()
    ):
        found = False
        match node:
            case ast.Call(args=[level, *_]) if called_name(node) == "set_debug_level":
                found = last_name(level) == "DETAIL"
            case ast.Assign(targets=[ast.Subscript(slice=variable)], value=level):
                found = is_constant(variable, "TORCH_DISTRIBUTED_DEBUG")
                found = found and is_constant(level, "DETAIL")
        if found and isinstance(node, (ast.Call, ast.Assign)):
            on_gloo = proof.is_cell(program) or any(
                event.held() == "gloo" for event in program.first.of(Kind.GROUP_FORMED)
            )
            level_set = foreseen("debug-detail", "debug-level-detail", node.lineno)
            yield unless_doubted(level_set, on_gloo)


def process_ends(program: TracedProgram) -> Iterator[Foreseen]:
    """Report processes that end under a condition while others continue."""
    for passage in program.passages:
        trace = passage.traces[0]
        for event in trace.of(Kind.PROCESS_ENDED) if trace.of(Kind.GROUP_CALL) else ():
            conditions = [one for one in event.around if not one.loop]
            if conditions:
                decides = shown(conditions[-1].line, "decides-on-each-rank")
                found = foreseen("process-may-end", "process-exit", event.line, decides)
                differs = any(one.marks & DIFFERS for one in conditions)
                sure = differs or proof.is_cell(program)
                yield unless_doubted(found, passage.called and sure)


RULES = (
    backends, formed_twice, arguments, before_setup, one_gpu, device_ids, not_inherited, gone,
    debug_level, process_ends,
)  # fmt: skip
