"""Rules about the model, its wrapper, and its optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ddt_notebook.program import names
from ddt_notebook.program.library import may_agree
from ddt_notebook.program.nodes import (
    called_name,
    calls_in,
    dotted_name,
    is_constant,
    keyword,
    last_name,
    names_in,
    source_of,
)
from ddt_notebook.program.trace import Event, Kind, Trace
from ddt_notebook.program.traced_program import TracedProgram
from ddt_notebook.program.values import Instance, LibraryObject, is_wrapper

from . import proof
from .foreseen import Foreseen, foreseen, shown, unless_doubted

#: Libraries that train one model on all ranks, and functions that do so.
_TRAINING_LIBRARIES = (
    "accelerate", "colossalai", "deepspeed", "horovod", "lightning", "megatron",
    "pytorch_lightning", "torch_xla", "transformers",
)  # fmt: skip
_PARALLELIZING = (
    "DataParallel", "FSDP", "FullyShardedDataParallel", "fully_shard", "parallelize_module",
    "prepare", "replicate",
)  # fmt: skip
#: Attributes that a wrapped model has because it is a module.
_OF_MODULE = frozenset(
    {"module", "parameters", "named_parameters", "train", "eval", "state_dict", "load_state_dict",
     "zero_grad", "modules", "named_modules", "children", "named_children", "buffers", "no_sync",
     "named_buffers", "join", "to", "cuda", "cpu", "half", "float", "double", "apply", "forward",
     "requires_grad_", "training", "register_comm_hook", "device", "device_ids", "dim", "bfloat16",
     "register_forward_hook", "register_forward_pre_hook", "get_parameter", "get_submodule",
     "require_backward_grad_sync", "logger", "reducer", "process_group", "gradient_as_bucket_view",
     "broadcast_buffers", "find_unused_parameters", "static_graph", "compile", "type", "add_module",
     "register_buffer", "extra_repr", "share_memory", "output_device", "register_module",
     "bucket_bytes_cap", "register_full_backward_hook"}
)  # fmt: skip
#: Functions of torch that make a tensor.
_TENSORS = frozenset({"tensor", "zeros", "ones", "rand", "randn", "full", "empty", "arange", "eye",
                      "linspace"})  # fmt: skip
#: Layers whose parameters get no gradient unless a forward pass calls them.
_LAYERS = ("Linear", "Conv2d", "Embedding")
#: Functions that reach the parts of a model without naming them.
_REACH_PARTS = ("getattr", "children", "named_children", "modules", "named_modules")
#: Methods that move a tensor attribute, or give its device.
_MOVES = ("to", "type_as", "cuda", "device")
#: Functions that print or collect a number.
_SHOWS = frozenset({"print", "log", "info", "append", "float"})
#: Methods whose result has no graph.
_WITHOUT_GRAPH = frozenset({"item", "detach", "argmax", "max", "tolist"})


def _inner(wrapper: LibraryObject) -> object:
    """Return the model inside a wrapper."""
    value = wrapper.argument("module", 0)
    return value.value if value is not None else None


def _steps(trace: Trace) -> list[Event]:
    """Return the steps of optimizers."""
    return [
        event for event in trace.of(Kind.METHOD) if event.op == "step" and _optimizes(event.held())
    ]


def _optimizes(value: object) -> bool:
    return isinstance(value, LibraryObject) and value.path.startswith("torch.optim")


# -- which model is trained ------------------------------------------------------------------------


def not_wrapped(program: TracedProgram) -> Iterator[Foreseen]:
    """Report divided data on ranks that each train a separate model."""
    if program.first.made("DistributedDataParallel"):
        return
    if program.imports_anywhere(*_TRAINING_LIBRARIES) or program.calls_anywhere(*_PARALLELIZING):
        return
    if _may_agree_by_itself(program):
        return
    trace = program.first
    samplers, steps = trace.made("DistributedSampler"), _steps(trace)
    if samplers and steps and trace.of(Kind.BACKWARD):
        divides = shown(samplers[0].line, "divides-the-data")
        found = foreseen("each-rank-trains-alone", "model-not-wrapped", steps[0].line, divides)
        yield unless_doubted(found, proof.knows_all_calls(program))


def _may_agree_by_itself(program: TracedProgram) -> bool:
    """Whether the program, or a function that it calls, may average or copy tensors itself."""
    return bool(program.calls_anywhere(*names.CARRYING)) or any(map(may_agree, program.tree.calls))


def past_wrapper(program: TracedProgram) -> Iterator[Foreseen]:
    """Report a model that is trained inside its wrapper while the wrapper is never called."""
    if not program.traces:
        return
    if program.calls("all_reduce", "requires_grad_", "parameters_to_vector"):
        return  # the program averages the gradients by itself or trains a part of the model
    trace = program.first
    wrappers = trace.made("DistributedDataParallel")
    if not wrappers or any("__call__" in one.methods for one in wrappers):
        return
    for event in trace.of(Kind.INNER_MODULE_CALLED, Kind.CALLED):
        held = event.held()
        inner = any(_inner(one) is held for one in wrappers) and held is not None
        if (inner or event.kind is Kind.INNER_MODULE_CALLED) and _in_training(trace, event):
            wrapper = shown(wrappers[0].line, "never-called")
            cause = "module-called-past-ddp"
            found = foreseen("trained-past-wrapper", cause, event.line, wrapper)
            yield unless_doubted(found, proof.knows_all_calls(program))
            return


def _in_training(trace: Trace, event: Event) -> bool:
    """Whether a gradient is computed in a loop around an event."""
    lines = {around.line for around in event.loops}
    return any(around.line in lines for back in trace.of(Kind.BACKWARD) for around in back.loops)


def never_synchronised(program: TracedProgram) -> Iterator[Foreseen]:
    """Report optimizer steps before which no backward pass has averaged the gradients."""
    if not program.first.made("DistributedDataParallel"):
        return
    if program.calls("all_reduce") or "require_backward_grad_sync" in program.tree.names:
        return
    trace = program.first
    steps = _steps(trace)
    quiet: Event | None = None  # the last backward pass inside no_sync()
    averaged = maybe_averaged = False
    for event in trace.events:
        if event.kind is Kind.BACKWARD:
            if event.op == "no_sync":
                quiet = event
                averaged = averaged and event.may_not_happen
            else:
                averaged = True
                maybe_averaged = maybe_averaged or event.may_not_happen
        elif event in steps:
            if quiet is not None and not averaged and not maybe_averaged:
                backward = shown(quiet.line, "runs-inside-no-sync")
                yield foreseen("steps-without-average", "no-sync-left-on", event.line, backward)
                return
            quiet, averaged, maybe_averaged = None, False, False


def other_copy(program: TracedProgram) -> Iterator[Foreseen]:
    """Report optimizers that hold the parameters of another model than the trained one."""
    if not program.traces:
        return
    trace = program.first
    wrappers = trace.made("DistributedDataParallel")
    optimizers = [one for one in trace.objects if _optimizes(one) and one.args]
    if len(wrappers) != 1 or len(optimizers) != 1:
        return
    wrapper, optimizer = wrappers[0], optimizers[0]
    if "__call__" not in wrapper.methods or "step" not in optimizer.methods:
        return
    parameters, trained = optimizer.args[0].value, _inner(wrapper)
    if not isinstance(parameters, LibraryObject) or parameters.kind != "parameters":
        return
    owner = parameters.args[0].value
    copied = isinstance(trained, LibraryObject) and trained.kind == "copy"
    same_class = (
        isinstance(trained, Instance) and isinstance(owner, Instance) and owner.of is trained.of
    )
    if (copied or same_class) and owner is not trained and owner is not wrapper:
        wraps = shown(wrapper.line, "wraps-the-trained-copy")
        cause = "optimizer-on-another-copy"
        yield foreseen("optimizes-another-copy", cause, optimizer.line, wraps)


def attribute_of_wrapper(program: TracedProgram) -> Iterator[Foreseen]:
    """Report attributes of the model that the program reads from the wrapper, which lacks them."""
    for event in program.first.events:
        wrapper, name = event.held(), event.op
        asked = event.kind in (Kind.WRAPPER_ATTRIBUTE, Kind.METHOD) and is_wrapper(wrapper)
        if not asked or not isinstance(wrapper, LibraryObject) or name in _OF_MODULE:
            continue
        inner = _inner(wrapper)
        if isinstance(inner, Instance) and (
            name in inner.attributes or inner.of.method(name) is not None
        ):
            wraps = shown(wrapper.line, "wraps-the-model")
            yield foreseen("asked-of-wrapper", "wrapped-by-ddp", event.line, wraps, name=name)


def changed_on_some(program: TracedProgram) -> Iterator[Foreseen]:
    """Report weights that only some ranks load after the wrapper has made the ranks equal."""
    if _may_agree_by_itself(program):
        return
    for trace in program.traces:
        wrapped: list[object] = []
        for event in trace.events:
            held = event.held()
            if event.kind is Kind.MADE and isinstance(held, LibraryObject) and is_wrapper(held):
                wrapped += [held, _inner(held)]
            loads = event.kind is Kind.METHOD and event.op == "load_state_dict"
            known = loads and event.values[0].known and held in wrapped
            if known and program.is_alone(event):
                found = foreseen("loaded-on-some-ranks", "model-reset-on-one-rank", event.line)
                later = trace.events[trace.events.index(event) :]
                # Without training below, the rank may only evaluate the best weights.
                trains = any(one.kind is Kind.BACKWARD for one in later)
                yield unless_doubted(found, trains or proof.is_cell(program))


# -- tensors and layers of a model -----------------------------------------------------------------


def not_registered(program: TracedProgram) -> Iterator[Foreseen]:
    """Report tensors of a module that are not moved, saved or averaged with it."""
    moves = program.calls("cuda", "to")
    for node in program.tree.nodes if program.is_distributed else ():
        if not isinstance(node, ast.ClassDef) or not _is_module(node):
            continue
        for name, made in _plain_tensors(node):
            learns = is_constant(keyword(made, "requires_grad"), True)
            if (learns or moves) and _is_used_as_is(node, name):
                full = f"{node.name}.{name}"
                cause = "tensor-attribute-not-registered"
                found = foreseen("plain-tensor", cause, made.lineno, name=full)
                # Whether another file moves the module to a GPU is not known.
                moved = replace(found, symptom="D.1.3")
                yield found if learns else unless_doubted(moved, proof.is_cell(program))


def _is_module(node: ast.ClassDef) -> bool:
    return any(last_name(base) == "Module" for base in node.bases)


def _plain_tensors(node: ast.ClassDef) -> Iterator[tuple[str, ast.Call]]:
    """Yield the tensors that the constructor makes attributes of the module, with their names."""
    constructors = [one for one in node.body if getattr(one, "name", "") == "__init__"]
    for inner in ast.walk(constructors[0]) if constructors else ():
        match inner:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=made)) as call,
            ) if made in _TENSORS and not _goes_anywhere(made, call):
                yield name, call


def _goes_anywhere(made: str, call: ast.Call) -> bool:
    """Whether it is made on a chosen device, or is a number, which works with any device."""
    number = made == "tensor" and call.args and isinstance(call.args[0], ast.Constant)
    return bool(number) or keyword(call, "device") is not None


def _is_used_as_is(node: ast.ClassDef, name: str) -> bool:
    """Whether ``forward`` uses ``self.name``, and no method moves or replaces it."""
    used = False
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        for inner in ast.walk(method):
            match inner:
                case ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=attribute)):
                    if attribute == name and inner.attr in _MOVES:
                        return False
                case ast.Attribute(value=ast.Name(id="self"), attr=attribute, ctx=context):
                    if attribute == name and isinstance(context, ast.Store):
                        return False
                    used = used or (attribute == name and method.name.startswith("forward"))
    return used


def never_used(program: TracedProgram) -> Iterator[Foreseen]:
    """Report layers that no forward pass uses."""
    if not program.first.of(Kind.BACKWARD):
        return
    if program.calls(*_REACH_PARTS) or "requires_grad" in program.tree.names:
        return
    for wrapper in program.first.made("DistributedDataParallel"):
        inner = _inner(wrapper)
        if not isinstance(inner, Instance) or "__call__" not in wrapper.methods:
            continue
        flags = (wrapper.keywords.get(one) for one in ("find_unused_parameters", "static_graph"))
        if any(flag is not None and flag.value is not False for flag in flags):
            continue
        node = inner.of.node
        if inner.of.parents or not _is_module(node):
            continue
        for name, value in inner.attributes.items():
            layer = value.value
            uses = sum(
                isinstance(one, ast.Attribute) and one.attr == name for one in program.tree.nodes
            )
            if isinstance(layer, LibraryObject) and layer.kind in _LAYERS and uses == 1:
                waits, full = shown(wrapper.line, "waits-for-every-gradient"), f"{node.name}.{name}"
                yield foreseen(
                    "layer-never-used", "unused-parameters", layer.line, waits, name=full
                )


def checkpointed(program: TracedProgram) -> Iterator[Foreseen]:
    """Report parameters that are used several times inside reentrant checkpoints."""
    if not program.wraps_models or "static_graph" in program.tree.names:
        return
    loops = program.tree.of_kind(ast.For)
    for loop in loops:
        for call in calls_in(loop):
            reentrant = is_constant(keyword(call, "use_reentrant"), True)
            if called_name(call) != "checkpoint" or not reentrant or not call.args:
                continue
            layer = dotted_name(call.args[0])
            if layer.startswith("self.") and layer.count(".") == 1:
                repeats, cause = shown(loop.lineno, "repeats-it"), "parameter-ready-twice"
                yield foreseen("used-in-every-iteration", cause, call.lineno, repeats, name=layer)


def _may_have_graph(called: object) -> bool:
    """Whether what is called is a model or a loss, and not another object that can be called."""
    match called:
        case LibraryObject():
            return is_wrapper(called) or called.path.startswith("torch.")
        case Instance():
            return called.of.derives_from("Module")
    return True


def kept_graphs(program: TracedProgram) -> Iterator[Foreseen]:
    """Report losses that are summed together with the graph of each batch."""
    lines = {
        event.line
        for passage in program.passages
        for event in passage.traces[0].of(Kind.CALLED, Kind.INNER_MODULE_CALLED)
        if _may_have_graph(event.held())
    }
    called = {event.line for event in program.first.of(Kind.CALLED, Kind.INNER_MODULE_CALLED)}
    done: set[int] = set()
    for loop in program.tree.nodes if lines else ():
        if not isinstance(loop, (ast.For, ast.While)) or "backward" in names_in(loop):
            continue
        inside = list(ast.walk(loop))
        losses = {
            source_of(target)
            for node in inside
            if isinstance(node, ast.Assign)
            and lines & set(range(node.lineno, (node.end_lineno or 0) + 1))
            and not any(called_name(call) in _WITHOUT_GRAPH for call in calls_in(node.value))
            for target in node.targets
        }
        for node in inside:
            if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
                continue
            total = source_of(node.target)
            if node.lineno in done or source_of(node.value) not in losses:
                continue
            if _is_shown(program, total) and not _is_trained(program, total):
                done.add(node.lineno)
                found = foreseen("keeps-graphs", "loss-keeps-graph", node.lineno, total=total)
                # Whoever calls the function may have switched gradients off.
                yield unless_doubted(found, bool(lines & called & _lines_of(loop)))


def _lines_of(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _is_shown(program: TracedProgram, total: str) -> bool:
    """Whether a sum is printed, logged, collected or converted to a number."""
    return any(
        called_name(node) in _SHOWS and any(source_of(one) == total for one in ast.walk(argument))
        for node in program.tree.nodes
        if isinstance(node, ast.Call)
        for argument in (*node.args, *(one.value for one in node.keywords))
    )


def _is_trained(program: TracedProgram, total: str) -> bool:
    """Whether ``backward`` is called on a sum or on the divided sum."""
    for node in program.tree.nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.BinOp(left=loss), attr="backward")) | (
                ast.Call(func=ast.Attribute(value=loss, attr="backward"))
            ):
                if source_of(loss) == total:
                    return True
    return False


RULES = (
    not_wrapped, past_wrapper, never_synchronised, other_copy, attribute_of_wrapper,
    changed_on_some, not_registered, never_used, checkpointed, kept_graphs,
)  # fmt: skip
