"""Rules about the model, its wrapper, and its optimizer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .facts import Event, Facts
from .note import Note
from .program import Program
from .shape import written
from .values import Foreign, Object, Value, is_wrapper

#: Others that make the ranks train one model.
_OTHERWISE = (
    r"FSDP|FullySharded|fully_shard|deepspeed|accelerat|horovod|hvd\.|prepare\(|parallelize|"
    r"Averager|transformers|lightning|replicate\(|megatron|colossal|all_reduce|allreduce|broadcast|"
    r"all_gather|reduce_scatter|send\(|xm\.|(?i:averag|sync_|reduce_)"
)
#: What a wrapped model has of its own, as every module.
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
_TENSORS = frozenset({"tensor", "zeros", "ones", "rand", "randn", "full", "empty", "arange", "eye",
                      "linspace"})  # fmt: skip


def _facts(program: Program) -> Facts | None:
    return program.facts[0] if program.facts else None


def _inner(wrapper: Foreign) -> object:
    value = wrapper.argument("module", 0)
    return value.value if value is not None else None


def not_wrapped(program: Program) -> Iterator[Note]:
    """The data is divided among ranks that train each for itself."""
    facts = _facts(program)
    if facts is None or program.mentions(_OTHERWISE) or facts.kind("DistributedDataParallel"):
        return
    samplers = facts.kind("DistributedSampler")
    steps = [event for event in facts.of(".step") if _is_optimizer(event.values[0].value)]
    backward = facts.of("backward")
    if not samplers or not steps or not backward or program.mentions(r"DataParallel\("):
        return
    yield Note(
        symptom="D.2.2",
        title="each rank trains a model of its own: the data is divided, the model is not wrapped",
        cause="model-not-wrapped",
        line=steps[0].line,
        also=((samplers[0].line, "divides the data"),),
    )


def _is_optimizer(value: object) -> bool:
    return isinstance(value, Foreign) and str(value.facts.get("path", "")).startswith("torch.optim")


def past_wrapper(program: Program) -> Iterator[Note]:
    """The model inside the wrapper is trained, the wrapper itself never called."""
    facts = _facts(program)
    if facts is None or program.mentions(r"all_reduce|requires_grad_\(|parameters_to_vector"):
        return
    wrappers = facts.kind("DistributedDataParallel")
    if not wrappers or any(one.facts.get("called") for one in wrappers):
        return
    for event in (*facts.of("module called"), *facts.of("called")):
        held = event.values[0].value
        bypassed = event.what == "module called" or any(_inner(one) is held for one in wrappers)
        if bypassed and held is not None and _in_training(facts, event):
            yield Note(
                symptom="D.2.2",
                title="the model inside the wrapper is trained: its gradients are never averaged",
                cause="module-called-past-ddp",
                line=event.line,
                also=((wrappers[0].line, "is never called"),),
            )
            return


def _in_training(facts: Facts, event: Event) -> bool:
    lines = {around.line for around in event.around if around.loop}
    return any(
        lines & {around.line for around in back.around if around.loop}
        for back in facts.of("backward")
    )


def never_synchronised(program: Program) -> Iterator[Note]:
    """Steps after which no backward pass has averaged the gradients."""
    facts = _facts(program)
    if facts is None or not facts.kind("DistributedDataParallel"):
        return
    if program.mentions(r"all_reduce|require_backward_grad_sync"):
        return
    quiet: Event | None = None
    averaged = synced = False
    for event in facts.events:
        if event.what == "backward":
            maybe = any(not around.sure and not around.loop for around in event.around)
            averaged = event.text != "no_sync" or (maybe and averaged)
            synced = synced or (maybe and event.text != "no_sync")
            quiet = event if event.text == "no_sync" else quiet
        elif event.what == ".step" and _is_optimizer(event.values[0].value):
            if quiet is not None and not averaged and not synced:
                yield Note(
                    symptom="D.2.2",
                    title="the optimizer steps on gradients that were never averaged: no_sync",
                    cause="no-sync-left-on",
                    line=event.line,
                    also=((quiet.line, "runs inside no_sync()"),),
                )
                return
            quiet, averaged, synced = None, False, False


def other_copy(program: Program) -> Iterator[Note]:
    """The optimizer holds the parameters of another model than the one that is trained."""
    facts = _facts(program)
    if facts is None:
        return
    wrappers = facts.kind("DistributedDataParallel")
    optimizers = [one for one in facts.made if _is_optimizer(one) and one.args]
    if len(wrappers) != 1 or len(optimizers) != 1 or not wrappers[0].facts.get("called"):
        return
    owner = _owner(optimizers[0].args[0])
    trained = _inner(wrappers[0])
    if owner is None or trained is None or not optimizers[0].facts.get("step"):
        return
    copied = isinstance(trained, Foreign) and trained.kind == "copy"
    replaced = isinstance(trained, Object) and isinstance(owner, Object) and owner.of is trained.of
    if (copied or replaced) and owner is not trained and owner is not wrappers[0]:
        yield Note(
            symptom="D.2.5",
            title="the optimizer holds the parameters of another copy of the model",
            cause="optimizer-on-another-copy",
            line=optimizers[0].line,
            also=((wrappers[0].line, "wraps the copy that is trained"),),
        )


def _owner(parameters: Value) -> object:
    held = parameters.value
    if isinstance(held, Foreign) and held.kind == "parameters":
        return held.args[0].value
    return None


def attribute_of_wrapper(program: Program) -> Iterator[Note]:
    """Attributes of the model asked of its wrapper, which does not have them."""
    facts = _facts(program)
    if facts is None:
        return
    for event in facts.events:
        name = event.text if event.what == "attribute of wrapper" else event.what[1:]
        if event.what != "attribute of wrapper" and not event.what.startswith("."):
            continue
        held = event.values[0].value
        if not is_wrapper(held) or name in _OF_MODULE:
            continue
        assert isinstance(held, Foreign)
        inner = _inner(held)
        if not isinstance(inner, Object):
            continue
        if name in inner.attributes or inner.of.method(name) is not None:
            yield Note(
                symptom="D.1.8",
                title=f"{name} is asked of the wrapper, but belongs to the model inside it",
                cause="wrapped-by-ddp",
                line=event.line,
                also=((held.line, "wraps the model"),),
            )


def changed_on_some(program: Program) -> Iterator[Note]:
    """Weights loaded on some ranks, after the wrapper has made the ranks equal."""
    if not program.facts or program.mentions(r"broadcast|all_reduce|_sync_module"):
        return
    for facts in program.facts:
        wrapped: list[object] = []
        for event in facts.events:
            if event.what == "made" and is_wrapper(event.values[0].value):
                held = event.values[0].value
                assert isinstance(held, Foreign)
                wrapped += [held, _inner(held)]
            elif event.what == ".load_state_dict" and wrapped:
                alone = program.is_alone(event)
                if alone and event.values[0].value in wrapped and event.values[0].known:
                    yield Note(
                        symptom="D.2.5",
                        title="weights are loaded on some ranks only, after the model was wrapped",
                        cause="model-reset-on-one-rank",
                        line=event.line,
                    )


def not_registered(program: Program) -> Iterator[Note]:
    """Tensors of a module that do not move, are not saved, and are not averaged with it."""
    moves = program.mentions(r"\.cuda\(|\.to\(")
    for node in ast.walk(program.tree):
        if not isinstance(node, ast.ClassDef) or not _is_module(node):
            continue
        for name, made in _plain_tensors(node):
            learns = any(
                k.arg == "requires_grad" and getattr(k.value, "value", None) is True
                for k in made.keywords
            )
            if (learns or moves) and _is_used_as_is(node, name) and _is_parallel(program):
                yield Note(
                    symptom="D.2.2" if learns else "D.1.3",
                    title=f"{node.name}.{name} is a plain tensor, unknown to the module",
                    cause="tensor-attribute-not-registered",
                    line=made.lineno,
                )


def _is_parallel(program: Program) -> bool:
    return program.mentions(r"DDP|DataParallel|fully_shard|torch\.distributed|init_process_group")


def _is_module(node: ast.ClassDef) -> bool:
    return any(written(base).rpartition(".")[2] == "Module" for base in node.bases)


def _plain_tensors(node: ast.ClassDef) -> Iterator[tuple[str, ast.Call]]:
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name != "__init__":
            continue
        for inner in ast.walk(method):
            match inner:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                    value=ast.Call(
                        func=ast.Attribute(value=ast.Name(id="torch"), attr=made)
                    ) as call,
                ) if made in _TENSORS and not _moves_by_itself(made, call):
                    yield name, call


def _moves_by_itself(made: str, call: ast.Call) -> bool:
    """Whether it is put on a device where it is made, or is a number, which goes with any."""
    number = made == "tensor" and call.args and isinstance(call.args[0], ast.Constant)
    return bool(number) or any(keyword.arg == "device" for keyword in call.keywords)


def _is_used_as_is(node: ast.ClassDef, name: str) -> bool:
    """Whether a method computes with ``self.name`` without moving it to a device first."""
    used = False
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        text = written(method)
        if any(
            f"self.{name}{how}" in text for how in (".to(", ".type_as(", ".cuda(", " = ", ".device")
        ):
            return False
        used = used or any(
            method.name.startswith("forward")
            and isinstance(inner, ast.Attribute)
            and inner.attr == name
            for inner in ast.walk(method)
        )
    return used


def never_used(program: Program) -> Iterator[Note]:
    """Layers that no forward pass goes through."""
    facts = _facts(program)
    if facts is None:
        return
    for wrapper in facts.kind("DistributedDataParallel"):
        inner = _inner(wrapper)
        if not isinstance(inner, Object) or not wrapper.facts.get("called"):
            continue
        flags = ("find_unused_parameters", "static_graph")
        if any(wrapper.keywords.get(flag, Value(False)).value is not False for flag in flags):
            continue
        node = inner.of.node
        if inner.of.parents or not _is_module(node):
            continue
        if program.mentions(r"getattr\(|children\(\)|modules\(\)|requires_grad"):
            continue
        for name, value in inner.attributes.items():
            layer = value.value
            known = isinstance(layer, Foreign) and layer.kind in ("Linear", "Conv2d", "Embedding")
            uses = len(re.findall(rf"\.{name}\b", program.source))
            if known and uses == 1 and facts.of("backward"):
                assert isinstance(layer, Foreign)
                yield Note(
                    symptom="D.1.4",
                    title=f"no forward pass goes through {node.name}.{name}",
                    cause="unused-parameters",
                    line=layer.line,
                    also=((wrapper.line, "waits for the gradient of every parameter"),),
                )
